"""What is known of a task before its first reward, as a design: attributes that are declared."""

from collections.abc import Mapping

import numpy as np

from adats.models.core.types import FloatArray
from adats.service.errors import Invalid
from adats.service.field_types import NUMBER, Attributes, Declared


def column_count(declared: Declared) -> int:
    """Of [1, z], where z are the attributes of a task as numbers."""
    return 1 + sum(1 if kind == NUMBER else len(kind) - 1 for kind in declared.values())


def design_of(declared: Declared, given: Attributes, size: int) -> FloatArray:
    """The design of a task with these attributes, whose theta has `size` entries; or `Invalid`.

    It is [1, z] ⊗ I, so that mu is the mean of theta where z is 0, and what each attribute adds.
    """
    for name in given:
        if name not in declared:
            raise Invalid(f"attributes.{name}", "the experiment has no such attribute")
    row = [1.0]
    for name in sorted(declared):  # as a store keeps them
        if name not in given:
            raise Invalid(f"attributes.{name}", "this attribute is missing")
        row += _numbers(name, declared, given)
    return _wide(np.array(row), size)


def usual_design(declared: Declared, size: int) -> FloatArray:
    """Of a task without attributes: all numbers 0, and the first of all names."""
    return _wide(np.eye(1, column_count(declared)), size)


def _wide(row: FloatArray, size: int) -> FloatArray:
    found: FloatArray = np.kron(row, np.eye(size)).astype(np.float64)
    return found


def _numbers(name: str, declared: Declared, given: Mapping[str, float | str]) -> list[float]:
    """A number as it is; of names, 1 for the one it is, without the first."""
    kind, value = declared[name], given[name]
    if kind == NUMBER:
        if isinstance(value, str):
            raise Invalid(f"attributes.{name}", f"this is a number, got {value!r}")
        return [value]
    if value not in kind:
        raise Invalid(f"attributes.{name}", f"this is one of {', '.join(kind)}, got {value!r}")
    return [float(value == other) for other in kind[1:]]
