"""The description of the service for people: a page at /docs, without scripts."""

import json
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from adats.service.http.openapi import GROUPS, INTRO, TITLE, Json, description

STYLE = "\n" + files("adats.service.http").joinpath("docs_page.css").read_text()
BASE = "http://127.0.0.1:8000"
ACCESS = (
    "A store without keys is served on its own machine only, and needs none. Once it has keys "
    "(`adats keys add TENANT`), every request to an experiment carries one: "
    "`Authorization: Bearer adats_…`. A key opens the experiments of its tenant, to read or to "
    "write too."
)
TROUBLE = (
    "Bodies are JSON. An error says what is wrong, and in which field. After 429 and 503 nothing "
    "was done and `Retry-After` says when to try again. It is always safe to try again with the "
    "same `decision_id`, or with the same reward."
)


@cache
def page() -> str:
    """One file, all that it needs in it."""
    found = {}
    for path, operations in description()["paths"].items():
        for method, operation in operations.items():
            found[operation["operationId"]] = (method.upper(), path, operation)
    groups = {group: [found[name] for name in names] for group, names in GROUPS.items()}
    index = "".join(f"<div><b>{escape(g)}</b>{_links(ops)}</div>" for g, ops in groups.items())
    parts = "".join(
        f"<h2>{escape(group)}</h2>" + "".join(_section(*operation) for operation in operations)
        for group, operations in groups.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{TITLE}</title><style>{STYLE}</style></head><body>"
        f"<h1>{TITLE}</h1><p>{_prose(INTRO)}</p><p>{_prose(ACCESS)}</p><p>{_prose(TROUBLE)}</p>"
        f"<nav>{index}</nav><main>{parts}</main></body></html>\n"
    )


def _links(operations: list[tuple[str, str, Json]]) -> str:
    return "".join(
        f'<a href="#{operation["operationId"]}">{_heading(method, path)}</a>'
        for method, path, operation in operations
    )


def _heading(method: str, path: str) -> str:
    return f'<span class="method {method}">{method}</span> {escape(path)}'


def _section(method: str, path: str, operation: Json) -> str:
    responses = operation["responses"]
    body = operation.get("requestBody", {})
    asked = body.get("content", {}).get("application/json", {})
    content = next(iter(responses.values())).get("content", {})
    answer = content.get("application/json", {})
    other = " or ".join(kind for kind in content if kind != "application/json")
    named = operation["operationId"] == "put"  # where the name of an experiment is explained
    parameters = {
        p["name"]: _row(p["name"], p, p["schema"])
        for p in operation["parameters"]
        if named or p["name"] != "name"
    }
    examples = list(asked.get("examples", {}).items())[1:]
    parts = [
        f"<h3>{_heading(method, path)}</h3><p>{_prose(operation['summary'])}</p>",
        f"<pre>{escape(curl(method, path, operation))}</pre>",
        _pre(answer["example"]) if "example" in answer else "",
        *(_folded(f"Example: {name}", _pre(example["value"])) for name, example in examples),
        _table("In the address", parameters),
        *_tables("in the body", asked, needed=True),
        *_answers(operation, answer),
        f"<h4>The answer</h4><p>{escape(other)}</p>" if other else "",
    ]
    codes = "".join(
        f"<tr><td><code>{code}</code></td><td>{_prose(response['description'])}</td></tr>"
        for code, response in responses.items()
    )
    parts.append(_folded(f"Codes: {', '.join(responses)}", f'<table class="codes">{codes}</table>'))
    return f'<section id="{operation["operationId"]}">{"".join(parts)}</section>'


def _answers(operation: Json, answer: Json) -> list[str]:
    if answer.get("schema") == _schema("ExperimentInfo") and operation["operationId"] != "put":
        return ['<h4>In the answer</h4><p>As in that of <a href="#put">PUT</a>.</p>']
    found = _tables("in the answer", answer)
    if operation["operationId"] == "decide":
        title = "in the answer 503, if the experiment names a control action"
        found += _tables(title, {"schema": _schema("Fallback")})
    return found


