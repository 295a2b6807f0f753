"""The command line: what it prints, writes and refuses."""

import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from pyarrow import parquet

import adats
from adats.cli import common
from command import call

SMALL = ["--tasks", "3", "--rounds", "10", "--runs", "4"]


@pytest.fixture
def priors(tmp_path):
    path = tmp_path / "priors.json"
    candidates = [{"alpha": [2, 8], "beta": [8, 2]}, {"alpha": [8, 2], "beta": [2, 8]}]
    path.write_text(json.dumps({"weights": [0.5, 0.5], "priors": candidates}))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["gaussian", "--arms", "3", "--meta-scale", "1", "--explore-first"],
        ["linear", "--dim", "3", "--arms", "6", "--redraw", "round"],
        ["semibandit", "--arms", "6", "--size", "2"],
        ["routing", "--network", "sndlib/abilene"],
        ["gaussian", "--mu", "0.1,0.5", "--agents", "ada-ts+,ada-ts-"],
        ["clicks", "--arms", "3", "--base", "0.2", "--level-scale", "0.5"],
        ["clicks", "--rewards", "count", "--base", "2", "--arm-scale", "0.1", "--task-scale", "1"],
        ["clicks", "--arms", "2", "--mu=-2,-1.5", "--agents", "default-ts,ts,ada-ucb"],
        ["moving", "--mu-jumps", "1", "--theta-jumps", "4,7", "--mu-step", "0.1"],
        ["moving", "--half-life", "0", "--prior-half-life", "2", "--agents", "ada-life,ada-ts"],
    ],
)
def test_simulate_prints_the_figures_as_json(monkeypatch, capsys, words):
    assert call(monkeypatch, "simulate", *words, *SMALL, "--json", "-", "--seed", "3") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["problem"]["name"] == words[0]
    assert (data["tasks"], data["rounds"], data["runs"], data["seed"]) == (3, 10, 4, 3)
    assert data["decisions"] == 3 * 10 * 4 * len(data["agents"])
    for row in data["agents"].values():
        assert len(row["per_task"]) == 3
        assert sum(row["per_task"]) == pytest.approx(row["regret"])
        assert row["se"] > 0
        assert row["ns_per_decision"] > 0


def test_simulate_writes_a_folder_and_a_table(monkeypatch, capsys, tmp_path):
    out = tmp_path / "new" / "folder"
    words = ["simulate", "gaussian", *SMALL, "--out", out, "--json", tmp_path / "a.json"]
    assert call(monkeypatch, *words) == 0
    assert "ada-ts" in capsys.readouterr().out
    table = pq.read_table(out / "records.parquet")
    assert table.column_names == ["run", "task", "agent", "regret"]
    assert table.num_rows == 4 * 4 * 3
    summary = json.loads((out / "summary.json").read_text())
    assert summary == json.loads((tmp_path / "a.json").read_text())
    total = sum(r["regret"] for r in table.to_pylist() if r["agent"] == "ada-ts") / 4
    assert summary["agents"]["ada-ts"]["regret"] == pytest.approx(total)


def test_one_seed_gives_one_answer(monkeypatch, capsys):
    answers = []
    for workers in ("1", "2"):
        words = ["simulate", "linear", *SMALL, "--workers", workers, "--json", "-"]
        assert call(monkeypatch, *words) == 0
        answers.append(json.loads(capsys.readouterr().out)["agents"]["ada-ts"]["per_task"])
    assert answers[0] == answers[1]


def test_clicks_are_played_by_the_default_and_its_rivals(monkeypatch, capsys):
    answers = []
    for words in ([], ["--rewards", "binary", "--arms", "5", "--base", "0.02"]):
        assert call(monkeypatch, "simulate", "clicks", *words, *SMALL, "--json", "-") == 0
        answers.append(json.loads(capsys.readouterr().out))
    agents = ["flat-ts", "pooled-ts", "ada-ts", "default-ts", "default-far"]
    assert [*answers[0]["agents"]] == agents
    assert answers[0]["problem"] == answers[1]["problem"]
    for agent in agents:
        assert answers[0]["agents"][agent]["regret"] == answers[1]["agents"][agent]["regret"]


def test_clicks_may_have_features(monkeypatch, capsys):
    words = ["simulate", "clicks", "--features", "3", *SMALL, "--json", "-"]
    words += ["--agents", "default-ts,linear-ts", "--redraw", "round", "--mu=-2,1,0"]
    assert call(monkeypatch, *words) == 0
    answer = json.loads(capsys.readouterr().out)
    settings = {"name": "clicks", "features": 3, "redraw": "round", "mu": [-2.0, 1.0, 0.0]}
    assert settings.items() <= answer["problem"].items()
    assert [*answer["agents"]] == ["default-ts", "linear-ts"]


