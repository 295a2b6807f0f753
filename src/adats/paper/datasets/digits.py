"""The small digits that come with scikit-learn: no download."""

import numpy as np

from adats.paper.datasets.images import ImageData, Split, halves


def load_digits() -> ImageData:
    """1,797 digits in two halves.

    Their 8 × 8 pixels are means over blocks of 4 × 4 of a 32 × 32 bitmap, as the features of MNIST
    are over 28 × 28. So they are the 64 features as they are, from 0 to 1.
    """
    try:
        from sklearn import datasets
    except ImportError:
        raise ValueError("the digits are scikit-learn's: pip install 'adats[data]'") from None
    bunch = datasets.load_digits()
    images = (bunch.images / 16).astype(np.float32)
    features = (bunch.data / 16).astype(np.float64)
    labels = bunch.target.astype(np.intp)
    train, test = (Split(images[rows], labels[rows], features[rows]) for rows in halves(labels))
    classes = tuple(map(str, range(10)))
    return ImageData("digits", train, test, classes, "8 × 8 pixels as 64 features")
