"""Task states in columns: a book like the dict, in memory and in files."""

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import adats
from adats import AdaTS, MetaTS
from adats.agents.batches import layout_of
from adats.agents.task_columns import LEAST_ROOM, NOT_A_ROW, RECENT, UNKNOWN, ColumnBook
from adats.models.core.errors import FileFormatError
from cases import alike, gaussian, latent, new, portrait

pytestmark = pytest.mark.filterwarnings("ignore:.*one by one:UserWarning")
ASSETS = Path(__file__).parents[1] / "assets" / "columns"
KINDS = ["gaussian", "named", "linear", "beta", "models", "clicks"]


def a_book(cls=AdaTS, policy="ucb", meta=None):
    agent = cls(meta or gaussian(), seed=1, policy=policy)
    state = agent.state()
    blank = state.setup.new_state(state.meta)
    return ColumnBook(layout_of(state.setup, state.meta, blank)), blank


def with_reward(state, reward=1.0, **changes):
    return state._replace(stats=state.stats.add(0, reward), digest=None, **changes)


def same_state(left, right):
    assert (left.finished, left.rounds) == (right.finished, right.rounds)
    for name in ("mu", "asked", "pending", "design"):
        a, b = getattr(left, name), getattr(right, name)
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(left.stats.flat(), right.stats.flat())


def test_what_is_put_is_given_back():
    book, blank = a_book()
    states = {
        "a": with_reward(blank, 2.0, rounds=3, pending=np.array([1.0, 0.0, 2.0])),
        7: blank,
        2**80: with_reward(blank, -1.0, rounds=1),
        "done": with_reward(blank, 5.0, finished=True, rounds=9),
        -3: with_reward(blank, 0.5),
    }
    for task, state in states.items():
        book.put(task, state)
    assert list(book) == list(states)
    assert len(book) == 5
    for task, state in states.items():
        assert task in book
        same_state(book[task], state)
        same_state(book.get(task), state)
    assert book.get("none") is None
    assert "none" not in book
    with pytest.raises(KeyError):
        book["none"]
    with pytest.raises(KeyError):
        book.delete("none")


def test_what_is_read_from_a_row_is_a_copy():
    book, blank = a_book()
    book.put("a", with_reward(blank, pending=np.ones(3)))
    assert book.array.shape[0]  # the state is in its row now, and nowhere else
    state = book["a"]
    state.stats.table[:] = 99.0
    state.pending[:] = 99.0
    same_state(book["a"], with_reward(blank, pending=np.ones(3)))


def test_the_state_last_put_is_kept_worked_out_until_a_batch_takes_the_array():
    book, blank = a_book()
    state = with_reward(blank)
    book.put("a", state)
    assert book["a"] is state
    row = int(book.rows(["a"])[0])
    book.array[row] = book.layout.pack([with_reward(blank, 5.0)])
    same_state(book["a"], with_reward(blank, 5.0))


def test_more_states_than_are_kept_worked_out_lose_nothing():
    book, blank = a_book()
    states = {task: with_reward(blank, float(task)) for task in range(2 * RECENT + 5)}
    for task, state in states.items():
        book.put(task, state)
    book.delete(1)
    for task in states.keys() - {1}:
        same_state(book[task], states[task])
    assert not np.isnan(book.array[book.row_numbers(), 0]).any()


@pytest.mark.parametrize("kind", [gaussian, latent])
def test_single_verbs_between_batches_are_those_of_a_dict(kind):
    """What a batch writes a single ask sees, and the other way round."""
    agents = [AdaTS(kind(), seed=3, columns=columns) for columns in (True, False)]
    for step in range(3):
        for agent in agents:
            for task in range(4):
                agent.tell(task=task, action=step % 3, reward=float(task % 2))
            agent.tell_many({"task": [0, 9], "action": [0, 1], "reward": [1.0, 0.0]})
        asked = [[agent.ask(task).action for task in (0, 2, 9)] for agent in agents]
        assert asked[0] == asked[1]
        many = [agent.ask_many([0, 1, 9]).action.tolist() for agent in agents]
        assert many[0] == many[1]
    for task in (0, 1, 2, 3, 9):
        np.testing.assert_array_equal(*(agent.stats(task).table for agent in agents))


