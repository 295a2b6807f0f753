"""The operations of the service: one table, of which routes and description are made."""

from typing import Any, NamedTuple

from adats.service.export import FORMATS
from adats.service.messages import (
    About,
    Ask,
    Decided,
    Health,
    Listed,
    MetaView,
    NewArm,
    Report,
    TaskView,
    Telling,
    Told,
    ToldAll,
)
from adats.service.spec import Experiment

LARGEST = 1_000_000  # bytes of a body
LARGEST_SPEC = 8_000_000  # of one with a prior in it
NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"  # of an experiment
NAMED = "/v1/experiments/{name}"
BODY = (413, 415, 422)  # what can be wrong with a body
QUEUED = (429, 503)  # operations that wait for the store


class Operation(NamedTuple):
    name: str  # of the handler
    method: str
    path: str
    about: str
    takes: Any = None
    gives: Any = None  # a type, several of them, or media types
    codes: tuple[int, ...] = ()  # besides 200, and 401 and 403 of all that are not open
    write: bool = False  # needs a key that may write
    open: bool = False  # needs no key
    largest: int = LARGEST


OPERATIONS = (
    Operation(
        "experiments",
        "GET",
        "/v1/experiments",
        "The names of all experiments.",
        None,
        Listed,
        (503,),
    ),
    Operation(
        "put",
        "PUT",
        NAMED,
        "Make an experiment. The same again changes nothing; other settings are refused.",
        Experiment,
        About,
        (201, 409, *BODY, *QUEUED),
        write=True,
        largest=LARGEST_SPEC,
    ),
    Operation("about", "GET", NAMED, "The settings of an experiment.", None, About, (404, *QUEUED)),
    Operation(
        "decide",
        "POST",
        NAMED + "/decide",
        "Choose an action for a task. The answer is in the store before it is sent, and the same "
        "decision_id gives it again.",
        Ask,
        Decided,
        (404, 409, *BODY, *QUEUED),
        write=True,
    ),
    Operation(
        "reward",
        "POST",
        NAMED + "/reward",
        "Tell the reward of a decision, or of a batch of them. The same again changes nothing.",
        Telling,
        (Told, ToldAll),
        (404, 409, *BODY, *QUEUED),
        write=True,
    ),
    Operation(
        "task",
        "GET",
        NAMED + "/tasks/{task:path}",
        "What is believed of a task, and how much of that comes from its own data.",
        None,
        TaskView,
        (404, *QUEUED),
    ),
    Operation(
        "meta",
        "GET",
        NAMED + "/meta",
        "What all tasks have taught, with the prior as a file of its own.",
        None,
        MetaView,
        (404, *QUEUED),
    ),
    Operation(
        "report",
        "GET",
        NAMED + "/report",
        "The lift over the holdout with a 95 % interval, and rewards that are missing.",
        None,
        Report,
        (404, 503),
    ),
    Operation(
        "log",
        "GET",
        NAMED + "/log",
        "Decisions and their rewards in the project's log format, ready for `adats fit`.",
        None,
        tuple(FORMATS.values()),
        (404, 422, 503),
    ),
    Operation(
        "add_arm",
        "POST",
        NAMED + "/arms",
        "Add an arm, with the prior of another or with features of its own. The same again "
        "changes nothing.",
        NewArm,
        About,
        (404, *BODY, *QUEUED),
        write=True,
    ),
    Operation(
        "retire_arm",
        "DELETE",
        NAMED + "/arms/{arm:path}",
        "Never choose an arm again. What it taught stays, and late rewards still count.",
        None,
        About,
        (404, 422, *QUEUED),
        write=True,
    ),
    Operation(
        "forget",
        "DELETE",
        NAMED + "/tasks/{task:path}",
        "Forget a task: its data go, and what it taught is taken out.",
        None,
        None,
        (204, 404, *QUEUED),
        write=True,
    ),
    Operation("healthz", "GET", "/healthz", "Whether the service runs.", None, Health, open=True),
    Operation(
        "readyz", "GET", "/readyz", "Whether it can decide.", None, Health, (503,), open=True
    ),
    Operation("show_metrics", "GET", "/metrics", "Figures for Prometheus.", None, "text/plain"),
    Operation(
        "describe",
        "GET",
        "/openapi.json",
        "This description, for programs.",
        None,
        "application/json",
        open=True,
    ),
    Operation("docs", "GET", "/docs", "This description, as a page.", None, "text/html", open=True),
)
