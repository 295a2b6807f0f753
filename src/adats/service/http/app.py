"""What each request asks of the engine, and the service as an ASGI application."""

import asyncio
import gc
import logging
import math
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TypeVar, TypeVarTuple, cast

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.routing import Route, Router

from adats.models.core.errors import UnknownTask
from adats.service import answers, export, reports
from adats.service.commit_queue import CommitQueue
from adats.service.engine import Engine
from adats.service.errors import (
    Busy,
    DamagedStore,
    Invalid,
    NotFound,
    ServiceError,
    StoreError,
    status_of,
)
from adats.service.http import openapi
from adats.service.http.docs_page import page
from adats.service.http.endpoint import (
    AccessControl,
    Endpoint,
    IdentifiedRouter,
    MethodRouter,
    RawBody,
    Reply,
    Request,
    StreamedBody,
    encode,
    no_route,
)
from adats.service.http.metrics import Metrics
from adats.service.http.operations import EXPERIMENT_NAME, OPERATIONS
from adats.service.http.readers import Readers
from adats.service.keys import ApiKeys
from adats.service.messages import (
    AnyDecisionRequest,
    AnyRewardRequest,
    DecisionBatchRequest,
    DecisionBatchResult,
    Error,
    ExperimentList,
    Health,
    RefusedDecision,
    RefusedReward,
    RewardBatchRequest,
    RewardRequest,
    RewardResult,
)
from adats.service.pages.routes import Pages
from adats.service.served_experiment import ServedExperiment
from adats.service.shared_queue import Folder, SharedQueue
from adats.service.spec import parse
from adats.service.stores.interface import ARCHIVED, Action, ExperimentRow, ReadView, Reward

LONG = math.inf  # the size of an operation that may take long
MOST_NOTED = 10_000  # experiments whose control is kept in mind
MOST_WAITING = 1000  # requests; more are turned away
SCRUB_PAUSE = 1.0  # seconds between two looks at some rows of the store
ALARM_PAUSE = 60.0  # seconds between two looks at all experiments
ERASE_PAUSE = 0.05  # seconds between two looks whether what was forgotten is gone
TIDY_EVERY = 600.0  # seconds between two looks for cycles of objects that nobody uses any more
REFRESH = 1.0  # seconds until a key that was added or removed is known
NOT_COUNTED = {
    "duplicate": "Rewards that came twice",
    "late": "Rewards that came after their window",
    "refused": "Rewards of batches that were refused",
}
VERBS = ("decide", "reward")  # first in the routes, which are tried one after another
PARTLY_DAMAGED = "part of the store is damaged; the service's log says it"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = logging.getLogger("adats.service")


class AnyName(PathConvertor):
    """The rest of a path, as it is: Starlette's own ends at a line break, and drops a last one."""

    regex = "(?s:.*)"


register_url_convertor("any", AnyName())