def test_a_row_that_is_free_is_used_again():
    book, blank = a_book()
    for task in range(10):
        book.put(task, with_reward(blank, float(task)))
    book.delete(3)
    book.put(5, with_reward(blank, 5.0, finished=True))
    assert 3 not in book
    assert book.rows([3, 5, 6]).tolist() == [UNKNOWN, NOT_A_ROW, 6]
    assert book.rows(np.array([3, 5, 6])).tolist() == [UNKNOWN, NOT_A_ROW, 6]
    book.put(100, with_reward(blank, 100.0))
    book.put(101, with_reward(blank, 101.0))
    book.put(102, with_reward(blank, 102.0))
    assert sorted(book.rows([100, 101, 102]).tolist()) == [3, 5, 10]
    book.put(5, with_reward(blank, 6.0))  # opened again
    for task, reward in {100: 100.0, 101: 101.0, 102: 102.0, 5: 6.0, 9: 9.0}.items():
        same_state(book[task], with_reward(blank, reward))
    assert book.rows(np.arange(3)).tolist() == [0, 1, 2]
    assert list(book) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 100, 101, 102]
    book.delete(5)
    book.put(0, with_reward(blank, 0.0, finished=True))
    book.delete(0)
    assert 0 not in book
    assert book.rows(np.array([0, 1])).tolist() == [UNKNOWN, 1]


def test_room_grows_in_blocks_and_nothing_is_lost():
    book, blank = a_book()
    rows, size = set(), 4 * LEAST_ROOM
    for task in range(size):
        book.put(task, blank._replace(rounds=task))
        rows.add(len(book.array))
    assert len(rows) < 20
    assert [book[task].rounds for task in range(0, size, 97)] == list(range(0, size, 97))
    places = book.open([f"u{i}" for i in range(size)])
    assert len(set(places.tolist())) == size
    assert [book[task].rounds for task in range(0, size, 97)] == list(range(0, size, 97))


def test_a_copy_of_an_agent_goes_its_own_way():
    agent = new("gaussian", columns=True)
    agent.ask_many(range(10))
    for other in (copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))):
        other.ask_many(range(3 * LEAST_ROOM))
        assert (len(other.tasks), len(agent.tasks)) == (3 * LEAST_ROOM, 10)


def test_finished_tasks_give_memory_back():
    book, blank = a_book(meta=latent())
    for task in range(200):
        book.put(task, with_reward(blank))
    before = len(book.array)
    for task in range(200):
        book.put(task, book[task]._replace(finished=True))
    assert book.row_numbers().size == 0
    for task in range(1000, 1000 + before):
        book.put(task, blank)
    assert len(book.array) == before
    assert all(book[task].finished for task in range(200))


def test_draws_of_meta_ts_may_have_fewer_numbers_than_others():
    counts = [adats.PoissonArms([1.0, 2.0], 3.0), adats.PoissonArms(4.0, [1.0, 2.0])]
    models = [adats.MixtureMeta(w, counts) for w in ([0.3, 0.7], [[0.2, 0.9], [0.8, 0.1]])]
    pair = [
        MetaTS(adats.ModelMixture([0.5, 0.5], models), seed=0, columns=columns)
        for columns in (True, False)
    ]
    for agent in pair:
        agent.tell_many({"task": np.arange(20), "action": np.arange(20) % 2, "reward": [2] * 20})
    assert {state.mu.size for state in pair[0].state().tasks.values()} == {2, 3}
    alike(*map(portrait, pair))
    asked = [[agent.ask(task).action for task in range(25)] for agent in pair]
    assert asked[0] == asked[1]


# files


def an_agent(kind="gaussian", cls=AdaTS, columns=True, **options):
    agent = new(kind, cls, columns=columns, **options)
    rng = np.random.default_rng(4)
    names = list(agent.arms)
    table = {"task": [f"u{i}" if i % 3 else i for i in rng.integers(15, size=60)]}
    table["action"] = [names[i] for i in rng.integers(len(names), size=60)]
    agent.tell_many(table | {"reward": rng.integers(2, size=60).astype(float)})
    agent.ask_many(["u1", "u2", "u1", 99], horizon=5)
    for task in list(agent.tasks)[2:9:3]:
        agent.finish(task)
    return agent


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("policy", ["ts", "far"])
@pytest.mark.parametrize("cls", [AdaTS, MetaTS, adats.TS, adats.OracleTS])
@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_goes_on_from_its_file(kind, cls, policy, columns, tmp_path):
    agent = an_agent(kind, cls, columns, policy=policy)
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    assert again.tasks == agent.tasks
    kind_of = type(agent.state().tasks)
    assert type(again.state().tasks) is kind_of
    for task, state in agent.state().tasks.items():
        same_state(again.state().tasks[task], state)
    alike(portrait(agent), portrait(again), 1e-12)
    open_tasks = [t for t, s in agent.state().tasks.items() if not s.finished]
    asked = [a.ask_many([*open_tasks, "new"], horizon=9) for a in (agent, again)]
    assert asked[0].action.tolist() == asked[1].action.tolist()
    assert asked[0].decision_id.tolist() == asked[1].decision_id.tolist()
    for one, decisions in zip((agent, again), asked, strict=True):
        one.tell_many(decisions.columns() | {"reward": [1.0] * len(decisions)})
        with pytest.raises(ValueError, match="has its reward already"):
            one.tell_many(decisions.columns() | {"reward": [1.0] * len(decisions)})
    alike(portrait(agent), portrait(again), 1e-12)


