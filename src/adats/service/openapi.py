"""The description of the service: OpenAPI 3.1 at /openapi.json, and as a page at /docs."""

from typing import Any


def description() -> dict[str, Any]:
    return {}


def page() -> str:
    return ""