def _schema(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _prose(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _pre(value: Any) -> str:
    return f"<pre>{escape(_json(value))}</pre>"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _tables(title: str, content: Json, *, needed: bool = False) -> list[str]:
    """A table for each kind of object that can be there."""
    rows = [_rows(part, needed=needed) for part in _objects(content.get("schema", {}))]
    titles = [title.capitalize(), *[f"Or {title}"] * len(rows)]
    return [_table(*pair) for pair in zip(titles, rows, strict=False)]


def _table(title: str, rows: Json) -> str:
    content = f'<table class="fields">{"".join(rows.values())}</table>'
    return f"<h4>{escape(title)}</h4>{content}" if rows else ""


def _rows(part: Json, before: str = "", *, needed: bool = False) -> Json:
    """A row for each field, then those of its parts: `prior.given.mean`, `parts[].name`."""
    rows: Json = {}
    inner: Json = {}
    for field, schema in part["properties"].items():
        must = needed and field in part.get("required", ())
        rows[before + field] = _row(before + field, schema, schema, needed=must, answer=not needed)
        if field != "spec":  # which is described where it is asked for
            dot = "[]." if "items" in schema else "."
            for found in _objects(schema):
                inner = inner | _rows(found, before + field + dot, needed=needed) | inner
    return rows | inner


def _objects(schema: Json) -> list[Json]:
    """The objects that a schema stands for."""
    if "$ref" in schema:
        return [description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]]
    parts = [schema["items"]] if "items" in schema else _choices(schema)
    return [found for part in parts for found in _objects(part)]


def _choices(schema: Json) -> list[Json]:
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


def _row(
    name: str, about: Json, schema: Json, *, needed: bool = False, answer: bool = False
) -> str:
    kind = ", ".join([_kind(schema, null=answer), *_limits(schema, usual=not answer)])
    must = ' <span class="must">needed</span>' if needed else ""
    return (
        f"<tr><td><code>{escape(name)}</code>{must}</td><td>{escape(kind)}</td>"
        f"<td>{_prose(about['description'])}</td></tr>"
    )


def _kind(schema: Json, *, null: bool = False) -> str:
    """The type in words; null only where it says something."""
    kinds = [part for part in _choices(schema) if part != {"type": "null"}]
    types = [part.get("type") for part in kinds]
    depths = _depths(schema)
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if depths:
        found = [("number", "list", "table")[depth] for depth in depths]
        found[-1] += " of numbers" if depths[0] else ""
    elif "items" in schema:
        inner = _kind(schema["items"])
        found = [f"list of {inner}" + "s" * (inner in ("arm", "object"))]
    elif types[:2] == ["integer", "string"]:
        found = ["arm", *map(_kind, kinds[2:])]
    elif kinds:
        found = list(dict.fromkeys(_kind(part) for part in kinds))
    else:
        found = ["text" if schema.get("type") == "string" else schema.get("type", "object")]
    if null and len(kinds) < len(_choices(schema)):
        found.append("null")
    return ", ".join(found[:-1]) + " or " * (len(found) > 1) + found[-1]


def _depths(schema: Json) -> list[int]:
    """How deep numbers are nested in lists, if there are only numbers."""
    if schema.get("type") == "number":
        return [0]
    if "items" in schema:
        return [1 + depth for depth in _depths(schema["items"])]
    parts = [_depths(part) for part in _choices(schema) if part != {"type": "null"}]
    return sorted(set().union(*parts)) if all(parts) else []


def _limits(schema: Json, *, usual: bool) -> list[str]:
    """Bounds, lengths and the usual value in words."""
    found = []
    for part in (schema, *_choices(schema)):
        low, high = part.get("minimum", part.get("exclusiveMinimum")), part.get("maximum")
        if high is not None and high <= 1e12:
            found.append(f"{low:,g} to {high:,.0f}")
        if "maxLength" in part and "enum" not in part and "arm" not in _kind(schema):
            found.append(f"1 to {part['maxLength']} characters")
        if "maxItems" in part:
            found.append(f"up to {part['maxItems']:,}")
    value = schema.get("default")
    if usual and value not in (None, {}):
        text = value if isinstance(value, str) else json.dumps(value).removesuffix(".0")
        found.append(f"{text} unless given")
    return list(dict.fromkeys(found))


def curl(method: str, path: str, operation: Json) -> str:
    """A command that works, after those before it."""
    for parameter in operation["parameters"]:
        path = path.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
    words = ["curl"] + ([] if method == "GET" else ["-X", method]) + [BASE + path]
    if "requestBody" in operation:
        examples = operation["requestBody"]["content"]["application/json"]["examples"]
        body = _json(next(iter(examples.values()))["value"])
        words.append(f"\\\n  -H 'Content-Type: application/json' -d '{body}'")
    return " ".join(words)


def _json(value: Any, before: str = "") -> str:
    """On one line if it is short, otherwise a line for each part."""
    text = json.dumps(value)
    if len(text) < 60 or not isinstance(value, dict | list):
        return text
    inner = before + "  "
    if isinstance(value, list):
        return (
            f"[\n{inner}"
            + f",\n{inner}".join(_json(part, inner) for part in value)
            + f"\n{before}]"
        )
    parts = [f"{json.dumps(key)}: {_json(part, inner)}" for key, part in value.items()]
    return f"{{\n{inner}" + f",\n{inner}".join(parts) + f"\n{before}}}"
