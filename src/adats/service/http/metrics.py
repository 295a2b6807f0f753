"""What Prometheus reads at /metrics. No names of tenants, experiments or tasks are in it."""

import re
from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0)

_LABELS = re.compile(r"^([a-z]\w*)(?:{(.*)})? ", re.MULTILINE)
WAITS = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0, 5.0)


class Metrics:
    """Counters of one process; where that is one of several workers, each line says which."""

    def __init__(self, worker: str | None = None) -> None:
        self._label = "" if worker is None else f'worker="{worker}"'
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._requests = Counter(
            "adats_requests", "Requests answered.", ("operation", "code"), registry=self._registry
        )
        self._seconds = Histogram(
            "adats_request_seconds",
            "From the request to the answer, the commit included.",
            ("operation",),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._folds = Histogram(
            "adats_fold_wait_seconds",
            "How old the oldest reward of other tasks was when decisions began to know of it.",
            buckets=WAITS,
            registry=self._registry,
        )
        self.last_wait = 0.0
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def request(self, operation: str, code: int, seconds: float) -> None:
        pair = self._known.get((operation, code))
        if pair is None:
            counter = self._requests.labels(operation, str(code))
            pair = self._known[operation, code] = (counter, self._seconds.labels(operation))
        pair[0].inc()
        pair[1].observe(seconds)

    def folded(self, seconds: float) -> None:
        """A fold, and how long the oldest of what it took in had waited."""
        self._folds.observe(seconds)
        self.last_wait = seconds

    def watch(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A figure that is read when it is asked for."""
        Gauge(name, about, registry=self._registry).set_function(value)

    def text(self) -> bytes:
        text = generate_latest(self._registry)
        return _LABELS.sub(self._with_worker, text.decode()).encode() if self._label else text

    def _with_worker(self, line: re.Match[str]) -> str:
        name, others = line.groups()
        return f"{name}{{{self._label}{',' + others if others else ''}}} "
