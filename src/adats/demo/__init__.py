"""54 customer segments, three e-mails, who visits the shop: counts of a real test."""

import csv
from dataclasses import dataclass
from importlib import resources

import numpy as np

from adats.models.core.types import FloatArray

EMAILS = ("mens", "womens", "none")
LABELS = ("men's goods", "women's goods", "no e-mail")


@dataclass(frozen=True, eq=False)
class Segments:
    """Customers and visits of every segment and e-mail."""

    customers: FloatArray  # (segments, e-mails)
    visits: FloatArray

    def rates(self) -> FloatArray:
        """Visit rates as they were counted: no model has touched them."""
        return self.visits / self.customers


def load_segments() -> Segments:
    """The counts that ship with the package."""
    text = (resources.files("adats.demo") / "hillstrom.csv").read_text(encoding="utf-8")
    table: dict[tuple[str, ...], dict[str, tuple[float, float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        segment = (row["area"], row["channel"], row["customer"], row["bought"])
        counts = (float(row["customers"]), float(row["visits"]))
        table.setdefault(segment, {})[row["email"]] = counts
    counted = np.array([[row[email] for email in EMAILS] for row in table.values()])
    return Segments(counted[..., 0], counted[..., 1])
