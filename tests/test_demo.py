"""The demo tells a true story."""

import numpy as np
import pytest

from adats.demo import load_segments
from adats.demo import story as demo
from adats.simulation.kernels import registry
from command import call


def test_the_counts_are_those_of_the_experiment():
    segments = load_segments()
    assert segments.customers.shape == (54, 3)
    assert segments.customers.sum() == 64_000
    assert segments.visits.sum() == 9_394
    assert (segments.visits <= segments.customers).all()


def test_rates_are_as_they_were_counted():
    segments = load_segments()
    rates = segments.rates()
    assert ((rates > 0) & (rates < 1)).all()
    overall = (rates * segments.customers).sum() / segments.customers.sum()
    assert abs(overall - 9_394 / 64_000) < 1e-12


@pytest.fixture(scope="module")
def story():
    return demo.tell_story(repetitions=12, seed=5)


@pytest.mark.statistical
@pytest.mark.parametrize("player", ["learned prior", "learned prior, far-sighted"])
def test_the_learned_prior_loses_fewer_visits(story, player):
    gain = story.totals("from scratch") - story.totals(player)
    assert gain.mean() > 5 * gain.std(ddof=1) / np.sqrt(len(gain))
    late = story.best_share(player, slice(-demo.LAST, None))
    assert late > story.best_share(player, slice(0, demo.FIRST))
    assert late > story.best_share("from scratch", slice(-demo.LAST, None))


def test_the_story_is_the_same_every_time(story):
    again = demo.tell_story(repetitions=2, seed=5)
    for player, lost in again.lost.items():
        np.testing.assert_array_equal(lost, story.lost[player][:2])


def test_the_sentence_has_the_numbers_of_all_four(story):
    for player in demo.PLAYERS:
        assert f"{story.totals(player).mean():.0f}" in story.sentence()


def test_the_picture(story, tmp_path):
    path = demo.draw(story, tmp_path / "out")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert (path.parent / "demo.svg").read_text().startswith("<?xml")


def test_without_numba_there_are_few_repetitions_and_it_says_so(monkeypatch, tmp_path, capsys):
    """The stories themselves are told by a stand-in: two of them take most of a minute."""
    asked = []
    told = demo.tell_story(repetitions=2, seed=5)

    def tell(*, repetitions, seed, progress):  # noqa: ARG001
        asked.append(repetitions)
        progress(repetitions * len(demo.PLAYERS))
        return told

    monkeypatch.setattr(registry, "has_numba", lambda: False)
    monkeypatch.setattr(demo, "tell_story", tell)
    assert call(monkeypatch, "demo", "--out", tmp_path) == 0
    assert asked == [2]
    assert "2 repetitions in place of 200" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "demo.png").exists()