def test_bernoulli_reads_candidates_and_prior_files(monkeypatch, capsys, priors, tmp_path):
    saved = tmp_path / "saved.json"
    low, high = adats.BetaArms([2, 8], [8, 2]), adats.BetaArms([8, 2], [2, 8])
    adats.save_prior(adats.MixtureMeta([0.5, 0.5], [low, high]), saved)
    answers = []
    for path in (priors, saved):
        words = ["simulate", "bernoulli", "--priors", path, *SMALL, "--json", "-"]
        assert call(monkeypatch, *words) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0]["problem"] == answers[1]["problem"]
    assert answers[0]["agents"]["ts"]["per_task"] == answers[1]["agents"]["ts"]["per_task"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulate", "gaussian", "--agents", "ucb"], "unknown agent 'ucb'; known are oracle-ts"),
        (["simulate", "gaussian", "--arms", "0"], "arms must be a whole number of at least 1"),
        (["simulate", "gaussian", "--noise", "0"], "noise must be positive, got 0.0"),
        (["simulate", "gaussian", "--meta-scale", "nan"], "meta_scale must be finite"),
        (["simulate", "gaussian", "--runs", "0"], "runs must be a whole number of at least 1"),
        (["simulate", "gaussian", "--seed", "-1"], "seed must be a whole number"),
        (["simulate", "gaussian", "--engine", "slurm"], "known are local, ray"),
        (["simulate", "gaussian", "--mu", "1"], "mu must have shape (2,), got (1,)"),
        (["simulate", "gaussian", "--mu", "a,b"], "--mu must be numbers"),
        (["simulate", "moving", "--mu-jumps", "1.5"], "--mu-jumps must be whole numbers"),
        (["simulate", "moving", "--theta-jumps", "0"], "theta_jumps must be a whole number of at"),
        (["simulate", "moving", "--half-life", "-1"], "half_life must be more than 0"),
        (["simulate", "moving", "--explore-first"], "the filter has no forced exploration"),
        (["simulate", "gaussian", "--agents", "filter-ts"], "unknown agent 'filter-ts'"),
        (["simulate", "clicks", "--redraw", "round"], "--redraw is for arms with --features"),
        (["simulate", "clicks", "--agents", "linear-ts"], "a linear model needs features"),
        (["simulate", "linear", "--dim", "0"], "dim must be a whole number of at least 1"),
        (["simulate", "linear", "--redraw", "day"], "redraw must be 'run' or 'round'"),
        (["simulate", "semibandit", "--size", "21"], "size 21 is more than the 20 arms"),
        (["simulate", "routing", "--network", "narnia"], "unknown network 'narnia'; known are"),
        (["simulate", "clicks", "--base", "1"], "base must be below 1.0, got 1.0"),
        (["simulate", "clicks", "--rewards", "number"], "rewards must be 'binary' or 'count'"),
        (["simulate", "clicks", "--level-scale", "-1"], "level_scale must not be negative"),
        (["simulate", "clicks", "--mu", "1"], "mu must have 5 numbers, got (1,)"),
        (["simulate", "clicks", "--agents", "ada-grid"], "but not clicks"),
        (["simulate", "gaussian", "--agents", "pooled-ts"], "is for the problem clicks, not for"),
        (["simulate", "bernoulli", "--priors", "nowhere.json"], "nowhere.json: No such file"),
        (["simulate", "gaussian", "--meta-scale", "1,x"], "--meta-scale must be numbers"),
        (["simulate", "gaussian", "--meta-scale", "1,2,3"], "meta_scale must be a number or have"),
        (["simulate", "linear", "--task-cov", "1,0;1"], "--task-cov must have as many rows"),
        (["bound", "linear", "--task-scale", "1,2,3"], "--task-scale must be one number, or 2"),
        (["reproduce", "everything"], "synthetic"),
        (["bound", "linear", "--eta", "-1"], "eta"),
        (["bound", "semibandit", "--size", "30"], "size"),
        (["bound", "linear", "--json", "no/such/folder/a.json"], "--json"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, *words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("adats: ")
    assert message in printed.err
    assert printed.err.strip().count("\n") == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"weights": [1.0]}', '{"weights": [0.7], "priors": [{"alpha": [1]}]}',
     '{"weights": [0.7], "priors": [{"alpha": [1], "beta": [1]}]}', '{"format": "other"}'],
)  # fmt: skip
def test_unreadable_priors(monkeypatch, capsys, tmp_path, text):
    path = tmp_path / "priors.json"
    path.write_text(text)
    assert call(monkeypatch, "simulate", "bernoulli", "--priors", path) == 2
    assert capsys.readouterr().err.startswith("adats: ")


@pytest.mark.parametrize("words", [["simulate", "gaussian"], ["reproduce", "synthetic"], ["demo"]])
def test_an_out_that_is_a_file_is_left_alone(monkeypatch, capsys, tmp_path, words):
    path = tmp_path / "precious"
    path.write_text("precious")
    assert call(monkeypatch, *words, "--out", path) == 2
    assert "is a file" in capsys.readouterr().err
    assert path.read_text() == "precious"


