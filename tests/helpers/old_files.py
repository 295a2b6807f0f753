"""Files that version 0.1.0 wrote, of every kind, and what must be found in them.

`python tests/helpers/old_files.py` writes them, once, with the version whose files are kept; with
`half-lives`, the store whose rewards age.
"""

import gzip
import json
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import adats
import cases
import schedules
import traces
from adats.service.messages import DecisionRequest
from served import Clock, Local

ASSETS = traces.ASSETS
AGENTS = {f"{kind}, AdaTS": (kind, adats.AdaTS, "ts") for kind in cases.CASES} | {
    f"{kind}, {cls.__name__}": (kind, cls, "far")
    for kind in ("named", "linear", "beta arms", "models")
    for cls in (adats.MetaTS, adats.TS, adats.OracleTS)
}
HALF_LIVES = ASSETS.parent / "stores" / "half-lives.db.gz"
STORES = {"all": False, "forgotten": True}  # whether tasks are forgotten in it


def asset(kind, name, ending):
    """The path of a file."""
    return ASSETS / f"{kind}-{name.replace(', ', '-').replace(' ', '-')}.{ending}"


def agent_of(kind, cls, policy):
    agent = cases.new(kind, cls, seed=9, policy=policy)
    rng = np.random.default_rng(8)
    waiting = [ask(agent, kind, i % 3, rng) for i in range(12)]
    for decision in waiting[:-2]:
        agent.tell(decision, reward=cases.rewards_of(decision, kind, rng))
    agent.finish(2)
    return agent


def ask(agent, kind, task, rng):
    case = cases.CASES[kind]
    features, design = case.features(task, rng), case.design(task)
    return agent.ask(task, features=features, design=design, horizon=5)


def seen_of_agent(agent, kind):
    """Its next decisions, and what it believes."""
    rng = np.random.default_rng(1)
    numbers = traces._beliefs(agent)
    actions = [traces._plain(ask(agent, kind, task, rng).action) for task in (0, 1, 3, 0)]
    return {"actions": actions, "numbers": numbers}


def seen_of_prior(meta):
    prior = meta.task_prior()
    return [float(x) for x in (meta.log_evidence(), *prior.mean, *prior.scale)]


def tables():
    """A log of each kind, as statistics."""
    from adats.learning.logs import statistics

    rng = np.random.default_rng(6)
    task, arm = rng.integers(4, size=40), rng.integers(3, size=40)
    rewards = {
        "gaussian": rng.normal(size=40),
        "binary": rng.integers(2, size=40),
        "count": rng.poisson(2.0, size=40),
    }
    import pyarrow as pa

    for model, reward in rewards.items():
        frame = pa.table({"task": task, "arm": arm, "reward": reward})
        yield model, statistics(frame, model=model).table
    frame = pa.table(
        {"task": task, "reward": rng.normal(size=40), "x0": arm * 1.0, "x1": rng.normal(size=40)}
    )
    yield "linear", statistics(frame, model="linear", features=["x0", "x1"]).table


def seen_of_table(table):
    return [float(x) for i in range(len(table)) for x in table.stats(i).flat()]


def write_store(path, *, forget, known=schedules.CASES):
    """Experiments of every kind, and every kind of event."""
    rng = np.random.default_rng(21 + forget)
    experiments = {}
    for i, case in enumerate(known.values()):
        experiments[f"e{i}"] = (case, schedules.random_rules(rng, case))
    play = schedules.Play(path, experiments, compare=False)
    schedules.random_schedule(play, rng, 45 * len(experiments), forget=forget)
    play.settle()
    play.close()
    return play


def seen_of_store(path, now):
    """What the service says of every experiment, and its next decision."""
    local, found = Local(path, Clock(now)), {}
    with local.store.view() as view:
        names = [row.name for row in view.experiments()]
    for name in names:
        meta = local.meta(name)
        spec = local.about(name).spec
        features = None
        if spec["model"] == "linear" and "features" not in spec:
            about = local.about(name)
            rows = 3 if about.arms is None else len(about.arms) + len(about.retired)
            features = np.random.default_rng(2).normal(size=(rows, 2)).tolist()
        chosen = local.decide(name, DecisionRequest("ann", "next", features, None, 4))
        parts = [x for part in meta.parts for x in (part.mean, part.scale)]
        task = [x for part in local.task(name, "ann").parts for x in (part.mean, part.prior_mean)]
        found[name] = {
            "action": chosen.action,
            "held out": chosen.holdout,
            "version": chosen.state_version,
            "numbers": [meta.log_evidence, *parts, *task, *np.ravel(chosen.propensity).tolist()],
        }
    local.close()
    return found


def write_all():
    seen = {"agents": {}, "priors": {}, "tables": {}, "stores": {}}
    for name, what in AGENTS.items():
        agent_of(*what).save(asset("agent", name, "npz"))
        seen["agents"][name] = seen_of_agent(agent_of(*what), what[0])
    priors = {kind: agent_of(kind, adats.AdaTS, "ts").meta for kind in cases.CASES}
    for rewards, (make, options) in traces.DEFAULTS.items():
        priors[f"default {rewards}"] = make(arms=["a", "b"], **options)
    for name, meta in priors.items():
        adats.save_prior(meta, asset("prior", name, "json"), about={"kind": name})
        seen["priors"][name] = seen_of_prior(meta)
    for model, table in tables():
        from adats.learning.tables import save_statistics

        save_statistics(asset("statistics", model, "parquet"), table)
        seen["tables"][model] = seen_of_table(table)
    for name, forget in STORES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "store.db")
            play = write_store(path, forget=forget)
            data = path.read_bytes()
            asset("store", name, "db.gz").write_bytes(gzip.compress(data, mtime=0))
            seen["stores"][name] = {"now": play.now, "seen": seen_of_store(path, play.now)}
    (ASSETS / "files.json").write_text(json.dumps(seen, indent=None, separators=(",", ":")) + "\n")


def write_half_lives():
    """Of models without approximations."""
    known = {name: case for name, case in schedules.CASES.items() if case.lives and case.exact}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.db")
        play = write_store(path, forget=True, known=known)
        HALF_LIVES.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        seen = {"now": play.now, "seen": seen_of_store(path, play.now)}
    HALF_LIVES.with_name("half-lives.json").write_text(json.dumps(seen) + "\n")


def read():
    return json.loads((ASSETS / "files.json").read_text())


def store(name, folder):
    """A copy of a store, to be opened."""
    path = Path(folder, f"{name}.db")
    with gzip.open(asset("store", name, "db.gz")) as source, open(path, "wb") as target:
        shutil.copyfileobj(source, target)
    return path


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        write_half_lives() if "half-lives" in sys.argv else write_all()