class Service:
    """One engine, its queue, and the handlers of all requests."""

    def __init__(
        self,
        engine: Engine,
        *,
        hosts: tuple[str, ...] | None,
        most_waiting: int,
        reopened: bool,
        clock_off: Callable[[], float],
        folding: Engine | None,
    ) -> None:
        self._engine, self._clock_off = engine, clock_off
        self.metrics = Metrics(str(os.getpid()) if engine.store.many_writers else None)
        kind = SharedQueue if engine.store.many_writers else CommitQueue
        self._queue = kind(engine, most_waiting=most_waiting)
        self._folder = None if folding is None else Folder(folding, self.metrics.folded)
        self._readers = Readers(engine.store, lambda: self._queue.groups)
        self._alarms = 0
        self._watch()
        with engine.store.view() as view:
            keys = ApiKeys(view.key_rows())
        self.access = AccessControl(keys, hosts, reopened=reopened)
        self._not_counted: Counter[tuple[str, str, str]] = Counter()  # rewards, by what they were
        self.pages = Pages(self._readers, self.access, self.metrics, engine.now, self._health)
        self._controls: dict[tuple[str, str], Action | None] = {}  # of experiments in use

    def _watch(self) -> None:
        queue = self._queue
        watched: dict[str, tuple[str, Callable[[], float]]] = {
            "waiting": ("Operations that wait to be carried out.", lambda: queue.waiting),
            "groups": ("Transactions since the start.", lambda: queue.groups),
            "commit_seconds": ("Seconds spent on them.", lambda: queue.commit_seconds),
            "ready": ("1 if the store can be written.", lambda: float(queue.trouble is None)),
            "damaged": ("1 if part of it was damaged.", lambda: float(queue.damage is not None)),
            "clock_off_seconds": ("The clock's jump, not 0 if it jumped.", self._clock_off),
            "alarms": (
                "Of all experiments; their reports say what is wrong.",
                lambda: self._alarms,
            ),
        }
        for name, (about, value) in watched.items():
            self.metrics.watch(f"adats_{name}", about, value)

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        self._queue.start()
        if self._folder is not None:
            self._folder.start()
        works = (self._refresh_keys, self._scrub, self._tidy, self._look_for_alarms)
        beside = [asyncio.create_task(work()) for work in works]
        try:
            yield
        finally:
            for work in beside:
                work.cancel()
            await self._queue.close()
            if self._folder is not None:
                self._folder.close()
            self._readers.close()
            self._engine.store.close()

    async def _refresh_keys(self) -> None:
        """Keys are added and removed by another process."""
        while True:
            await asyncio.sleep(REFRESH)
            try:
                keys = await self._readers.read_at_once(lambda view: ApiKeys(view.key_rows()))
                self.access.renew(keys)
            except ServiceError as error:
                log.error("the keys cannot be read: %s", error)

    async def _scrub(self) -> None:
        """Look at all that is in the store, some rows at a time."""
        while True:
            await asyncio.sleep(SCRUB_PAUSE)
            try:
                found = await self._readers.run(self._engine.store.scrub)
            except Busy:
                continue
            except (StoreError, DamagedStore) as error:
                found = [str(error)]
            for line in found:
                self._queue.note_damage(DamagedStore(line))

    async def _look_for_alarms(self) -> None:
        while True:
            await asyncio.sleep(ALARM_PAUSE)
            with suppress(ServiceError):
                rows = await self._readers.read(lambda view: view.experiments())
                self._alarms = sum([await self._alarms_of(row.tenant, row.name) for row in rows])

    async def _alarms_of(self, tenant: str, name: str) -> int:
        def look(view: ReadView) -> int:
            row = view.experiment(tenant, name)
            return 0 if row is None else len(reports.report(view, row, self._engine.now()).alarms)

        return await self._readers.read(look)

    async def _tidy(self) -> None:
        """Looking at all objects takes the longer, the more tasks are in memory: do it rarely."""
        while True:
            await asyncio.sleep(TIDY_EVERY)
            gc.collect()

    # requests that go through the queue

    async def put(self, request: Request) -> Reply:
        name = request.path["name"]
        if not re.fullmatch(EXPERIMENT_NAME, name):
            raise Invalid("name", "a name has 1 to 100 of A-Z a-z 0-9 . _ -, no . or - first")
        made, info = await self._do(self._engine.put, request, request.body, size=LONG)
        return Reply(info, 201 if made else 200)

    async def set_status(self, request: Request) -> Reply:
        wanted = request.body.status
        return Reply(await self._do(self._engine.set_status, request, wanted, size=LONG))

    async def delete(self, request: Request) -> Reply:
        return await self._erase(request, self._engine.delete)

    async def decide(self, request: Request) -> Reply:
        given: AnyDecisionRequest = request.body
        several = given.decisions
        if several is None and not given.task:
            raise Invalid("task", "a decision needs task")
        try:
            if several is None:
                result: msgspec.Struct = await self._do(self._engine.decide, request, given)
            else:
                if msgspec.structs.replace(given, decisions=None) != AnyDecisionRequest():
                    raise Invalid("decisions", "give one decision or a batch of them, not both")
                batch = DecisionBatchRequest(several)
                result = await self._do(self._engine.decisions, request, batch, size=len(several))
            self._note_control(request)
            return Reply(result)
        except (StoreError, DamagedStore) as error:
            control = await self._control(request)
            asked = [given] if several is None else several
            found = [answers.instead(error, control, one) for one in asked]
            refused = sum(isinstance(one, RefusedDecision) for one in found)
            if refused == len(found):
                raise
            whole = DecisionBatchResult(found, refused)
            return Reply(found[0] if several is None else whole, status_of(error))

    async def reward(self, request: Request) -> Reply:
        given: AnyRewardRequest = request.body
        if given.rewards is not None:
            if msgspec.structs.replace(given, rewards=None) != AnyRewardRequest():
                raise Invalid("rewards", "give one reward or a batch of rewards, not both")
            batch = RewardBatchRequest(given.rewards)
            size = len(given.rewards)
            results = await self._do(self._engine.rewards, request, batch, size=size)
            self._note_rewards(request, results.results)
            return Reply(results)
        for field in ("decision_id", "reward"):
            if getattr(given, field) is None:
                raise Invalid(field, f"a reward needs {field}")
        one = RewardRequest(
            cast(str, given.decision_id),
            cast(Reward, given.reward),
            given.reward_id,
            given.metrics,
        )
        result = await self._do(self._engine.reward, request, one)
        self._note_rewards(request, (result,))
        return Reply(result)

    def _note_rewards(
        self, request: Request, results: Iterable[RewardResult | RefusedReward]
    ) -> None:
        """Those that were duplicates, late or refused; for the page."""
        for one in results:
            status = "refused" if isinstance(one, RefusedReward) else one.status
            if status in NOT_COUNTED and len(self._not_counted) < MOST_NOTED:
                self._not_counted[request.tenant, request.path["name"], status] += 1

    def _health(self, tenant: str, name: str) -> list[tuple[str, int]]:
        found = [
            (said, self._not_counted[tenant, name, what]) for what, said in NOT_COUNTED.items()
        ]
        if self._folder is not None:
            said = "Milliseconds that other tasks' rewards waited last until decisions knew of them"
            found.append((said, round(1000 * self.metrics.last_wait)))
        return found

    async def forget(self, request: Request) -> Reply:
        return await self._erase(request, self._engine.forget, request.path["task"])

    async def _erase(
        self, request: Request, work: Callable[[str, str, *Ts], None], *more: *Ts
    ) -> Reply:
        """Nobody reads meanwhile: a view would keep what is erased in the log of the store."""
        missing = None
        async with self._readers.none():
            try:
                await self._do(work, request, *more, size=LONG)
            except NotFound as error:  # maybe by an earlier request, which was cut off
                missing = error
            self.pages.clear()
        while not self._engine.store.erased:  # another process reads; every commit tries again
            await asyncio.sleep(ERASE_PAUSE)
        if missing is not None:
            raise missing
        return Reply(status=204)

    async def add_arm(self, request: Request) -> Reply:
        return Reply(await self._do(self._engine.add_arm, request, request.body, size=LONG))

    async def retire_arm(self, request: Request) -> Reply:
        return Reply(
            await self._do(self._engine.retire_arm, request, request.path["arm"], size=LONG)
        )

    async def _do(
        self,
        operation: Callable[[str, str, *Ts], T],
        request: Request,
        *more: *Ts,
        size: float = 1.0,
    ) -> T:
        """An operation of the engine on the experiment of a request; what may take long is LONG."""
        name = request.path["name"]
        return await self._queue.do(operation, request.tenant, name, *more, size=size)

    # requests that only read what is committed

    async def experiments(self, request: Request) -> Reply:
        def names(view: ReadView) -> ExperimentList:
            rows = view.experiments(request.tenant)
            archived = [row.name for row in rows if row.status == ARCHIVED]
            return ExperimentList([r.name for r in rows if r.status != ARCHIVED], archived)

        return Reply(await self._readers.read(names))

    async def about(self, request: Request) -> Reply:
        name = request.path["name"]
        return await self._read(
            request,
            lambda view, row: answers.experiment_info(
                name, _at_work(view, row).snapshot, row.status
            ),
        )

    async def task(self, request: Request) -> Reply:
        task, now = request.path["task"], self._engine.now()
        try:
            return await self._read(
                request, lambda view, row: answers.task_belief(task, _at_work(view, row), now)
            )
        except UnknownTask:
            raise NotFound(f"there is no task {task!r}") from None

    async def meta(self, request: Request) -> Reply:
        now = self._engine.now()
        return await self._read(
            request, lambda view, row: answers.prior_belief(_at_work(view, row), now)
        )

    async def report(self, request: Request) -> Reply:
        now = self._engine.now()
        return await self._read(request, lambda view, row: reports.report(view, row, now))

    async def _read(
        self, request: Request, answer: Callable[[ReadView, ExperimentRow], msgspec.Struct]
    ) -> Reply:
        """An answer about the experiment of a request, as it is in the store."""

        def encoded(view: ReadView) -> bytes:
            return encode(answer(view, _experiment(view, request)))

        try:
            return Reply(RawBody(await self._readers.read(encoded), "application/json"))
        except DamagedStore as error:
            self._queue.note_damage(error)
            raise

    async def log(self, request: Request) -> Reply:
        kind = request.query.get("format", "ndjson")
        if kind not in export.FORMATS:
            raise Invalid("format", f"the log comes as {' or '.join(export.FORMATS)}, not {kind!r}")
        async with AsyncExitStack() as stack:
            view, stop = await stack.enter_async_context(self._readers.export())
            pieces = await run_in_threadpool(self._log_pieces, view, request, kind)
            next_piece = partial(self._readers.piece, pieces, stop)
            close = stack.pop_all().aclose
            return Reply(StreamedBody(next_piece, export.FORMATS[kind], stop, close))

    def _log_pieces(self, view: ReadView, request: Request, kind: str) -> Iterator[bytes]:
        return export.log(view, _experiment(view, request), kind)

    def _note_control(self, request: Request) -> None:
        """For the time when the store cannot even be read."""
        key = (request.tenant, request.path["name"])
        spec = self._engine.spec_of(*key)
        if spec is not None and (key in self._controls or len(self._controls) < MOST_NOTED):
            self._controls[key] = spec.control

    async def _control(self, request: Request) -> Action | None:
        """The control action, if the experiment names one."""
        key = (request.tenant, request.path["name"])
        control = self._controls.get(key)
        if control is None:
            try:
                control = await self._readers.read(lambda view: _control(view, *key))
            except (StoreError, DamagedStore, Busy):
                return None
            if control is not None:
                self._controls[key] = control
        return control

    # the service itself

    async def healthz(self, _: Request) -> Reply:
        return Reply(Health("ok"))

    async def readyz(self, _: Request) -> Reply:
        trouble = self._queue.trouble
        if trouble is not None:
            return Reply(Error(str(trouble)), 503)
        damage = self._queue.damage  # of which everybody may know that it is, not where
        found = [] if damage is None else [PARTLY_DAMAGED]
        if self._clock_off():
            found.append(f"the clock jumped by {self._clock_off():+.0f} s, and is not followed")
        return Reply(Health("ready", "; ".join(found) or None))

    async def show_metrics(self, _: Request) -> Reply:
        return Reply(RawBody(self.metrics.text(), "text/plain; version=0.0.4; charset=utf-8"))

    async def describe(self, _: Request) -> Reply:
        return Reply(openapi.description())

    async def docs(self, _: Request) -> Reply:
        return Reply(RawBody(page().encode(), "text/html; charset=utf-8"))


