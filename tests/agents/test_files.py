"""Saved agents go on bit for bit; priors survive JSON; damaged and foreign files are refused."""

import gc
import io
import json
import re
import zipfile

import numpy as np
import pytest

import adats
from adats import AdaTS, FileFormatError, MetaTS, OracleTS
from adats.models.core.registry import meta_from_dict
from adats.models.prior_files import read_about
from cases import ALL, CASES, CLASSES, GROWING, ask, gaussian, linear, new, play, portrait
from cases import rewards_of as draw

# Saved and loaded


def identical(left, right):
    seen = portrait(left), portrait(right)
    assert seen[0].keys() == seen[1].keys()
    for name, value in seen[0].items():
        assert value.tobytes() == seen[1][name].tobytes(), name


def go_on(agents, kind, rounds=50, tasks=(0, 2, 3, 4, 7, 8)):
    """The same questions and rewards to all agents, and the same answers from them."""
    rng = np.random.default_rng(21)
    for _ in range(rounds):
        task, seed = tasks[rng.integers(len(tasks))], rng.integers(1000)
        decisions = [ask(agent, kind, task, np.random.default_rng(seed)) for agent in agents]
        for decision in decisions[1:]:
            assert decision == decisions[0]  # task, action, decision_id
            assert decision.decision_id == decisions[0].decision_id
        reward = draw(decisions[0], kind, rng)
        for agent, decision in zip(agents, decisions, strict=True):
            agent.tell(decision, reward=reward)
    for agent in agents[1:]:
        identical(agents[0], agent)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("explore", [False, True])
def test_a_loaded_agent_goes_on_bit_for_bit(cls, kind, explore, tmp_path):
    agent, rng = new(kind, cls, explore_first=explore), np.random.default_rng(20)
    play(agent, kind, rng, rounds=30)
    for task in (1, 7):  # one is finished, the other has just begun: exploration is not over
        decision = ask(agent, kind, task, rng)
        agent.tell(decision, reward=draw(decision, kind, rng))
    agent.finish(1)
    if 3 in agent.tasks:
        agent.forget(3)
    agent.save(tmp_path / "agent.npz")
    loaded = adats.load(tmp_path / "agent.npz")
    assert type(loaded) is cls
    assert loaded.tasks == agent.tasks
    assert loaded.arms == agent.arms
    identical(agent, loaded)
    go_on([agent, loaded], kind)
    with pytest.raises(adats.FinishedTask):
        ask(loaded, kind, 1, rng)
    agent.save(tmp_path / "left.npz")
    loaded.save(tmp_path / "right.npz")
    assert (tmp_path / "left.npz").read_bytes() == (tmp_path / "right.npz").read_bytes()


@pytest.mark.parametrize("kind", GROWING)
@pytest.mark.parametrize("cls", [AdaTS, MetaTS])
def test_new_and_retired_arms_are_saved(kind, cls, tmp_path):
    agent, rng = new(kind, cls, explore_first=True), np.random.default_rng(22)
    play(agent, kind, rng, rounds=10)
    how = {"features": [0.3, 0.2, 0.1]} if kind == "linear" else {"like": agent.arms[1]}
    agent.add_arm("new" if kind == "named" else None, **how)
    agent.retire_arm(agent.arms[0])
    play(agent, kind, rng, rounds=10)
    agent.save(tmp_path / "agent.npz")
    loaded = adats.load(tmp_path / "agent.npz")
    assert loaded.arms == agent.arms
    go_on([agent, loaded], kind)
    for one in (agent, loaded):
        one.add_arm("newer" if kind == "named" else None, **how)
    go_on([agent, loaded], kind)


def columns(rows):
    """The same numbers, laid out in memory column by column."""
    return np.asfortranarray(rows)


