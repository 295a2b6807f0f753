"""The operations of the service: one table, of which routes and description are made."""

from typing import NamedTuple

from msgspec import Struct

from adats.service.export import FORMATS
from adats.service.messages import (
    AnyDecisionRequest,
    AnyRewardRequest,
    DecisionBatchResult,
    DecisionResult,
    ExperimentInfo,
    ExperimentList,
    Fallback,
    Health,
    NewArm,
    NewStatus,
    PriorBelief,
    Report,
    RewardBatchResult,
    RewardResult,
    TaskBelief,
)
from adats.service.spec import ExperimentSpec

LARGEST_BODY = 1_000_000  # bytes
LARGEST_SPEC = 8_000_000  # bytes of a body with a prior in it
EXPERIMENT_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"
EXPERIMENT = "/v1/experiments/{name}"
BODY = (413, 415, 422)  # what can be wrong with a body
QUEUED = (429, 503)  # operations that may have to wait


class Operation(NamedTuple):
    name: str  # of the handler in `app.Service`
    method: str
    path: str
    summary: str
    request: type[Struct] | None = None  # the type of the body
    response: tuple[type[Struct], ...] = ()  # the body of a success is one of these,
    media: tuple[str, ...] = ()  # or it is not a message, but of one of these media types
    codes: tuple[int, ...] = ()  # besides 200, and 401 and 403 of all that are not open
    write: bool = False  # needs a key that may write
    open: bool = False  # needs no key
    largest: int = LARGEST_BODY


OPERATIONS = (
    Operation(
        name="experiments",
        method="GET",
        path="/v1/experiments",
        summary="The names of all experiments.",
        response=(ExperimentList,),
        codes=QUEUED,
    ),
    Operation(
        name="put",
        method="PUT",
        path=EXPERIMENT,
        summary="Make an experiment. The same again changes nothing; other settings are refused.",
        request=ExperimentSpec,
        response=(ExperimentInfo,),
        codes=(201, 409, *BODY, *QUEUED),
        write=True,
        largest=LARGEST_SPEC,
    ),
    Operation(
        name="about",
        method="GET",
        path=EXPERIMENT,
        summary="The settings of an experiment.",
        response=(ExperimentInfo,),
        codes=(404, *QUEUED),
    ),
    Operation(
        name="set_status",
        method="PUT",
        path=EXPERIMENT + "/status",
        summary="Pause an experiment, archive it, or let it go on. The same again changes nothing.",
        request=NewStatus,
        response=(ExperimentInfo,),
        codes=(404, *BODY, *QUEUED),
        write=True,
    ),
    Operation(
        name="delete",
        method="DELETE",
        path=EXPERIMENT,
        summary="Delete an archived experiment: all its data go.",
        codes=(204, 404, 409, *QUEUED),
        write=True,
    ),
    Operation(
        name="decide",
        method="POST",
        path=EXPERIMENT + "/decide",
        summary="Choose an action for a task, or for each of several. The answer is in the store "
        "before it is sent, and the same decision_id gives it again.",
        request=AnyDecisionRequest,
        response=(DecisionResult, Fallback, DecisionBatchResult),
        codes=(404, 409, *BODY, *QUEUED),
        write=True,
    ),
    Operation(
        name="reward",
        method="POST",
        path=EXPERIMENT + "/reward",
        summary="Tell the reward of a decision, or of a batch of them. The same again changes "
        "nothing.",
        request=AnyRewardRequest,
        response=(RewardResult, RewardBatchResult),
        codes=(404, 409, *BODY, *QUEUED),
        write=True,
    ),
    Operation(
        name="task",
        method="GET",
        path=EXPERIMENT + "/tasks/{task:path}",
        summary="What is believed of a task, and how much of that comes from its own data.",
        response=(TaskBelief,),
        codes=(404, *QUEUED),
    ),
    Operation(
        name="meta",
        method="GET",
        path=EXPERIMENT + "/meta",
        summary="What all tasks have taught, with the prior as a file of its own.",
        response=(PriorBelief,),
        codes=(404, *QUEUED),
    ),
    Operation(
        name="report",
        method="GET",
        path=EXPERIMENT + "/report",
        summary="The lift over the holdout with a 95 % interval, and rewards that are missing.",
        response=(Report,),
        codes=(404, *QUEUED),
    ),
    Operation(
        name="log",
        method="GET",
        path=EXPERIMENT + "/log",
        summary="Decisions and their rewards in the project's log format, ready for `adats fit`.",
        media=tuple(FORMATS.values()),
        codes=(404, 422, *QUEUED),
    ),
    Operation(
        name="add_arm",
        method="POST",
        path=EXPERIMENT + "/arms",
        summary="Add an arm, with the prior of another or with features of its own. The same "
        "again changes nothing.",
        request=NewArm,
        response=(ExperimentInfo,),
        codes=(404, 409, *BODY, *QUEUED),
        write=True,
    ),
    Operation(
        name="retire_arm",
        method="DELETE",
        path=EXPERIMENT + "/arms/{arm:path}",
        summary="Never choose an arm again. What it taught stays, and late rewards still count.",
        response=(ExperimentInfo,),
        codes=(404, 409, 422, *QUEUED),
        write=True,
    ),
    Operation(
        name="forget",
        method="DELETE",
        path=EXPERIMENT + "/tasks/{task:path}",
        summary="Forget a task: its data go, and what it taught is taken out.",
        codes=(204, 404, *QUEUED),
        write=True,
    ),
    Operation(
        name="healthz",
        method="GET",
        path="/healthz",
        summary="Whether the service runs.",
        response=(Health,),
        open=True,
    ),
    Operation(
        name="readyz",
        method="GET",
        path="/readyz",
        summary="Whether it can decide.",
        response=(Health,),
        codes=(503,),
        open=True,
    ),
    Operation(
        name="show_metrics",
        method="GET",
        path="/metrics",
        summary="Figures for Prometheus.",
        media=("text/plain",),
    ),
    Operation(
        name="describe",
        method="GET",
        path="/openapi.json",
        summary="This description, for programs.",
        media=("application/json",),
        open=True,
    ),
    Operation(
        name="docs",
        method="GET",
        path="/docs",
        summary="This description, as a page.",
        media=("text/html",),
        open=True,
    ),
)
