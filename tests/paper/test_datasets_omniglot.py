"""Omniglot: its three forms give the same; features are learned once and kept."""

import io
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pooch
import pytest

from adats.paper.datasets import load_omniglot, omniglot
from adats.paper.datasets.characters import drawings, read_characters
from adats.paper.datasets.cnn import Training, learn_features
from adats.paper.datasets.images import shrink

SHARED = Path(__file__).parents[3] / "shared" / "data" / "omniglot"
needs_files = pytest.mark.skipif(not SHARED.is_dir(), reason="the files of Omniglot are not here")
ALPHABETS = {"images_background": ["Zeta", "Zeta", "Alpha"], "images_evaluation": ["Eta", "Beta"]}


def png(paper):
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(paper).save(file, "png")
    return file.getvalue()


def make_paper(part):
    """Drawings of a few characters, each a line of its own; True is paper."""
    rng = np.random.default_rng(len(part))
    paper = np.ones((len(ALPHABETS[part]), 20, 105, 105), dtype=bool)
    for character, drawers in enumerate(paper):
        for image in drawers:
            across, down = 10 + 30 * character + rng.integers(12), rng.integers(20, 80)
            image[down : down + 8, across:] = False
            image[10:95, across : across + 5] = False
    return paper


def make_pngs(part):
    """Official names and contents; numbers run on from one alphabet to the next."""
    first = 1 if part == "images_background" else 965
    for row, (alphabet, drawers) in enumerate(zip(ALPHABETS[part], make_paper(part), strict=True)):
        character = f"{alphabet}/character{1 + ALPHABETS[part][:row].count(alphabet):02d}"
        for drawer, paper in enumerate(drawers, start=1):
            yield f"{part}/{character}/{first + row:04d}_{drawer:02d}.png", png(paper)


def write_zip(folder, part, files=None):
    with zipfile.ZipFile(folder / f"{part}.zip", "w") as archive:
        archive.writestr(f"{part}/", b"")
        for name, data in make_pngs(part) if files is None else files:
            archive.writestr(name, data)


def write_folder(folder, part):
    for name, data in make_pngs(part):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def write_npz(folder, part, **changes):
    paper = make_paper(part)
    labels = np.repeat(np.arange(len(paper))[:, None], 20, axis=1)
    arrays = {"images": paper, "labels": labels} | changes
    arrays = {name: value for name, value in arrays.items() if value is not None}
    np.savez_compressed(folder / f"{part}.npz", **arrays)


def write_table(folder, columns="char_id,split,npz_row,alphabet,character"):
    rows = [columns]
    for split, start in (("background", 1), ("evaluation", 965)):
        names = [name.split("/") for name, _ in make_pngs(f"images_{split}")][::20]
        rows += [f"{start + r},{split},{r},{name[1]},{name[2]}" for r, name in enumerate(names)]
    (folder / "omniglot_characters.csv").write_text("\n".join(rows), encoding="utf-8")


FORMS = {"zip": write_zip, "folder": write_folder, "npz": write_npz}


def write_all(folder, form):
    folder.mkdir()
    for part in ALPHABETS:
        FORMS[form](folder, part)
    if form == "npz":
        write_table(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "caches" / project)
    monkeypatch.delenv("ADATS_DATA", raising=False)
    return tmp_path / "caches" / "adats" / "omniglot"


@pytest.fixture
def learned(monkeypatch):
    """In place of the network: features that are easy to check, and a list of the calls."""
    calls = []

    def learn(background, evaluation, training, *, progress):
        calls.append((background.shape, training))
        if progress is not None:
            progress(1, 1)
        means = evaluation.mean(axis=(2, 3))
        return means[..., None] * np.arange(64), 0.875

    monkeypatch.setattr(omniglot, "learn_features", learn)
    return calls