def test_the_layout_of_arrays_in_memory_does_not_matter(tmp_path):
    rng = np.random.default_rng(23)
    alpha, other = columns(rng.uniform(1, 5, (4, 11))), rng.uniform(1, 5, 11)
    joint = adats.MixtureMeta([0.25] * 4, adats.BetaArms(alpha, other))
    agent = AdaTS(joint, seed=0)
    play(agent, "beta", rng)
    agent.save(tmp_path / "agent.npz")
    go_on([agent, adats.load(tmp_path / "agent.npz")], "beta")

    design, features = columns(rng.normal(size=(5, 3))), columns(rng.normal(size=(9, 5)))
    meta = adats.LinearMeta(np.zeros(3), 1.0, task_cov=0.5, noise=1.0, design=design)
    own = columns(rng.normal(size=(5, 3)))
    agent = AdaTS(meta, seed=0, features=features)
    for task, phi in (("a", own), ("b", None)):
        agent.tell(agent.ask(task, design=phi), reward=1.0)
    agent.save(tmp_path / "agent.npz")
    loaded = adats.load(tmp_path / "agent.npz")
    for i in range(50):
        decisions = [one.ask("ab"[i % 2]) for one in (agent, loaded)]
        assert decisions[0] == decisions[1]
        agent.tell(decisions[0], reward=float(i))
        loaded.tell(decisions[1], reward=float(i))
    identical(agent, loaded)


@pytest.mark.parametrize(
    "oracle",
    [
        adats.BestArm(),
        adats.Top(2, exactly=True),
        adats.Top(np.int64(2), exactly=np.True_),
        adats.ShortestPath([(1, "b"), ("b", 3), (1, 3)], 1, 3, floor=0.1, directed=True),
        adats.SpanningTree([("a", "b"), ("b", "c"), ("a", "c")]),
        adats.Matching([("a", "x"), ("b", "x"), ("b", "y")], perfect=True),
    ],
    ids=lambda oracle: type(oracle).__name__,
)
def test_oracles_are_saved(oracle, tmp_path):
    agent = new("gaussian", oracle=oracle)
    agent.save(tmp_path / "agent.npz")
    loaded = adats.load(tmp_path / "agent.npz")
    assert [agent.ask("a").action for _ in range(20)] == [loaded.ask("a").action for _ in range(20)]
    with pytest.raises(ValueError, match="oracle="):
        adats.load(tmp_path / "agent.npz", oracle=oracle)


def test_an_oracle_of_the_users_own_is_given_again(tmp_path):
    class Last(adats.Top):
        def __call__(self, values):
            return super().__call__(values)[-1:]

    for oracle in (lambda values: int(values.argmin()), Last(2)):
        agent = new("gaussian", oracle=oracle)
        agent.save(tmp_path / "agent.npz")
        with pytest.raises(ValueError, match="oracle="):
            adats.load(tmp_path / "agent.npz")
        loaded = adats.load(tmp_path / "agent.npz", oracle=oracle)
        go_on([agent, loaded], "semi-bandit" if isinstance(oracle, Last) else "gaussian")


def test_names_of_all_kinds_survive(tmp_path):
    agent = AdaTS(gaussian(arms=["", 7, "naïve ☃"]), seed=0)
    tasks = ["", "0", 0, -5, 2**70, "☃", "\ud800", "line\nbreak"]
    for task in tasks:
        agent.ask(task)
    agent.save(tmp_path / "agent.npz")
    loaded = adats.load(str(tmp_path / "agent.npz"))
    assert loaded.tasks == tuple(tasks)
    assert [type(task) for task in loaded.tasks] == [type(task) for task in tasks]
    assert loaded.arms == ("", 7, "naïve ☃")


def test_an_agent_without_tasks_is_saved(tmp_path):
    for cls in CLASSES:
        agent = new("gaussian", cls)
        agent.save(tmp_path / "agent.npz")
        go_on([agent, adats.load(tmp_path / "agent.npz")], "gaussian")


