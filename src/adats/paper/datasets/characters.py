"""Omniglot's two parts in any of their three forms: official zip, unpacked folder, npz."""

import csv
import io
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adats.models.core.types import BoolArray
from adats.paper.datasets.images import Bytes, shrink

DRAWERS = 20  # every character was drawn once by each of twenty people
SIDE = 105  # of the official images
SIZE = 28  # of ours, as is usual for networks on Omniglot
BACKGROUND = 964  # characters 0001..0964 are the background, later ones the evaluation set
PNG = re.compile(r"([^/]+)/(character\d+)/(\d{4})_(\d{2})\.png$")
BROKEN = (  # what the readers of PNG, zip and npz raise about damaged files
    OSError,
    EOFError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, eq=False)
class Characters:
    """Characters by their official number, each drawn by the same number of people."""

    names: tuple[str, ...]  # alphabet/character
    ink: Bytes  # (characters, drawers, SIZE, SIZE), 255 is ink


def read_characters(path: Path) -> Characters:
    """Read a part of Omniglot; all forms of it give the same."""
    names, ink = [], []
    for name, paper in drawings(path):
        small = shrink((~paper).astype(np.float32), SIZE)
        names.append(name)
        ink.append(np.rint(255 * small).astype(np.uint8))
    if len(names) < 2:
        raise ValueError(f"{path} must have at least two characters, got {len(names)}")
    return Characters(tuple(names), np.array(ink))


def drawings(path: Path) -> Iterator[tuple[str, BoolArray]]:
    """Name and images (drawers, SIDE, SIDE) of each character; True is white paper."""
    if path.suffix == ".npz":
        yield from _in_npz(path)
    elif path.is_dir():
        files = [file.relative_to(path).as_posix() for file in path.rglob("*.png")]
        yield from _in_pngs(path, files, lambda name: (path / name).read_bytes())
    else:
        try:
            archive = zipfile.ZipFile(path)
        except BROKEN as error:
            raise ValueError(f"{path} is not a whole zip file: {error}") from None
        with archive:
            yield from _in_pngs(path, archive.namelist(), archive.read)


def _in_pngs(
    path: Path, files: Sequence[str], read: Callable[[str], bytes]
) -> Iterator[tuple[str, BoolArray]]:
    found: dict[tuple[str, str], dict[int, str]] = {}
    for name in files:
        match = PNG.search(name)
        if match:
            alphabet, character, number, drawer = match.groups()
            drawers = found.setdefault((number, f"{alphabet}/{character}"), {})
            drawers[int(drawer)] = name
    if not found:
        raise ValueError(f"{path} has no images Alphabet/characterNN/XXXX_YY.png, as Omniglot has")
    for (_, character), drawers in sorted(found.items()):
        if sorted(drawers) != list(range(1, DRAWERS + 1)):
            raise ValueError(
                f"{path}: {character} must have images _01 to _{DRAWERS}, got "
                + ", ".join(f"_{drawer:02d}" for drawer in sorted(drawers))
            )
        images = [_read_png(path, drawers[j], read) for j in range(1, DRAWERS + 1)]
        yield character, np.array(images)


def _read_png(path: Path, name: str, read: Callable[[str], bytes]) -> BoolArray:
    try:
        from PIL import Image
    except ImportError:
        raise ValueError("Omniglot's PNG files need Pillow: pip install 'adats[data]'") from None
    try:
        with Image.open(io.BytesIO(read(name))) as image:
            paper: BoolArray = np.asarray(image.convert("1"))
    except BROKEN as error:
        raise ValueError(f"{path}: {name} cannot be read: {error}") from None
    if paper.shape != (SIDE, SIDE):
        raise ValueError(f"{path}: {name} must be {SIDE} × {SIDE} pixels, got {paper.shape}")
    return paper


def _in_npz(path: Path) -> Iterator[tuple[str, BoolArray]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            missing = {"images", "labels"} - set(arrays)
            if missing:
                raise ValueError(f"it has no array {' and no array '.join(sorted(missing))}")
            images, labels = arrays["images"], arrays["labels"]
    except BROKEN as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if images.dtype != np.bool_ or images.shape[1:] != (DRAWERS, SIDE, SIDE):
        raise ValueError(
            f"{path}: images must be bool of shape (characters, {DRAWERS}, {SIDE}, {SIDE}), "
            f"got {images.dtype} of shape {images.shape}"
        )
    rows = np.arange(len(images))
    if labels.shape != images.shape[:2] or (labels != rows[:, None]).any():
        raise ValueError(f"{path}: labels must have shape {images.shape[:2]} and be r in row r")
    yield from zip(_npz_names(path, len(images)), images, strict=True)


def _npz_names(path: Path, count: int) -> tuple[str, ...]:
    """Names by the table beside the file; by the official number if there is none."""
    table, split = path.with_name("omniglot_characters.csv"), path.stem.removeprefix("images_")
    if not table.exists():
        first = 1 if split == "background" else BACKGROUND + 1
        return tuple(f"{first + row:04d}" for row in range(count))
    names: dict[str, str] = {}
    try:
        with table.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["split"] == split:
                    names[row["npz_row"]] = f"{row['alphabet']}/{row['character']}"
        return tuple(names[str(row)] for row in range(count))
    except (KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{table} does not name the characters of {path.name}: {error}") from None