@pytest.mark.parametrize("form", FORMS)
def test_halves_by_drawers(tmp_path, learned, form):
    data = load_omniglot(write_all(tmp_path / "data", form))
    assert data.name == "omniglot"
    assert data.classes == ("Eta/character01", "Beta/character01")  # by number, not by alphabet
    assert "3 other characters" in data.note
    assert "87.5 %" in data.note
    assert len(learned) == 1
    ink = shrink((~make_paper("images_evaluation")).astype(np.float32), 28)
    for half, drawers in ((data.train, slice(0, 10)), (data.test, slice(10, 20))):
        np.testing.assert_array_equal(half.labels, [0] * 10 + [1] * 10)
        assert half.images.shape == (20, 28, 28)
        np.testing.assert_allclose(half.images.reshape(2, 10, 28, 28), ink[:, drawers], atol=0.002)
        np.testing.assert_allclose(half.features[:, 2] / 510, half.images.mean(axis=(1, 2)), 1e-5)


def test_all_forms_share_one_cache(tmp_path, cache, learned):
    steps = []
    folders = [write_all(tmp_path / form, form) for form in FORMS]
    results = [load_omniglot(f, progress=lambda *done: steps.append(done)) for f in folders]
    assert len(learned) == len(steps) == len(list(cache.iterdir())) == 1
    for result in results[1:]:
        assert result.classes == results[0].classes
        assert result.note == results[0].note
        np.testing.assert_array_equal(result.test.images, results[0].test.images)
        np.testing.assert_array_equal(result.test.features, results[0].test.features)


def test_other_settings_or_images_are_learned_anew(tmp_path, cache, learned):
    folder = write_all(tmp_path / "data", "npz")
    for training in (Training(), Training(seed=2), Training(epochs=3), Training(seed=2)):
        load_omniglot(folder, training=training)
    assert len(learned) == 3
    for part in ALPHABETS:
        other = make_paper(part)
        other[1, 7] = True
        write_npz(folder, part, images=other)
        load_omniglot(folder)
    assert len(learned) == len(list(cache.iterdir())) == 5


def test_damage_in_the_cache_is_named(tmp_path, cache, learned):
    folder = write_all(tmp_path / "data", "npz")
    load_omniglot(folder)
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        load_omniglot(folder)
    assert len(learned) == 1


def test_a_cache_that_cannot_be_written_is_said_before_learning(tmp_path, learned, monkeypatch):
    folder = write_all(tmp_path / "data", "npz")
    monkeypatch.setattr(omniglot.os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="cannot be written to"):
        load_omniglot(folder)
    assert learned == []


def test_without_a_table_names_are_numbers(tmp_path):
    for part in ALPHABETS:
        write_npz(tmp_path, part)
    assert read_characters(tmp_path / "images_background.npz").names == ("0001", "0002", "0003")
    assert read_characters(tmp_path / "images_evaluation.npz").names == ("0965", "0966")


def test_other_files_beside_the_drawings_are_passed_over(tmp_path):
    junk = [("__MACOSX/images_evaluation/Eta/character01/._0965_01.png", b"x"), ("a.png", b"x")]
    write_zip(tmp_path, "images_evaluation", [*junk, *make_pngs("images_evaluation")])
    names = read_characters(tmp_path / "images_evaluation.zip").names
    assert names == ("Eta/character01", "Beta/character01")


def some(change):
    """The files of a part, changed at number 25."""
    files = list(make_pngs("images_evaluation"))
    files[25:26] = change(*files[25])
    return files


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "no images Alphabet/characterNN/XXXX_YY.png"),
        ([("images_evaluation/0965_01.png", b"")], "no images Alphabet"),
        (some(lambda *_: []), "Beta/character01 must have images _01 to _20, got _01.*_05, _07"),
        (some(lambda name, data: [(name, data[:60])]), "0966_06.png cannot be read"),
        (some(lambda name, _: [(name, b"text")]), "0966_06.png cannot be read"),
        (some(lambda name, _: [(name, png(np.ones((105, 28), bool)))]), r"got \(105, 28\)"),
        (some(lambda *_: [])[:20], "at least two characters, got 1"),
    ],
    ids=["empty", "flat", "missing", "cut", "text", "size", "one"],
)
def test_a_zip_with_bad_content_is_named(tmp_path, files, words):
    write_zip(tmp_path, "images_evaluation", files)
    with pytest.raises(ValueError, match=words) as error:
        read_characters(tmp_path / "images_evaluation.zip")
    assert str(tmp_path / "images_evaluation.zip") in str(error.value)