def test_the_file_is_one_npz_without_pickle(tmp_path):
    agent = new("contextual", MetaTS, explore_first=True)
    play(agent, "contextual", np.random.default_rng(24))
    agent.save(tmp_path / "agent")  # just the name that was given
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]
    with np.load(tmp_path / "agent", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    assert all(array.dtype.kind in "biuf" for array in arrays.values())
    header = json.loads(arrays["header"].tobytes())
    assert header["format"] == "adats-agent"
    assert header["version"] == 1


# Priors


def learned(kind):
    agent = new(kind)
    play(agent, kind, np.random.default_rng(25))
    return agent.meta


def zero_weights():
    priors = [adats.BetaArms([1.0, 2.0], 1.0), adats.BetaArms([3.0, 4.0], 1.0)]
    return [
        adats.MixtureMeta([1.0, 0.0], priors),
        adats.MixtureMeta([[1.0, 0.5], [0.0, 0.5]], priors),
        adats.ModelMixture([0.0, 1.0], [gaussian(), gaussian(noise=2.0)]),
    ]


PRIORS = [
    *(pytest.param(learned(kind), id=kind) for kind in ALL),
    *(pytest.param(ALL[kind].meta, id=f"new {kind}") for kind in ALL),
    *(pytest.param(meta, id=f"zero weight {i}") for i, meta in enumerate(zero_weights())),
    pytest.param(gaussian().widen(3), id="wide"),
    pytest.param(linear().widen(1 / 3), id="narrow"),
    pytest.param(linear(task_cov=0.0, design=np.eye(3)), id="design"),
    pytest.param(adats.default_prior(arms=["a"], rewards="binary"), id="binary"),
    pytest.param(adats.default_prior(arms="ab", rewards="number", scale=9.0), id="number"),
]


@pytest.mark.parametrize("meta", PRIORS)
def test_priors_survive_json(meta, tmp_path):
    path = tmp_path / "prior.json"
    adats.save_prior(meta, path)
    data = json.loads(path.read_text(), parse_constant=pytest.fail)  # strict: no NaN, no Infinity
    assert data["format"] == "adats-prior"
    assert data["version"] == 1
    loaded = adats.load_prior(path)
    assert type(loaded) is type(meta)
    assert getattr(loaded, "arms", None) == getattr(meta, "arms", None)
    for look in (
        lambda m: m.log_evidence(),
        lambda m: m.task_prior().mean,
        lambda m: m.task_prior().scale,
        lambda m: m.sample(np.random.default_rng(0)),
        lambda m: getattr(m, "weights", 0.0),
    ):
        assert np.array(look(loaded)).tobytes() == np.array(look(meta)).tobytes()
    assert loaded.to_dict() == meta.to_dict()
    again = tmp_path / "again.json"
    adats.save_prior(loaded, again)
    assert again.read_bytes() == path.read_bytes()


def test_a_learned_prior_starts_a_new_agent(tmp_path):
    meta = learned("gaussian")
    adats.save_prior(meta, tmp_path / "prior.json")
    agent = AdaTS(adats.load_prior(tmp_path / "prior.json"), seed=0)
    agent.ask("new")
    np.testing.assert_array_equal(agent.posterior("new").mean, meta.task_prior().mean)


def test_a_fresh_prior_holds_no_sums(tmp_path):
    path = tmp_path / "prior.json"
    for kind in CASES:
        meta = CASES[kind].meta
        adats.save_prior(meta, path)
        assert '"total": [' not in path.read_text()
        agent = new(kind)
        play(agent, kind, np.random.default_rng(27), rounds=1)
        adats.save_prior(agent.meta, path)
        assert '"total": [' in path.read_text()


def test_files_that_hold_sums_of_zeros_still_load(tmp_path):
    """As they were written before a fresh prior left them out."""
    path, meta = tmp_path / "prior.json", gaussian()
    data = {"format": "adats-prior", "version": 1, "prior": meta.to_dict()}
    data["prior"]["total"] = [[0.0] * 9, [0.0] * 9]
    path.write_text(json.dumps(data))
    assert adats.load_prior(path).to_dict() == meta.to_dict()
    assert read_about(path) == {}


def test_about_survives(tmp_path):
    path = tmp_path / "prior.json"
    about = {"model": "gaussian", "tasks": 3, "since": None, "warnings": ["naïve ☃"], "x": [0.1]}
    adats.save_prior(gaussian(), path, about=about)
    assert read_about(path) == about
    assert adats.load_prior(path).to_dict() == gaussian().to_dict()
    adats.save_prior(gaussian(), path)
    assert read_about(path) == {}


@pytest.mark.parametrize(
    "about", [{"a": float("nan")}, {"a": np.ones(2)}, {1: "a"}, ["a"], "a", {"a": {1, 2}}], ids=str
)
def test_about_that_is_no_json_leaves_the_old_file(about, tmp_path):
    path = tmp_path / "prior.json"
    adats.save_prior(gaussian(), path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="about must"):
        adats.save_prior(learned("gaussian"), path, about=about)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_damaged_about(tmp_path):
    path = tmp_path / "prior.json"
    for about in (None, [], "text", 1):
        data = {"format": "adats-prior", "version": 1, "prior": prior_with("gaussian")}
        path.write_text(json.dumps(data | {"about": about}))
        refused(path, read_about, "about")
    path.write_text("{}")
    refused(path, read_about)


# Files that are not ours, or not whole


def refused(path, read=adats.load, message=""):
    with pytest.raises(FileFormatError, match=re.escape(str(path)) + ".*" + message) as caught:
        read(path)
    assert isinstance(caught.value, ValueError)


@pytest.fixture
def saved(tmp_path):
    agent = new("gaussian", MetaTS, oracle=adats.Top(2), explore_first=True)
    play(agent, "semi-bandit", np.random.default_rng(26), rounds=6)
    agent.save(tmp_path / "agent.npz")
    return tmp_path / "agent.npz"


def test_truncated_files(saved):
    content = saved.read_bytes()
    for length in [*range(0, 40, 5), *range(40, len(content), 97), len(content) - 1]:
        saved.write_bytes(content[:length])
        refused(saved)
    gc.collect()  # a file left open is found now


@pytest.mark.parametrize("mask", [0x01, 0x08, 0x20, 0xFF])
def test_flipped_bytes_are_found_or_harmless(saved, mask):
    content = saved.read_bytes()
    harmless = 0
    ends = np.random.default_rng(mask).choice(len(content), 250, replace=False)
    directory = content.index(b"PK\x01\x02")  # where flags and methods are
    for i in [*ends.tolist(), *range(directory, directory + 46)]:
        damaged = bytearray(content)
        damaged[i] ^= mask
        saved.write_bytes(damaged)
        try:
            loaded = adats.load(saved)
        except FileFormatError:
            continue
        harmless += 1
        loaded.save(saved)
        assert saved.read_bytes() == content
    assert harmless < 150
    gc.collect()


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def foreign_zip():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "hello")
    return file.getvalue()


