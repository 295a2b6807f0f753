"""The description of the service in OpenAPI 3.1, at /openapi.json."""

import re
from functools import cache
from importlib.metadata import version
from typing import Any, get_args

import msgspec

from adats.service import messages
from adats.service.export import FORMATS
from adats.service.meanings import ANSWERS, BODIES, CODES, FIELDS, PARAMETERS, VALUES
from adats.service.operations import NAME, OPERATIONS, Operation
from adats.service.spec import LONGEST_NAME, Experiment

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
    "Changes": ("add_arm", "retire_arm", "forget"),
    "The service itself": ("healthz", "readyz", "show_metrics", "describe", "docs"),
}
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
        "summary": operation.about,
        "tags": [group for group, names in GROUPS.items() if operation.name in names],
        "parameters": [_parameter(name) for name in re.findall(r"{(\w+)", operation.path)],
        "responses": _responses(operation),
        "security": [] if operation.open else [{"key": []}, {}],
    }
    if operation.name == "log":
        found["parameters"].append(_parameter("format"))
    if operation.takes is not None:
        one_of = {"oneOf": [_ref(messages.Tell), _ref(messages.Tells)]}
        examples = {name: {"value": value} for name, value in BODIES[operation.name].items()}
        schema = one_of if operation.takes is messages.Telling else _ref(operation.takes)
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema, "examples": examples}},
        }
    return found


def _parameter(name: str) -> Json:
    text = {"type": "string", "minLength": 1}
    schema = {
        "name": text | {"pattern": NAME, "maxLength": 100},
        "format": {"type": "string", "enum": list(FORMATS), "default": next(iter(FORMATS))},
    }.get(name, text | {"maxLength": LONGEST_NAME})
    return {
        "name": name,
        "in": "query" if name == "format" else "path",
        "required": name != "format",
        "description": PARAMETERS[name],
        "schema": schema,
        "example": VALUES[name],
    }


def _responses(operation: Operation) -> Json:
    codes = set(operation.codes) if operation.open else {401, 403, *operation.codes}
    codes |= set() if 204 in codes else {200}
    return {str(code): _response(operation, code) for code in sorted(codes)}


def _response(operation: Operation, code: int) -> Json:
    found: Json = {"description": CODES[code].format(largest=operation.largest)}
    if code >= 400:
        types: Any = (messages.Error,)
        if operation.name == "decide" and code == 503:
            found["description"] += " If the experiment names a control action, that is here."
            types = (messages.Fallback, messages.Error)
        found["content"] = {"application/json": {"schema": _any(types)}}
    elif code != 204:
        found["content"] = _content(operation)
    if code in (429, 503):
        found["headers"] = {"Retry-After": _header("Seconds to wait.", "integer")}
    elif code == 401:
        found["headers"] = {"WWW-Authenticate": _header("Bearer.", "string")}
    links = {
        target: _link(target, parameters, body)
        for source, target, parameters, body in LINKS
        if source == operation.name and code < 300
    }
    return found | ({"links": links} if links else {})


def _content(operation: Operation) -> Json:
    gives = operation.gives if isinstance(operation.gives, tuple) else (operation.gives,)
    if isinstance(gives[0], str):
        kinds = {"application/json": {"type": "object"}, FORMATS["parquet"]: {}}
        return {kind: {"schema": kinds.get(kind, {"type": "string"})} for kind in gives}
    found: Json = {"schema": _any(gives)}
    if operation.name in ANSWERS:
        found["example"] = ANSWERS[operation.name]
    return {"application/json": found}


def _link(target: str, parameters: Json, body: Any) -> Json:
    link: Json = {"operationId": target, "parameters": parameters}
    return link if body is None else link | {"requestBody": body}


def _header(about: str, kind: str) -> Json:
    return {"description": about, "required": True, "schema": {"type": kind}}


def _any(types: tuple[Any, ...]) -> Json:
    return _ref(types[0]) if len(types) == 1 else {"anyOf": [_ref(kind) for kind in types]}


def _ref(kind: Any) -> Json:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _schemas() -> Json:
    """The schemas of all types, with the meaning of every field."""
    told_all = messages.ToldAll
    types = [Experiment, *(kind for kind in vars(messages).values() if _is_message(kind))]
    types = [kind for kind in types if kind not in (told_all, messages.Telling)]
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    # msgspec writes a list of either, but does not describe it
    results = {"type": "array", "items": _any(get_args(get_args(_hint(told_all, "results"))[0]))}
    schemas[told_all.__name__] = {
        "title": told_all.__name__,
        "type": "object",
        "properties": {"results": results, "refused": {"type": "integer"}},
        "required": ["results", "refused"],
    }
    schemas["About"]["properties"]["spec"] = _ref(Experiment)
    schemas["MetaView"]["properties"]["prior"] = {"type": "object"}
    for name, schema in schemas.items():
        for field, found in schema["properties"].items():
            schema["properties"][field] = found | {"description": FIELDS[name][field]}
    return schemas


def _is_message(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__module__ == messages.__name__


def _hint(kind: Any, field: str) -> Any:
    return next(found.type for found in msgspec.structs.fields(kind) if found.name == field)