def make_app(
    engine: Engine,
    *,
    hosts: tuple[str, ...] | None = None,
    most_waiting: int = MOST_WAITING,
    reopened: bool = False,
    clock_off: Callable[[], float] = lambda: 0.0,
    folding: Engine | None = None,
) -> Router:
    """The service as an ASGI application. `hosts` are its own names, if only they are served.

    `reopened`: it needs no key although keys were in use, if all of them are removed. `clock_off`
    says by how much the clock has jumped. `folding`: where many write, a second engine on the same
    store, which folds.
    """
    service = Service(
        engine,
        hosts=hosts,
        most_waiting=most_waiting,
        reopened=reopened,
        clock_off=clock_off,
        folding=folding,
    )
    paths: dict[str, dict[str, Endpoint]] = {}
    for operation in sorted(OPERATIONS, key=lambda operation: operation.name not in VERBS):
        handler = getattr(service, operation.name)
        endpoint = Endpoint(operation, handler, service.access, service.metrics)
        paths.setdefault(operation.path, {})[operation.method] = endpoint
    routes = [
        Route(path.replace(":path}", ":any}"), MethodRouter(endpoints))
        for path, endpoints in paths.items()
    ]
    routes += service.pages.routes()
    return IdentifiedRouter(
        routes, default=no_route, lifespan=service.lifespan, redirect_slashes=False
    )


def _experiment(view: ReadView, request: Request) -> ExperimentRow:
    row = view.experiment(request.tenant, request.path["name"])
    if row is None:
        raise NotFound(f"there is no experiment {request.path['name']!r}")
    return row


def _at_work(view: ReadView, row: ExperimentRow) -> ServedExperiment:
    return ServedExperiment(row, view)


def _control(view: ReadView, tenant: str, name: str) -> Action | None:
    row = view.experiment(tenant, name)
    return None if row is None else parse(row.spec).control
