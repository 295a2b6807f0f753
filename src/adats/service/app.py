"""The HTTP side: what each request asks of the engine."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from adats.service import export, openapi
from adats.service.desk import Desk
from adats.service.engine import Engine, NotFound
from adats.service.http import (
    Call,
    Endpoint,
    Gate,
    Methods,
    Problem,
    Reply,
    Stream,
    Text,
    as_problem,
    encode,
    respond,
)
from adats.service.keys import Keyring
from adats.service.messages import Ask, Error, Fallback, Health, Listed, Tell, Telling, Tells
from adats.service.metrics import Metrics
from adats.service.operations import NAME, OPERATIONS
from adats.service.page import page
from adats.service.report import report
from adats.service.spec import MOST_ARMS, Invalid, arms_of_control, parse
from adats.service.store import DamagedStore, ExperimentRow, StoreError, View

MOST_WAITING = 1000  # requests; more are turned away
REFRESH = 1.0  # seconds until a key that was added or removed is known
VERBS = ("decide", "reward")  # first in the routes, which are tried one after another
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

log = logging.getLogger("adats.service")


class Service:
    """One engine, its queue, and the handlers of all requests."""

    def __init__(self, engine: Engine, *, hosts: tuple[str, ...] | None, most_waiting: int) -> None:
        self._engine = engine
        self._desk = Desk(engine, most_waiting=most_waiting)
        self.metrics = Metrics()
        self._watch()
        with engine.store.view() as view:
            self.gate = Gate(Keyring(view.key_rows()), hosts)
        self._controls: dict[tuple[str, str], Any] = {}  # of experiments that needed a fallback

    def _watch(self) -> None:
        desk = self._desk
        watched = {
            "waiting": ("Operations that wait to be carried out.", lambda: desk.waiting),
            "groups": ("Transactions since the start.", lambda: desk.groups),
            "commit_seconds": ("Seconds spent on them.", lambda: desk.commit_seconds),
            "ready": ("1 if the store can be written.", lambda: float(desk.trouble is None)),
            "damaged": ("1 if part of it was damaged.", lambda: float(desk.damage is not None)),
        }
        for name, (about, value) in watched.items():
            self.metrics.watch(f"adats_{name}", about, value)

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        self._desk.start()
        refresh = asyncio.create_task(self._refresh())
        try:
            yield
        finally:
            refresh.cancel()
            await self._desk.close()
            self._engine.store.close()

    async def _refresh(self) -> None:
        """Keys are added and removed by another process."""
        while True:
            await asyncio.sleep(REFRESH)
            try:
                self.gate.renew(Keyring(await run_in_threadpool(self._keys)))
            except (StoreError, DamagedStore) as error:
                log.error("the keys cannot be read: %s", error)

    def _keys(self) -> Any:
        with self._engine.store.view() as view:
            return view.key_rows()

    # experiments

    async def put(self, call: Call) -> Reply:
        name = call.path["name"]
        if not re.fullmatch(NAME, name):
            raise Invalid("name", "a name has 1 to 100 of A-Z a-z 0-9 . _ -, no . or - first")
        work = partial(self._engine.put, call.access.tenant, name, call.body)
        made, about = await self._desk.do(work)
        return Reply(about, 201 if made else 200)

    async def experiments(self, call: Call) -> Reply:
        return Reply(Listed(await run_in_threadpool(self._names, call.access.tenant)))

    def _names(self, tenant: str) -> list[str]:
        with self._engine.store.view() as view:
            return [row.name for row in view.experiments(tenant)]

    async def about(self, call: Call) -> Reply:
        return Reply(await self._do(self._engine.about, call))

    async def decide(self, call: Call) -> Reply:
        try:
            return Reply(await self._do(self._engine.decide, call, call.body))
        except (StoreError, DamagedStore) as error:
            raise await self._fallback(call, as_problem(error)) from error

    async def _fallback(self, call: Call, problem: Problem) -> Problem:
        """The problem, with the control action if the experiment names one."""
        key, ask = (call.access.tenant, call.path["name"]), call.body
        control = self._controls.get(key)
        if control is None:
            try:
                control = await run_in_threadpool(self._control, *key)
            except (StoreError, DamagedStore):
                return problem
        if control is None or not _is_open(control, ask):
            return problem
        self._controls[key] = control
        told = Fallback(str(problem), ask.decision_id, ask.task, control)
        return Problem(problem.status, str(problem), body=told)

    def _control(self, tenant: str, name: str) -> Any:
        with self._engine.store.view() as view:
            row = view.experiment(tenant, name)
        return None if row is None else parse(row.spec).control

    async def reward(self, call: Call) -> Reply:
        told: Telling = call.body
        if told.rewards is not None:
            if told.decision_id is not None or told.reward is not None:
                raise Invalid("rewards", "give one reward or a batch of rewards, not both")
            return Reply(await self._do(self._engine.rewards, call, Tells(told.rewards)))
        for field in ("decision_id", "reward"):
            if getattr(told, field) is None:
                raise Invalid(field, f"a reward needs {field}")
        tell = Tell(cast(str, told.decision_id), cast(Any, told.reward), told.reward_id)
        return Reply(await self._do(self._engine.reward, call, tell))

    async def task(self, call: Call) -> Reply:
        return Reply(await self._do(self._engine.task, call, call.path["task"]))

    async def forget(self, call: Call) -> Reply:
        await self._do(self._engine.forget, call, call.path["task"])
        return Reply(status=204)

    async def meta(self, call: Call) -> Reply:
        return Reply(await self._do(self._engine.meta, call))

    async def add_arm(self, call: Call) -> Reply:
        return Reply(await self._do(self._engine.add_arm, call, call.body))

    async def retire_arm(self, call: Call) -> Reply:
        return Reply(await self._do(self._engine.retire_arm, call, call.path["arm"]))

    async def _do(self, work: Any, call: Call, *more: Any) -> Any:
        return await self._desk.do(partial(work, call.access.tenant, call.path["name"], *more))

    async def report(self, call: Call) -> Reply:
        return Reply(await run_in_threadpool(self._report, call))

    def _report(self, call: Call) -> Any:
        with self._engine.store.view() as view:
            return report(view, self._row(view, call), self._engine.now())

    def _row(self, view: View, call: Call) -> ExperimentRow:
        row = view.experiment(call.access.tenant, call.path["name"])
        if row is None:
            raise NotFound(f"there is no experiment {call.path['name']!r}")
        return row

    async def log(self, call: Call) -> Reply:
        kind = call.query.get("format", "ndjson")
        if kind not in export.FORMATS:
            raise Invalid("format", f"the log comes as {' or '.join(export.FORMATS)}, not {kind!r}")
        view = await run_in_threadpool(self._engine.store.view)
        try:
            pieces = await run_in_threadpool(self._pieces, view, call, kind)
        except BaseException:
            view.close()
            raise
        return Reply(Stream(pieces, export.FORMATS[kind], view.close))

    def _pieces(self, view: View, call: Call, kind: str) -> Iterator[bytes]:
        return export.log(view, self._row(view, call), self._engine.store, kind)

    # the service itself

    async def healthz(self, _: Call) -> Reply:
        return Reply(Health("ok"))

    async def readyz(self, _: Call) -> Reply:
        trouble = self._desk.trouble
        if trouble is not None:
            raise Problem(503, str(trouble))
        damage = self._desk.damage  # of which everybody may know that it is, not where
        why = None if damage is None else "part of the store is damaged; the service's log says it"
        return Reply(Health("ready", why))

    async def show_metrics(self, _: Call) -> Reply:
        return Reply(Text(self.metrics.text(), "text/plain; version=0.0.4; charset=utf-8"))

    async def describe(self, _: Call) -> Reply:
        return Reply(openapi.description())

    async def docs(self, _: Call) -> Reply:
        return Reply(Text(page().encode(), "text/html; charset=utf-8"))


def make_app(
    engine: Engine, *, hosts: tuple[str, ...] | None = None, most_waiting: int = MOST_WAITING
) -> Router:
    """The service as an ASGI application. `hosts` are its own names, if only they are served."""
    service = Service(engine, hosts=hosts, most_waiting=most_waiting)
    paths: dict[str, dict[str, Endpoint]] = {}
    for operation in sorted(OPERATIONS, key=lambda operation: operation.name not in VERBS):
        handler = getattr(service, operation.name)
        endpoint = Endpoint(operation, handler, service.gate, service.metrics)
        paths.setdefault(operation.path, {})[operation.method] = endpoint
    routes = [Route(path, Methods(endpoints)) for path, endpoints in paths.items()]
    return Router(routes, default=_no_route, lifespan=service.lifespan, redirect_slashes=False)


def _is_open(control: Any, ask: Ask) -> bool:
    """Whether the control action is one of those that the request leaves open."""
    arms = arms_of_control(control)
    if ask.features is not None and any(arm in range(len(ask.features), MOST_ARMS) for arm in arms):
        return False
    return ask.allowed is None or all(arm in ask.allowed for arm in arms)


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    if scope["type"] == "http":
        content = encode(Error(f"there is nothing at {scope['path']}"))
        await respond(send, 404, content, "application/json")