def header(**values):
    return np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)


FOREIGN = {
    "empty": b"",
    "text": b"not an agent\n",
    "json": b"{}",
    "pickle": b"\x80\x04N.",
    "zip": foreign_zip(),
    "npz": npz(a=np.ones(3)),
    "other header": npz(header=np.ones(3)),
    "no json": npz(header=np.frombuffer(b"{", dtype=np.uint8)),
    "not a mapping": npz(header=np.frombuffer(b"[1]", dtype=np.uint8)),
    "no format": npz(header=header(version=1)),
    "prior": npz(header=header(format="adats-prior", version=1)),
    "no version": npz(header=header(format="adats-agent")),
    "old": npz(header=header(format="adats-agent", version=0)),
    "newer": npz(header=header(format="adats-agent", version=3)),
    "text version": npz(header=header(format="adats-agent", version="1")),
    "nothing else": npz(header=header(format="adats-agent", version=1)),
    "nested": npz(header=np.frombuffer(b"[" * 100_000, dtype=np.uint8)),
    "objects": npz(header=np.array([{}], dtype=object)),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files(content, tmp_path):
    path = tmp_path / "some.npz"
    path.write_bytes(content)
    refused(path)


def test_an_array_is_not_an_agent(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    refused(tmp_path / "a.npy")


def test_a_newer_version_says_so(tmp_path):
    path = tmp_path / "new.npz"
    path.write_bytes(FOREIGN["newer"])
    refused(path, message="version 3; this adats reads 1 to 2")


def test_missing_files():
    for read in (adats.load, adats.load_prior):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            read("nowhere")


NAN, INF = float("nan"), float("inf")
GONE = "gone"  # takes an entry out
HEADER_CHANGES = [
    *({name: GONE} for name in ("agent", "meta", "rng", "retired", "tasks", "decisions", "names")),
    *({name: None} for name in ("agent", "meta", "rng", "retired", "tasks", "decisions")),
    {"agent": "Agent"},
    {"agent": ["AdaTS"]},
    {"agent": "OracleTS"},
    {"meta": {}},
    {"meta": {"model": "gaussian"}},
    {"rng": {}},
    {"rng": {"bit_generator": "MT19937"}},
    {"oracle": {"kind": "Bottom"}},
    {"oracle": {"kind": "Top"}},
    {"oracle": {"kind": "Top", "size": 0}},
    {"oracle": {"kind": "Top", "size": 2, "more": 1}},
    {"oracle": "Top"},
    {"names": ["a", "b"]},
    {"names": ["a", "a", "a"]},
    {"retired": [7]},
    {"retired": [0, 1, 2]},
    {"retired": ["a"]},
    {"tasks": []},
    {"tasks": [1.5] * 4},
    {"tasks": [[0]] * 4},
    {"tasks": [0] * 4},
    {"tasks": [None, True, 1.5, 2]},
    {"decisions": "many"},
    {"decisions": -1},
    {"decisions": 1.5},
]
TASKS = 4
ARRAY_CHANGES = [
    *({name: GONE} for name in ("finished", "stats", "stats_shapes", "mu", "mu_shapes", "asked")),
    {"stats": np.full(9 * TASKS, NAN)},
    {"stats": np.zeros(9 * TASKS - 1)},
    {"stats": np.zeros(9 * TASKS + 1)},
    {"stats": np.zeros(12 * TASKS), "stats_shapes": np.array([[12, 0]] * TASKS)},  # of four arms
    {"stats": np.zeros(0), "stats_shapes": np.full((TASKS, 2), -1)},
    {"finished": np.zeros(TASKS - 1, bool)},
    {"finished": np.zeros(())},
    {"mu": np.zeros(2 * TASKS), "mu_shapes": np.array([[2, 0]] * TASKS)},
    {"mu": np.zeros(0), "mu_shapes": np.full((TASKS, 2), -1)},
    {"asked": np.zeros(2 * TASKS), "asked_shapes": np.array([[2, 0]] * TASKS)},
    {"stats_shapes": np.array([["a", "b"]] * TASKS)},
    {"features": np.eye(3)},
]


def rewritten(path, head=None, arrays=None):
    """The file with some entries changed."""
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    fields = json.loads(content["header"].tobytes()) | (head or {})
    content |= {"header": header(**without_gone(fields)), **(arrays or {})}
    path.write_bytes(npz(**without_gone(content)))


def without_gone(entries):
    return {name: value for name, value in entries.items() if value is not GONE}


@pytest.fixture
def four_tasks(tmp_path):
    agent = new("gaussian", MetaTS, oracle=adats.Top(2), explore_first=True)
    for task in range(TASKS):
        agent.ask(task)
    agent.save(tmp_path / "agent.npz")
    return tmp_path / "agent.npz"


def test_a_rewritten_file_is_loaded(four_tasks):
    rewritten(four_tasks)
    assert adats.load(four_tasks).tasks == (0, 1, 2, 3)


@pytest.mark.parametrize("change", HEADER_CHANGES, ids=str)
def test_wrong_fields_in_the_header(four_tasks, change):
    rewritten(four_tasks, head=change)
    refused(four_tasks)


@pytest.mark.parametrize(
    "change", ARRAY_CHANGES, ids=[f"{i}-{next(iter(c))}" for i, c in enumerate(ARRAY_CHANGES)]
)
def test_wrong_arrays(four_tasks, change):
    rewritten(four_tasks, arrays=change)
    refused(four_tasks)


def test_the_mu_of_an_oracle_must_fit(tmp_path):
    path = tmp_path / "agent.npz"
    for mu in (GONE, np.zeros(2), np.full(3, NAN)):
        new("gaussian", OracleTS).save(path)
        rewritten(path, arrays={"mu_star": mu})
        refused(path)


def prior_with(kind, **changes):
    return without_gone(CASES[kind].meta.to_dict() | changes)


BAD_PRIORS = [
    *({"prior": prior_with("gaussian", **{name: GONE})}
      for name in ("model", "mean", "scale", "task_scale", "noise", "arms", "total")),
    *({"prior": prior_with("linear", **{name: GONE})}
      for name in ("mean", "cov", "task_cov", "noise", "design", "total")),
    *({"prior": prior_with("beta", **{name: GONE})}
      for name in ("family", "priors", "log_weights", "separate", "arms", "total")),
    *({"prior": prior_with("models", **{name: GONE})} for name in ("log_weights", "models")),
    *({"prior": prior_with("gaussian", mean=mean)}
      for mean in ([NAN, 0, 0], [INF, 0, 0], "abc", None, [], [[0]], ["0", "0", "0"], {}, 10**400)),
    *({"prior": prior_with("gaussian", scale=scale)} for scale in (-1.0, NAN, None, [1.0, 1.0])),
    *({"prior": prior_with("gaussian", noise=noise)} for noise in (0.0, -1.0, NAN, "1", None)),
    *({"prior": prior_with("gaussian", arms=arms)}
      for arms in (["a"], ["a", "a", "b"], 3, [1.5] * 3)),
    *({"prior": prior_with("gaussian", total=total)}
      for total in ([], False, 0, [[0.0], [0.0]], [[NAN] * 9, [0.0] * 9], [[0.0] * 9],
                    [[0.0] * 9] * 3, [["a"] * 9, [0.0] * 9])),
    *({"prior": prior_with("linear", cov=cov)}
      for cov in (-1.0, NAN, [[1.0]], [[1, 2, 0], [0, 1, 0], [0, 0, 1]], "cov")),
    {"prior": prior_with("linear", design=[[1.0]])},
    *({"prior": prior_with("beta", log_weights=logs)}
      for logs in ([[0.0], [0.0]], [[NAN], [0.0]], [[None], [None]], [[1000.0], [0.0]], [0.0],
                   "logs", None, 0.0, [["a"], [0.0]], [[INF], [0.0]], [])),
    {"prior": prior_with("beta", family="Top")},
    {"prior": prior_with("beta", family=["BetaArms"])},
    {"prior": prior_with("beta", priors={"alpha": [[1.0]], "beta": [[1.0]]})},
    {"prior": prior_with("beta", priors={"alpha": [[-1.0]] * 2, "beta": [[1.0]] * 2})},
    {"prior": prior_with("beta", priors={"shape": [[1.0]] * 2, "rate": [[1.0]] * 2})},
    {"prior": prior_with("beta", priors=[1.0])},
    {"prior": prior_with("beta", separate=True)},
    {"prior": prior_with("beta", separate="no")},
    {"prior": prior_with("models", models=[])},
    {"prior": prior_with("models", models=[{}] * 3)},
    {"prior": prior_with("models", log_weights=[0.0, None, 0.0])},
    {"prior": prior_with("models", log_weights=[1000.0, None, None])},
    {"prior": {"model": "other"}},
    {"prior": {}},
    {"prior": []},
    {"prior": None},
    {"prior": "gaussian"},
    {"format": "adats-agent"},
    {"format": None},
    {"version": 2},
    {"version": "1"},
    {"version": None},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD_PRIORS, ids=[str(i) for i in range(len(BAD_PRIORS))])
def test_bad_priors(change, tmp_path):
    path = tmp_path / "prior.json"
    good = {"format": "adats-prior", "version": 1, "prior": prior_with("gaussian")}
    path.write_text(json.dumps(good))
    adats.load_prior(path)
    path.write_text(json.dumps(good | change))
    refused(path, adats.load_prior)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"prior", b"\xff\xfe", b"[]", b"null", b"1", b'"adats-prior"', b"[" * 100_000,
     npz(a=np.ones(1))],
    ids=["empty", "cut", "text", "bytes", "list", "null", "number", "string", "nested", "npz"],
)  # fmt: skip
def test_files_that_are_no_priors(content, tmp_path):
    path = tmp_path / "prior.json"
    path.write_bytes(content)
    refused(path, adats.load_prior)