@pytest.mark.parametrize("form", ["zip", "npz"])
def test_flipped_and_lost_bytes_never_give_another_error(tmp_path, form):
    FORMS[form](tmp_path, "images_evaluation")
    path = tmp_path / f"images_evaluation.{form}"
    whole, rng, messages = path.read_bytes(), np.random.default_rng(4), []
    for _ in range(120):
        raw = bytearray(whole[: rng.integers(len(whole)) if rng.random() < 0.2 else None])
        for where in rng.integers(len(raw), size=3) if raw else ():
            raw[where] = rng.integers(256)
        path.write_bytes(raw)
        try:
            read_characters(path)
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > 60
    assert all(str(path) in message for message in messages)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": None}, "it has no array labels"),
        ({"images": None, "labels": None, "x": [1]}, "no array images and no array labels"),
        ({"images": np.ones((2, 20, 105, 105))}, "must be bool .*, got float64"),
        ({"images": np.ones((2, 20, 28, 28), bool)}, r"105\), got bool of shape \(2, 20, 28, 28\)"),
        ({"images": np.ones((2, 19, 105, 105), bool)}, r"got bool of shape \(2, 19"),
        ({"labels": np.zeros((2, 20), int)}, r"labels must have shape \(2, 20\) and be r in row r"),
        ({"labels": np.arange(2)}, r"labels must have shape \(2, 20\)"),
        ({"images": np.array([None])}, "cannot be read: Object arrays"),
    ],
)
def test_an_npz_with_bad_arrays_is_named(tmp_path, changes, words):
    write_npz(tmp_path, "images_evaluation", **changes)
    with pytest.raises(ValueError, match=words) as error:
        read_characters(tmp_path / "images_evaluation.npz")
    assert str(tmp_path / "images_evaluation.npz") in str(error.value)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\3\4", "array"])
@pytest.mark.parametrize("form", ["zip", "npz"])
def test_another_kind_of_file_is_named(tmp_path, form, content):
    path = tmp_path / f"images_evaluation.{form}"
    if content == "array":
        file = io.BytesIO()
        np.save(file, np.zeros(3))
        content = file.getvalue()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        read_characters(path)


def test_a_table_that_does_not_fit_is_named(tmp_path):
    write_npz(tmp_path, "images_background")
    table = tmp_path / "omniglot_characters.csv"
    for write in (
        lambda: write_table(tmp_path, columns="id,part,row,alphabet,character"),
        lambda: table.write_text("char_id,split,npz_row,alphabet,character\n"),
        lambda: table.write_bytes(b"\xff\xfe"),
    ):
        write()
        with pytest.raises(ValueError, match="does not name the characters") as error:
            read_characters(tmp_path / "images_background.npz")
        assert str(table) in str(error.value)


def test_without_pillow_or_torch(tmp_path, monkeypatch):
    folder = write_all(tmp_path / "data", "zip")
    ink = read_characters(folder / "images_evaluation.zip").ink
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match=r"Pillow: pip install 'adats\[data\]'"):
        read_characters(folder / "images_evaluation.zip")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"PyTorch: pip install 'adats\[vision\]'"):
        learn_features(ink, ink)


# the real files


@needs_files
@pytest.mark.parametrize("number", [1, 2])
def test_the_official_zips_are_pixel_by_pixel_the_npz(number):
    small = dict(drawings(SHARED / "official-small" / f"images_background_small{number}.zip"))
    assert len(small) == {1: 136, 2: 156}[number]
    same = 0
    for name, paper in drawings(SHARED / "images_background.npz"):
        if name in small:
            np.testing.assert_array_equal(paper, small[name])
            same += 1
    assert same == len(small)


@needs_files
def test_the_real_omniglot_is_complete(learned):
    data = load_omniglot(SHARED)
    assert learned == [((964, 20, 28, 28), Training())]
    assert len(data.classes) == len(set(data.classes)) == 659
    assert len({name.split("/")[0] for name in data.classes}) == 20
    for half in (data.train, data.test):
        assert half.images.shape == (6590, 28, 28)
        assert 0.03 < half.images.mean() < 0.12  # ink is high, and there is little of it
        assert half.images.min() == 0
        assert half.images.max() == 1
        np.testing.assert_array_equal(np.bincount(half.labels), np.full(659, 10))
