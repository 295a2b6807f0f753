"""Types of the fields that come in over HTTP, with their limits."""

import re
from typing import Annotated, Literal

from msgspec import Meta

from adats.service.errors import Invalid

MOST_ARMS, MOST_DIM, LONGEST_NAME, MOST_AT_ONCE = 500, 128, 200, 1000
MOST_METRICS, MOST_ATTRIBUTES = 8, 16
LONGEST_WINDOW = 10 * 365 * 86_400.0  # seconds
SHORTEST_LIFE, LONGEST_LIFE = 1.0, LONGEST_WINDOW  # seconds
LARGEST, LEAST = 1e20, 1e-20  # figures: products of a few of them, and of their inverses, exist

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # line breaks, NUL and the like

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
NewName = Annotated[Name, Meta(extra_json_schema={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"})]
ArmName = Annotated[int, Meta(ge=0, le=2**53)] | Name
Names = Annotated[list[Name], Meta(min_length=1, max_length=MOST_ARMS)]
ArmNames = Annotated[list[ArmName], Meta(max_length=MOST_ARMS)]
Figure = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Figures = Annotated[list[Figure], Meta(max_length=MOST_ARMS)]
Numbers = Figure | list[Figure | list[Figure]]
Row = Annotated[list[Figure], Meta(max_length=MOST_DIM)]
Rows = Annotated[list[Row], Meta(max_length=MOST_ARMS)]
Share = Annotated[float, Meta(ge=0, le=1)]
HalfLife = Annotated[float, Meta(ge=SHORTEST_LIFE, le=LONGEST_LIFE)]


NUMBER = "number"
Declared = dict[Name, Literal["number"] | Annotated[list[Name], Meta(min_length=2)]]
Attributes = dict[Name, Figure | Name]
MetricValues = Annotated[dict[Name, Figure], Meta(max_length=MOST_METRICS)]


def check_new_name(field: str, name: str | int) -> None:
    """Raise `Invalid` for control characters; stores of before may have names with them."""
    found = CONTROL.search(name) if isinstance(name, str) else None
    if found is not None:
        raise Invalid(field, f"a name has no control characters, such as {found[0]!r} in {name!r}")


def doc(text: str) -> Meta:
    """The meaning of a field, as /openapi.json and /docs have it."""
    return Meta(description=text)
