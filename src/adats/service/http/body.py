"""The body of a request: bytes from the client, then a message."""

import json
import math
import re
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec
from starlette.types import Receive

from adats.service.errors import CutOff, Invalid, NotJson, TooLarge

T = TypeVar("T")
Json = dict[str, "Json"] | list["Json"] | str | float | bool | None

LONGEST_TEXT = 300  # characters of what was sent, in an error
_WHERE = re.compile(r"(.*?)(?: - at `\$\.?([^`]*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`", re.DOTALL)


class BodyReader(Generic[T]):
    """Reads bodies of one type, and of some size at most."""

    def __init__(self, kind: type[T], largest: int) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._largest = largest

    async def read(self, headers: dict[bytes, bytes], receive: Receive) -> T:
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != b"application/json":  # which a page of another site cannot send unasked
            raise NotJson("send JSON, with Content-Type: application/json")
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise CutOff("the request was cut off")
            part = message.get("body", b"")
            size += len(part)
            if size > self._largest:
                raise TooLarge(f"the body has more than {self._largest:,} bytes")
            parts.append(part)
            if not message.get("more_body"):
                return self._decode(b"".join(parts))

    def _decode(self, body: bytes) -> T:
        """The body as its type, or `Invalid` with the field."""
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise _explained(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            found = _not_finite(body)
            if found is not None:
                raise Invalid(found, "numbers must be finite") from None
            raise Invalid(None, f"the body is not JSON: {error}") from None


def _explained(error: str) -> Invalid:
    """What is wrong, and in which field, out of "… - at `$.rewards[1].reward`"."""
    found = _WHERE.fullmatch(error)
    what, where = (error, "") if found is None else found.groups(default="")
    named = _FIELD.fullmatch(what)
    field = ".".join(part for part in (where, named and named[1]) if part)
    return Invalid(_short(field) or None, _short(what))


def _short(text: str) -> str:
    """Names in a body may be as long as it is."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"


def _not_finite(body: bytes) -> str | None:
    """Where NaN or an infinity is, in what is JSON but for that."""
    try:
        found = _search(json.loads(body)).removeprefix(".")
    except (ValueError, RecursionError):
        return None
    return _short(found.encode("utf-8", "replace").decode()) or None


def _search(value: Json) -> str:
    """The path to the first such number, such as `.rewards[1].reward`; empty if there is none."""
    parts: Iterable[tuple[str, Json]] = ()
    if isinstance(value, dict):
        parts = ((f".{key}", part) for key, part in value.items())
    elif isinstance(value, list):
        parts = ((f"[{i}]", part) for i, part in enumerate(value))
    for name, part in parts:
        if isinstance(part, float) and not math.isfinite(part):
            return name
        if found := _search(part):
            return name + found
    return ""