def test_truncated_priors(tmp_path):
    path = tmp_path / "prior.json"
    adats.save_prior(learned("gaussian"), path)
    content = path.read_bytes()
    for length in range(0, len(content.rstrip()), 37):
        path.write_bytes(content[:length])
        refused(path, adats.load_prior)


def test_a_model_of_the_users_own_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="of class dict: of an agent give"):
        adats.save_prior({}, tmp_path / "prior.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="unknown model 'x'"):
        meta_from_dict({"model": "x"})


# Saving is whole or not at all


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=repr)
def test_a_save_that_fails_leaves_the_old_file(saved, monkeypatch, error):
    content = saved.read_bytes()
    agent = adats.load(saved)
    agent.ask("new")

    def broken(file, **_):
        file.write(b"half of it")
        raise error

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(type(error)):
        agent.save(saved)
    assert saved.read_bytes() == content
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    monkeypatch.undo()
    agent.save(saved)
    assert adats.load(saved).tasks == agent.tasks


def test_a_prior_that_fails_to_be_saved_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "prior.json"
    adats.save_prior(gaussian(), path)
    content = path.read_bytes()

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        adats.save_prior(learned("gaussian"), path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_saving_to_no_folder_fails(tmp_path):
    with pytest.raises(FileNotFoundError):
        new("gaussian").save(tmp_path / "no" / "agent.npz")
    assert list(tmp_path.iterdir()) == []
