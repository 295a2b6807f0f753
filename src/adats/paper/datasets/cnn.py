"""A network of four convolutions that learns features of characters (PyTorch)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from adats.models.core.types import FloatArray
from adats.paper.datasets.images import Bytes, grey

Progress = Callable[[int, int], None]  # batches done, of all
LAYERS, FEATURES = 4, 64
RECIPE = 1  # counts up whenever this file learns other features from the same data


@dataclass(frozen=True)
class Training:
    """How the network is trained; with the data it determines the features."""

    epochs: int = 30
    batch: int = 128
    rate: float = 3e-3  # the largest learning rate, of one cycle
    warp: float = 0.1  # spread of the random affine maps that make each drawing new
    held_out: int = 4  # the last drawers of every character, to measure the accuracy on
    seed: int = 1


TRAINING = Training()


def learn_features(
    background: Bytes,
    evaluation: Bytes,
    training: Training = TRAINING,
    *,
    progress: Progress | None = None,
) -> tuple[FloatArray, float]:
    """Features of the evaluation characters, and the accuracy on held-out drawers.

    Both are ink of shape (characters, drawers, height, width). The network learns to tell the
    background characters apart. Its last layer before the classes is the features, scaled to length
    one: the paper's analysis has arms in the unit ball. A seed gives the same numbers on any number
    of cores, and PyTorch's own random numbers stay as they are.
    """
    try:
        import torch
    except ImportError:
        raise ValueError("Omniglot's features need PyTorch: pip install 'adats[vision]'") from None
    kept = background.shape[1] - training.held_out
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        body = _body()
        head = torch.nn.Linear(FEATURES, len(background))
        _train(body, head, *_labelled(background[:, :kept]), training, progress)
        body.eval()
        images, labels = _labelled(background[:, kept:])
        with torch.no_grad():
            accuracy = (head(_run(body, images)).argmax(1) == labels).double().mean().item()
            raw = _run(body, _labelled(evaluation)[0]).double().numpy()
    length = np.linalg.norm(raw, axis=1, keepdims=True)
    features = raw / np.where(length > 0, length, 1.0)
    return features.reshape(*evaluation.shape[:2], FEATURES), accuracy


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order, so that the number of cores does not change the features."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _body() -> Any:
    """Four layers of 64 filters, each halving the image, and the mean over what is left."""
    from torch import nn

    layers: list[Any] = []
    for layer in range(LAYERS):
        channels = 1 if layer == 0 else FEATURES
        layers += [
            nn.Conv2d(channels, FEATURES, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(FEATURES),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _labelled(ink: Bytes) -> tuple[Any, Any]:
    """One image a row, from 0 to 1, and the number of its character."""
    import torch

    characters, drawers, *size = ink.shape
    images = torch.from_numpy(grey(ink).reshape(-1, 1, *size))
    return images, torch.arange(characters).repeat_interleave(drawers)


def _train(
    body: Any, head: Any, images: Any, labels: Any, training: Training, progress: Progress | None
) -> None:
    import torch

    starts = range(0, len(images), training.batch)
    total = training.epochs * len(starts)
    weights = [*body.parameters(), *head.parameters()]
    optimiser = torch.optim.Adam(weights, lr=training.rate)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, training.rate, total_steps=total)
    for epoch in range(training.epochs):
        order = torch.randperm(len(images))
        for step, start in enumerate(starts):
            rows = order[start : start + training.batch]
            guess = head(body(_warped(images[rows], training.warp)))
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(guess, labels[rows]).backward()
            optimiser.step()
            rate.step()
            if progress is not None:
                progress(epoch * len(starts) + step + 1, total)


def _warped(images: Any, spread: float) -> Any:
    """Each image under a small affine map of its own."""
    import torch
    from torch.nn import functional

    maps = torch.eye(2, 3) + spread * torch.randn(len(images), 2, 3)
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def _run(body: Any, images: Any) -> Any:
    """Features of many images, a thousand at a time."""
    import torch

    return torch.cat([body(part) for part in images.split(1000)])
