"""Where the files of a dataset are: in a given folder, in ADATS_DATA, in the cache, or online."""

import os
from dataclasses import dataclass
from pathlib import Path

from adats.models.core.types import AnyPath

VARIABLE = "ADATS_DATA"


@dataclass(frozen=True)
class DatasetFile:
    """One file of a dataset: the names it may have, and where it comes from."""

    names: tuple[str, ...]  # the first is that of the download
    url: str
    md5: str


@dataclass(frozen=True)
class Dataset:
    """A dataset to be found: its title, the subfolder it may be in, and its files."""

    title: str
    folder: str
    files: tuple[DatasetFile, ...]


def find(
    dataset: Dataset, data: AnyPath | None = None, *, download: bool = True
) -> tuple[Path, ...]:
    """The path of every file, all from one folder.

    A folder that is given must hold them. Else they are looked for in the folder that the
    environment variable ADATS_DATA names and in the cache, and else downloaded into the cache. A
    folder holds files directly or in the dataset's subfolder.
    """
    if data is not None:
        found = _look(dataset, Path(data), "--data")
        if found is None:
            names = " and ".join(" or ".join(file.names) for file in dataset.files)
            raise ValueError(f"{data} does not hold {dataset.title}: it needs {names}")
        return found
    variable = os.environ.get(VARIABLE)
    if variable:
        found = _look(dataset, Path(variable), VARIABLE)
        if found is not None:
            return found
    cache = cache_folder() / dataset.folder
    if cache.is_dir():
        found = _look(dataset, cache, "the cache")
        if found is not None:
            return found
    return _download(dataset, cache, allowed=download)


def cache_folder() -> Path:
    """The folder for downloads and features: the one that the system has for caches."""
    try:
        import pooch
    except ImportError:
        raise ValueError("downloads and the cache need pooch: pip install 'adats[data]'") from None
    return Path(pooch.os_cache("adats"))


def _look(dataset: Dataset, folder: Path, giver: str) -> tuple[Path, ...] | None:
    if not folder.is_dir():
        raise ValueError(f"{giver} must name a folder that exists, got {folder}")
    for place in (folder, folder / dataset.folder):
        found = [
            next((place / name for name in file.names if (place / name).exists()), None)
            for file in dataset.files
        ]
        paths = tuple(path for path in found if path is not None)
        if len(paths) == len(dataset.files):
            return paths
    return None


def _download(dataset: Dataset, cache: Path, *, allowed: bool) -> tuple[Path, ...]:
    import pooch

    reason = "downloads are switched off"
    if allowed:
        try:
            return tuple(
                Path(pooch.retrieve(file.url, f"md5:{file.md5}", file.names[0], cache))
                for file in dataset.files
            )
        except (OSError, ValueError) as error:  # no network, no space, another checksum
            reason = f"the download failed: {error}"
    files = " and ".join(file.url for file in dataset.files)
    raise ValueError(
        f"{dataset.title} is not here. Fetch {files} and put them into a folder that --data or the "
        f"environment variable {VARIABLE} names, or into {cache} ({reason})"
    )
