"""Work spread over processes of this machine, or over a cluster of Ray."""

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

ENGINES = ("local", "ray")
J = TypeVar("J")  # a job
P = TypeVar("P")  # what is made of a part of it


def spread(
    play: Callable[[J, range], P], job: J, chunks: Sequence[range], workers: int, engine: str
) -> Generator[P, None, None]:
    """What `play` makes of the job and each chunk, as they are finished, here or elsewhere."""
    if workers == 1 and engine == "local":
        for runs in chunks:
            yield play(job, runs)
        return
    try:
        import joblib
    except ImportError:
        raise ValueError("several workers need joblib: pip install 'adats[sim]'") from None
    options: dict[str, Any] = {"inner_max_num_threads": 1}
    if engine == "ray":
        try:
            from ray.util.joblib import register_ray
        except ImportError:
            raise ValueError("engine ray needs Ray: pip install 'adats[ray]'") from None
        register_ray()
        options = {}
    backend = "ray" if engine == "ray" else "loky"
    with joblib.parallel_config(backend=backend, n_jobs=workers, **options):
        parallel = joblib.Parallel(return_as="list" if engine == "ray" else "generator_unordered")
        jobs = (joblib.delayed(play)(job, runs) for runs in chunks)
        if engine == "ray":
            yield from parallel(jobs)
            return
        with _without_interrupts():  # the processes start here, the results come later
            parts = parallel(jobs)
        yield from parts


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started inside do not hear Ctrl-C: it is for this process, which stops them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what happens on a signal
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
