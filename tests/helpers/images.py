"""Small files of images, as datasets have them."""

import gzip

import numpy as np


def idx(values):
    values = np.asarray(values, dtype=np.uint8)
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
    return header + values.tobytes()


def write_set(folder, images, labels, *, mark="-", packed=True):
    """A set in MNIST's format, under one of its four names."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, values in ((f"train-images{mark}idx3", images), (f"train-labels{mark}idx1", labels)):
        data = idx(values)
        name = f"{stem}-ubyte" + (".gz" if packed else "")
        (folder / name).write_bytes(gzip.compress(data) if packed else data)
    return folder
