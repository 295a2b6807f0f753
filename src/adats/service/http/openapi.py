"""The description of the service in OpenAPI 3.1, at /openapi.json."""

import re
from functools import cache
from importlib.metadata import version
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct

from adats.service import messages
from adats.service.export import FORMATS
from adats.service.field_types import LONGEST_NAME
from adats.service.http.examples import ANSWERS, PARAMETER_VALUES, REQUESTS
from adats.service.http.operations import EXPERIMENT_NAME, OPERATIONS, Operation
from adats.service.spec import ExperimentSpec

Json = dict[str, Any]

TITLE = "adats, the decision service"
INTRO = (
    "Two verbs: decide chooses an action for a task, reward tells how it went. The service learns "
    "from all tasks what a new one is probably like. What it has acknowledged is on the disk."
)
GROUPS = {
    "Experiments": ("put", "about", "experiments"),
    "The two verbs": ("decide", "reward"),
    "What is known": ("task", "meta", "report", "log"),
    "Changes": ("add_arm", "retire_arm", "forget", "set_status", "delete"),
    "The service itself": ("healthz", "readyz", "show_metrics", "describe", "docs"),
}
ABOUT_PARAMETERS = {
    "name": "The experiment: letters, digits, dots, dashes and underscores.",
    "task": "The task, as it was asked for. Slashes may stand as they are.",
    "arm": "The arm.",
    "format": "Of the file: NDJSON, a record a line, or Parquet.",
}
ABOUT_CODES = {
    200: "Done.",
    201: "Made.",
    204: "Done; the answer is empty.",
    401: "A key is missing or not valid.",
    403: "This key may only read; or, without keys, the service is addressed by another name.",
    404: "There is no such experiment, task, decision or arm, or it is another tenant's.",
    409: "This contradicts what is there.",
    413: "The body has more than {largest:,} bytes.",
    415: "The body is not sent as application/json.",
    422: "A field is missing, unknown or wrong: `field` names it.",
    429: "Too many requests wait; nothing was done. Try again.",
    503: "The store cannot be used now; nothing was done. Try again.",
}
ONE_OR_SEVERAL: dict[type[Struct], tuple[type[Struct], type[Struct]]] = {
    messages.AnyDecisionRequest: (messages.DecisionRequest, messages.DecisionBatchRequest),
    messages.AnyRewardRequest: (messages.RewardRequest, messages.RewardBatchRequest),
}
BATCH_RESULTS = (messages.DecisionBatchResult, messages.RewardBatchResult)
# where one can go next: from an operation to another, with its parameters besides name, its body
SAME, FIRST = "$request.path.name", "$response.body#/experiments/0"
DECISION, TASK = "$response.body#/decision_id", "$response.body#/task"
LINKS: tuple[tuple[str, str, Json, Any], ...] = (
    ("experiments", "put", {}, None),
    ("experiments", "about", {"name": FIRST}, None),
    ("experiments", "decide", {"name": FIRST}, None),
    ("put", "about", {"name": SAME}, None),
    ("put", "decide", {"name": SAME}, None),
    ("put", "add_arm", {"name": SAME}, None),
    ("put", "report", {"name": SAME}, None),
    ("set_status", "delete", {"name": SAME}, None),
    ("decide", "reward", {"name": SAME}, {"decision_id": DECISION, "reward": 1}),
    ("decide", "decide", {"name": SAME}, {"decision_id": DECISION, "task": TASK}),
    ("decide", "task", {"name": SAME, "task": TASK}, None),
    ("decide", "report", {"name": SAME}, None),
    ("decide", "forget", {"name": SAME, "task": TASK}, None),
    ("reward", "decide", {"name": SAME}, None),
    ("reward", "meta", {"name": SAME}, None),
    ("reward", "log", {"name": SAME}, None),
    ("reward", "report", {"name": SAME}, None),
    ("add_arm", "decide", {"name": SAME}, None),
    ("add_arm", "retire_arm", {"name": SAME, "arm": "$request.body#/arm"}, None),
    ("forget", "decide", {"name": SAME}, {"task": "$request.path.task"}),
)


@cache
def description() -> Json:
    """The service in OpenAPI 3.1."""
    paths: Json = {}
    for operation in OPERATIONS:
        path = paths.setdefault(_plain(operation.path), {})
        path[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": version("adats"), "description": INTRO},
        "tags": [{"name": group} for group in GROUPS],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of `adats keys add`. A store without keys is open to "
                    "this machine only, and needs none.",
                }
            },
        },
    }


def _plain(path: str) -> str:
    """A path of OpenAPI, without Starlette's kinds of parameters."""
    return path.replace(":path}", "}")