def test_ctrl_c_stops_and_writes_nothing(monkeypatch, capsys, tmp_path):
    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("adats.cli.simulate.simulate", interrupted)
    assert call(monkeypatch, "simulate", "gaussian", "--out", tmp_path / "out") == 130
    assert "nothing was written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["linear", "semibandit"])
def test_bounds_side_by_side(monkeypatch, capsys, kind):
    assert call(monkeypatch, "bound", kind, "--tasks", "5", "--json", "-") == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data) == ["paper", "safe"]
    for column in data.values():
        assert column["total"] == pytest.approx(
            sum(column.get(term, 0) for term in ("learning", "acting", "exploration", "shared"))
        )
    assert call(monkeypatch, "bound", kind) == 0
    assert "safe constants" in capsys.readouterr().out


def test_info(monkeypatch, capsys):
    assert call(monkeypatch, "info") == 0
    assert adats.__version__ in capsys.readouterr().out


def test_without_the_extra_the_command_says_what_to_install():
    code = (
        "import sys; sys.modules['typer'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'typer' else real(name, *a)\n"
        "from adats.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == "adats: the command line is an extra: pip install 'adats[cli]'"


def test_reproduce_knows_its_experiments(monkeypatch, capsys, tmp_path):
    assert call(monkeypatch, "reproduce", "nothing", "--out", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert all(name in said for name in ("nothing", "synthetic", "policies", "digits", "omniglot"))
    for name in ("synthetic", "digits"):
        words = ["reproduce", name, "--data", tmp_path, "--out", tmp_path / "out"]
        assert call(monkeypatch, *words) == 2
        assert "--data is for mnist and omniglot" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_quick_look(monkeypatch, capsys, tmp_path):
    words = ["reproduce", "clicks", "--quick", "--runs", "2", "--workers", "1"]
    assert call(monkeypatch, *words, "--out", tmp_path / "out") == 0
    assert "report.md" in "".join(capsys.readouterr().out.split())
    assert "a quick look" in (tmp_path / "out" / "report.md").read_text()


def test_where_there_is_no_terminal_progress_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(common, "EVERY", 0.0)
    with common.stage_bar("working") as show:
        show("half of it", 1, 2)
    assert capsys.readouterr().err == "1 of 2: half of it\n"
    monkeypatch.setattr(common, "EVERY", 60.0)
    with common.stage_bar("working") as show:
        show("half of it", 1, 2)
    assert capsys.readouterr().err == ""


def test_reproduce_without_the_files_says_where_to_put_them(monkeypatch, capsys, tmp_path):
    words = ["reproduce", "mnist", "--data", tmp_path, "--out", tmp_path / "out"]
    assert call(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert "train-images-idx3-ubyte" in said
    assert not (tmp_path / "out").exists()


def test_the_version(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.split() == ["adats", adats.__version__]


def test_spreads_of_each_arm_and_covariances(monkeypatch, capsys):
    sizes = ["--tasks", "2", "--rounds", "5", "--runs", "2", "--json", "-"]
    words = ["--meta-scale", "0.5,1", "--task-cov", "1,0.5;0.5,1"]
    for name in ("gaussian", "linear"):
        assert call(monkeypatch, "simulate", name, *words, *sizes) == 0
        problem = json.loads(capsys.readouterr().out)["problem"]
        assert problem["meta_scale"] == [0.5, 1.0]
        assert problem["task_cov"] == [[1.0, 0.5], [0.5, 1.0]]
    words = ["--arms", "2", "--size", "1", "--task-scale", "0.1,0"]
    assert call(monkeypatch, "simulate", "semibandit", *words, *sizes) == 0
    assert json.loads(capsys.readouterr().out)["problem"]["task_scale"] == [0.1, 0.0]
    assert call(monkeypatch, "bound", "semibandit", *words, "--json", "-") == 0
    some = json.loads(capsys.readouterr().out)["safe"]["acting"]
    words[-1] = "0.1"
    assert call(monkeypatch, "bound", "semibandit", *words, "--json", "-") == 0
    assert some < json.loads(capsys.readouterr().out)["safe"]["acting"]


def test_summaries_say_what_they_were_made_with(monkeypatch, tmp_path):
    words = ["simulate", "gaussian", "--tasks", "2", "--rounds", "5", "--runs", "2", "--seed", "4"]
    assert call(monkeypatch, *words, "--out", tmp_path) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["command"].startswith("adats simulate gaussian --tasks 2")
    assert (summary["seed"], set(summary["versions"])) == (4, {"adats", "python", "numpy", "numba"})
    written = parquet.read_metadata(tmp_path / "records.parquet").metadata[b"adats"]
    made = json.loads(written)
    assert made == {key: summary[key] for key in made}
