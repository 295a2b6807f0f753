"""Types of the fields that come in over HTTP, with their limits."""

from typing import Annotated

from msgspec import Meta

MOST_ARMS, MOST_DIM, LONGEST_NAME, MOST_REWARDS = 500, 128, 200, 1000
LONGEST_WINDOW = 10 * 365 * 86_400.0  # seconds
LARGEST, LEAST = 1e20, 1e-20  # figures: products of a few of them, and of their inverses, exist

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
ArmName = Annotated[int, Meta(ge=0, le=2**53)] | Name
Names = Annotated[list[Name], Meta(min_length=1, max_length=MOST_ARMS)]
ArmNames = Annotated[list[ArmName], Meta(max_length=MOST_ARMS)]
Figure = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Figures = Annotated[list[Figure], Meta(max_length=MOST_ARMS)]
Numbers = Figure | list[Figure | list[Figure]]
Row = Annotated[list[Figure], Meta(max_length=MOST_DIM)]
Rows = Annotated[list[Row], Meta(max_length=MOST_ARMS)]
Share = Annotated[float, Meta(ge=0, le=1)]


def doc(text: str) -> Meta:
    """The meaning of a field, as /openapi.json and /docs have it."""
    return Meta(description=text)
