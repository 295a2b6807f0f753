"""Where files are looked for: a folder, ADATS_DATA, the cache, the network."""

import functools
import hashlib
import http.server
import sys
import threading

import numpy as np
import pooch
import pytest

from adats.paper.datasets import load, load_mnist, load_omniglot, mnist
from adats.paper.datasets.find import Dataset, DatasetFile, cache_folder, find
from images import write_set

IMAGES = np.random.default_rng(3).integers(256, size=(8, 28, 28), dtype=np.uint8)
LABELS = {"data": [1, 1, 2, 2, 1, 1, 2, 2], "variable": [3, 3, 4, 4] * 2, "cache": [5, 6] * 4}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of its own for each test, and no ADATS_DATA."""
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "caches" / project)
    monkeypatch.delenv("ADATS_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    return tmp_path / "caches" / "adats"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def online(tmp_path, monkeypatch):
    """A server with a made MNIST, which the loader takes for the real one."""
    folder = write_set(tmp_path / "online", IMAGES, [7, 8] * 4)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=folder)
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    parts = []
    for part in mnist.MNIST.files:
        name = part.names[0]
        url = f"http://127.0.0.1:{server.server_port}/{name}"
        parts.append(
            DatasetFile(part.names, url, hashlib.md5((folder / name).read_bytes()).hexdigest())
        )
    monkeypatch.setattr(mnist, "MNIST", Dataset("MNIST", "mnist", tuple(parts)))
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def closed(monkeypatch):
    """No network: nothing listens on the port."""
    parts = [
        DatasetFile(p.names, "http://127.0.0.1:9/" + p.names[0], p.md5) for p in mnist.MNIST.files
    ]
    monkeypatch.setattr(mnist, "MNIST", Dataset("MNIST", "mnist", tuple(parts)))


@pytest.mark.usefixtures("online")
def test_the_order_is_data_variable_cache_network(tmp_path, cache, monkeypatch):
    assert load("mnist").classes == ("7", "8")  # downloaded
    for path in (cache / "mnist").iterdir():
        path.unlink()
    write_set(cache / "mnist", IMAGES, LABELS["cache"])
    assert load("mnist").classes == ("5", "6")
    monkeypatch.setenv("ADATS_DATA", str(write_set(tmp_path / "v", IMAGES, LABELS["variable"])))
    assert load("mnist").classes == ("3", "4")
    data = write_set(tmp_path / "d", IMAGES, LABELS["data"])
    assert load("mnist", data).classes == ("1", "2")
    assert load("mnist", str(data)).classes == ("1", "2")


def test_files_may_be_in_a_subfolder(tmp_path, monkeypatch):
    write_set(tmp_path / "all" / "mnist", IMAGES, LABELS["data"])
    assert load_mnist(tmp_path / "all").classes == ("1", "2")
    monkeypatch.setenv("ADATS_DATA", str(tmp_path / "all"))
    assert load_mnist().classes == ("1", "2")


def test_a_download_is_kept(cache, online):
    assert load_mnist().classes == ("7", "8")
    kept = sorted(path.name for path in (cache / "mnist").iterdir())
    assert kept == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]
    for path in online.iterdir():
        path.unlink()
    assert load_mnist().classes == ("7", "8")


def test_half_a_download_is_completed(cache, online):
    (cache / "mnist").mkdir(parents=True)
    name = "train-images-idx3-ubyte.gz"
    (cache / "mnist" / name).write_bytes((online / name).read_bytes())
    (online / name).unlink()
    assert load_mnist().classes == ("7", "8")


def test_a_download_with_another_checksum_is_not_kept(cache, online):
    (online / "train-labels-idx1-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(ValueError, match="the download failed: MD5 hash"):
        load_mnist()
    assert [path.name for path in (cache / "mnist").iterdir()] == ["train-images-idx3-ubyte.gz"]


@pytest.mark.parametrize("download", [True, False])
def test_one_message_says_where_to_put_which_files(cache, monkeypatch, download):
    closed(monkeypatch)
    with pytest.raises(ValueError, match="MNIST is not here") as error:
        load_mnist(download=download)
    message = str(error.value)
    for words in (
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "http://127.0.0.1:9/",
    ):
        assert words in message
    for words in ("--data", "ADATS_DATA", str(cache / "mnist")):
        assert words in message
    assert ("the download failed" if download else "downloads are switched off") in message
    assert "\n" not in message


def test_the_same_for_omniglot(cache):
    with pytest.raises(ValueError, match="Omniglot is not here") as error:
        load_omniglot(download=False)
    for words in ("python/images_background.zip", "python/images_evaluation.zip", str(cache)):
        assert words in str(error.value)


@pytest.mark.usefixtures("online")
def test_a_folder_that_is_given_must_hold_the_files(tmp_path, monkeypatch):
    write_set(tmp_path / "half", IMAGES, LABELS["data"])
    (tmp_path / "half" / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ValueError, match="half does not hold MNIST: it needs train-images-idx3"):
        load_mnist(tmp_path / "half")
    with pytest.raises(ValueError, match=r"--data must name a folder that exists, got .*absent"):
        load_mnist(tmp_path / "absent")
    monkeypatch.setenv("ADATS_DATA", str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="ADATS_DATA must name a folder that exists"):
        load_mnist()
    monkeypatch.setenv("ADATS_DATA", str(tmp_path / "half"))  # may hold other sets only
    assert load_mnist().classes == ("7", "8")


def test_the_files_come_from_one_folder(tmp_path):
    source = Dataset("Two", "two", (DatasetFile(("a", "A"), "", ""), DatasetFile(("b",), "", "")))
    for name in ("a", "two/A", "two/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find(source, tmp_path) == (tmp_path / "two" / "A", tmp_path / "two" / "b")
    (tmp_path / "b").touch()
    assert find(source, tmp_path) == (tmp_path / "a", tmp_path / "b")


def test_without_pooch_a_folder_still_does(tmp_path, monkeypatch):
    data = write_set(tmp_path / "d", IMAGES, LABELS["data"])
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert load_mnist(data).classes == ("1", "2")
    with pytest.raises(ValueError, match=r"pooch: pip install 'adats\[data\]'"):
        load_mnist()


def test_the_cache_is_the_system_s(monkeypatch):
    monkeypatch.undo()
    assert cache_folder() == pooch.os_cache("adats")
    assert cache_folder().is_absolute()