def _operation(operation: Operation) -> Json:
    found: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [group for group, names in GROUPS.items() if operation.name in names],
        "parameters": [_parameter(name) for name in re.findall(r"{(\w+)", operation.path)],
        "responses": _responses(operation),
        "security": [] if operation.open else [{"key": []}, {}],
    }
    if operation.name == "log":
        found["parameters"].append(_parameter("format"))
    if operation.request is not None:
        examples = {name: {"value": value} for name, value in REQUESTS[operation.name].items()}
        found["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {"schema": _body(operation.request), "examples": examples}
            },
        }
    return found


def _body(request: type[Struct]) -> Json:
    either = ONE_OR_SEVERAL.get(request)
    return _ref(request) if either is None else {"oneOf": [_ref(kind) for kind in either]}


def _parameter(name: str) -> Json:
    text = {"type": "string", "minLength": 1}
    schema = {
        "name": text | {"pattern": EXPERIMENT_NAME, "maxLength": 100},
        "format": {"type": "string", "enum": list(FORMATS), "default": next(iter(FORMATS))},
    }.get(name, text | {"maxLength": LONGEST_NAME})
    return {
        "name": name,
        "in": "query" if name == "format" else "path",
        "required": name != "format",
        "description": ABOUT_PARAMETERS[name],
        "schema": schema,
        "example": PARAMETER_VALUES[name],
    }


def _responses(operation: Operation) -> Json:
    codes = set(operation.codes) if operation.open else {401, 403, *operation.codes}
    codes |= set() if 204 in codes else {200}
    return {str(code): _response(operation, code) for code in sorted(codes)}


def _response(operation: Operation, code: int) -> Json:
    found: Json = {"description": ABOUT_CODES[code].format(largest=operation.largest)}
    if code >= 400:
        types: tuple[type[Struct], ...] = (messages.Error,)
        if operation.name == "decide" and code == 503:
            found["description"] += " If the experiment names a control action, that is here."
            types = (messages.Fallback, messages.DecisionBatchResult, messages.Error)
        found["content"] = {"application/json": {"schema": _any(types)}}
    elif code != 204:
        found["content"] = _content(operation)
    found["headers"] = {"X-Request-Id": _header("That of the request, or a new one.", "string")}
    if code in (429, 503):
        found["headers"]["Retry-After"] = _header("Seconds to wait.", "integer")
    elif code == 401:
        found["headers"]["WWW-Authenticate"] = _header("Bearer.", "string")
    links = {
        target: _link(target, parameters, body)
        for source, target, parameters, body in LINKS
        if source == operation.name and code < 300
    }
    return found | ({"links": links} if links else {})


def _content(operation: Operation) -> Json:
    if operation.media:
        kinds = {"application/json": {"type": "object"}, FORMATS["parquet"]: {}}
        return {kind: {"schema": kinds.get(kind, {"type": "string"})} for kind in operation.media}
    found: Json = {"schema": _any(operation.response)}
    if operation.name in ANSWERS:
        found["example"] = ANSWERS[operation.name]
    return {"application/json": found}


def _link(target: str, parameters: Json, body: Any) -> Json:
    link: Json = {"operationId": target, "parameters": parameters}
    return link if body is None else link | {"requestBody": body}


def _header(about: str, kind: str) -> Json:
    return {"description": about, "required": True, "schema": {"type": kind}}


def _any(types: tuple[type[Struct], ...]) -> Json:
    return _ref(types[0]) if len(types) == 1 else {"anyOf": [_ref(kind) for kind in types]}


def _ref(kind: type[Struct]) -> Json:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _schemas() -> Json:
    """The schemas of all types. Their fields say what they mean."""
    left_out = (*BATCH_RESULTS, *ONE_OR_SEVERAL)
    types = [ExperimentSpec, *(kind for kind in vars(messages).values() if _is_message(kind))]
    _, schemas = msgspec.json.schema_components(
        [kind for kind in types if kind not in left_out],
        ref_template="#/components/schemas/{name}",
    )
    schemas |= {batch.__name__: _batch_schema(batch) for batch in BATCH_RESULTS}
    settings = schemas[messages.ExperimentInfo.__name__]["properties"]
    settings["spec"] = _ref(ExperimentSpec) | {"description": settings["spec"]["description"]}
    return schemas


def _batch_schema(batch: type[Struct]) -> Json:
    """msgspec writes a list of either of two types, but does not describe it."""
    either, about_results = get_args(get_type_hints(batch, include_extras=True)["results"])
    _, about_refused = get_args(get_type_hints(batch, include_extras=True)["refused"])
    items = _any(get_args(get_args(either)[0]))
    return {
        "title": batch.__name__,
        "type": "object",
        "properties": {
            "results": {
                "type": "array",
                "items": items,
                "description": about_results.description,
            },
            "refused": {"type": "integer", "description": about_refused.description},
        },
        "required": ["results", "refused"],
    }


def _is_message(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__module__ == messages.__name__
