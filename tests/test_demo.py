"""The demo tells a true story."""

import numpy as np
import pytest

from adats import demo


def test_the_counts_are_those_of_the_experiment():
    segments = demo.load_segments()
    assert segments.customers.shape == (54, 3)
    assert segments.customers.sum() == 64_000
    assert segments.visits.sum() == 9_394
    assert (segments.visits <= segments.customers).all()


def test_rates_are_shrunk_towards_the_rate_of_their_email():
    segments = demo.load_segments()
    raw, rates = segments.visits / segments.customers, segments.rates()
    small = segments.customers < 40
    centre = segments.visits.sum(axis=0) / segments.customers.sum(axis=0)
    assert (np.abs(rates - raw)[small].mean()) > np.abs(rates - raw)[~small].mean()
    assert rates.std() < raw.std()
    np.testing.assert_allclose(rates.mean(axis=0), centre, atol=0.04)


@pytest.fixture(scope="module")
def story():
    return demo.tell_story(repetitions=12, seed=5)


@pytest.mark.statistical
def test_the_learned_prior_loses_fewer_visits(story):
    gain = story.flat.sum(axis=(1, 2)) - story.learned.sum(axis=(1, 2))
    assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(len(gain))
    late = story.best_share("learned", slice(-demo.LAST, None))
    assert late > story.best_share("learned", slice(0, demo.FIRST))
    assert late > story.best_share("flat", slice(-demo.LAST, None))


def test_the_story_is_the_same_every_time(story):
    again = demo.tell_story(repetitions=2, seed=5)
    np.testing.assert_array_equal(again.learned, story.learned[:2])
    np.testing.assert_array_equal(again.flat, story.flat[:2])


def test_the_sentence_has_the_numbers(story):
    flat, learned = story.lost("flat")[0], story.lost("learned")[0]
    assert f"lost {flat:.0f} visits" in story.sentence()
    assert f"lost {learned:.0f}, {1 - learned / flat:.0%} fewer" in story.sentence()


def test_the_compiled_loop_tells_the_same_story(story, monkeypatch):
    monkeypatch.setattr(demo, "has_numba", lambda: False)
    plain = demo.tell_story(repetitions=1, seed=5)
    np.testing.assert_allclose(plain.learned[0], story.learned[0], atol=1e-12)


def test_the_picture(story, tmp_path):
    path = demo.draw(story, tmp_path / "out")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert (path.parent / "demo.svg").read_text().startswith("<?xml")