def test_rewards_that_were_told_before_a_save_are_known_after_it(tmp_path):
    agent = new("gaussian")
    first, second = agent.ask_many([1, 2])
    agent.tell(first, reward=1.0)
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    again.tell(second, reward=1.0)
    with pytest.raises(ValueError, match="has its reward already"):
        again.tell(first, reward=1.0)


def change(path, edit):
    """The file, with its header and its arrays changed."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(bytes(arrays.pop("header")))
    edit(header, arrays)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with open(path, "wb") as out:
        np.savez(out, **arrays)


def spoil(name, where, value):
    def edit(_, arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][where] = value

    return edit


def shorten(_, arrays):
    arrays["columns"] = arrays["columns"][:-1]


DAMAGE = [
    spoil("columns", (0, 0), np.nan),
    spoil("columns", (1, 9), np.inf),  # rounds
    spoil("columns", (1, 10), np.nan),  # a draw
    shorten,
    lambda _, arrays: arrays.update(columns=arrays["columns"][:, :-1]),
    lambda _, arrays: arrays.pop("columns"),
    lambda header, _: header["columns"].pop(),
    lambda header, _: header["columns"].append("more"),
    lambda header, _: header["columns"].__setitem__(0, header["columns"][1]),
    lambda header, _: header["columns"].__setitem__(0, 1.5),
    lambda header, _: header["tasks"].__setitem__(0, "nobody"),
    lambda header, _: header.update(version=3),
    lambda header, _: header.update(columns=None),
    lambda header, _: header.update(columns=7),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_columns_are_refused(damage, tmp_path):
    path = tmp_path / "agent.npz"
    an_agent(cls=MetaTS).save(path)
    adats.load(path)
    change(path, damage)
    with pytest.raises(FileFormatError) as error:
        adats.load(path)
    assert "\n" not in str(error.value)


def test_dicts_are_written_as_older_versions_read_them(tmp_path):
    path = tmp_path / "agent.npz"
    versions = []
    for columns in (False, True):
        an_agent(columns=columns).save(path)
        change(path, lambda header, _: versions.append(header["version"]))
    assert versions == [1, 2]


@pytest.mark.parametrize("kind", ["clicks", "gaussian"])
def test_files_with_columns_are_still_read(kind):
    """Written by the version that had columns first, beside what was decided from them then."""
    expected = json.loads((ASSETS / "expected.json").read_text())[kind]
    agent = adats.load(ASSETS / f"agent-{kind}.npz")
    assert isinstance(agent.state().tasks, ColumnBook)
    assert list(agent.tasks) == expected["tasks"]
    for name, value in portrait(agent).items():
        np.testing.assert_allclose(value, expected["portrait"][name], rtol=1e-9, err_msg=name)
    open_tasks = [t for t, s in agent.state().tasks.items() if not s.finished]
    found = agent.ask_many([*open_tasks, "new"], horizon=9)
    assert found.action.tolist() == expected["actions"]
    assert found.decision_id.tolist() == expected["decisions"]
    with pytest.raises(ValueError, match="has its reward already"):
        agent.tell_many(expected["told"])


def write_assets():
    """How the assets were made."""
    ASSETS.mkdir(exist_ok=True)
    seen = {}
    for kind, policy in (("clicks", "ts"), ("gaussian", "far")):
        agent = an_agent(kind, MetaTS if kind == "gaussian" else AdaTS, policy=policy)
        found = agent.ask_many(["mary", "john"], horizon=5)
        told = {name: column.tolist() for name, column in found.columns().items()}
        told["reward"] = [1.0, 0.0]
        agent.tell_many(told)
        agent.save(ASSETS / f"agent-{kind}.npz")
        open_tasks = [t for t, s in agent.state().tasks.items() if not s.finished]
        view = {name: value.tolist() for name, value in portrait(agent).items()}
        tasks = list(agent.tasks)
        asked = agent.ask_many([*open_tasks, "new"], horizon=9)
        seen[kind] = {
            "tasks": tasks,
            "portrait": view,
            "actions": asked.action.tolist(),
            "decisions": asked.decision_id.tolist(),
            "told": told,
        }
    (ASSETS / "expected.json").write_text(json.dumps(seen))


def test_an_agent_made_of_the_state_of_another_has_tasks_of_its_own():
    meta = adats.GaussianMeta([0.0, 0.0], 1.0, task_scale=0.3, noise=1.0)
    one = adats.AdaTS(meta, seed=1, columns=True)
    one.tell(task="a", action=0, reward=1.0)
    other = adats.AdaTS.from_state(one.state())
    other.tell(task="a", action=0, reward=1.0)
    other.tell(task="b", action=1, reward=1.0)
    assert one.tasks == ("a",)
    assert one.stats("a").count.tolist() == [1.0, 0.0]
    assert other.stats("a").count.tolist() == [2.0, 0.0]
