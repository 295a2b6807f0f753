"""The pages over HTTP: who may see them, and how long one is kept."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from importlib.resources import files
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from adats.models.core.errors import UnknownTask
from adats.service.errors import FAULT, NotFound, Unauthorized, status_of, text_of
from adats.service.http.endpoint import AccessControl
from adats.service.http.metrics import Metrics
from adats.service.http.readers import Readers
from adats.service.pages import sessions
from adats.service.pages.content import experiment_content, task_content
from adats.service.pages.experiment_page import experiment_body, reward_words
from adats.service.pages.html import escape, page, sign_in_page
from adats.service.pages.list_page import list_body
from adats.service.pages.task_page import task_body
from adats.service.spec import parse
from adats.service.stores.interface import ExperimentRow, ReadView

FRESH = 5.0  # seconds that a page is kept
MOST_KEPT = 200  # pages
LARGEST_FORM = 4000  # bytes
HTML = "text/html"
SAFE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

log = logging.getLogger("adats.service")
Make = Callable[[ReadView, str, Request], tuple[str, str]]  # of a tenant: the title and the body


class Pages:
    """All pages of one service."""

    def __init__(
        self,
        readers: Readers,
        access: AccessControl,
        metrics: Metrics,
        now: Callable[[], float],
        health: Callable[[str, str], list[tuple[str, int]]],
    ) -> None:
        """`health` says of an experiment what only the running service knows."""
        self._readers, self._access, self._metrics = readers, access, metrics
        self._now, self._health = now, health
        self._kept: dict[tuple[str, str], tuple[float, asyncio.Task[bytes]]] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/", self._page(self._list)),
            Route("/experiments/{name}", self._page(self._experiment)),
            Route("/experiments/{name}/tasks/{task:any}", self._page(self._task)),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            Route("/page.css", _file("page.css", "text/css")),
            Route("/page.js", _file("page.js", "text/javascript")),
        ]

    # what is on them

    def _list(self, view: ReadView, tenant: str, request: Request) -> tuple[str, str]:
        after = request.query_params.get("after", "")
        return "Experiments", list_body(view, tenant, self._now(), after)

    def _experiment(self, view: ReadView, tenant: str, request: Request) -> tuple[str, str]:
        row = _row(view, tenant, request)
        content = experiment_content(view, row, self._now())
        base = str(request.base_url).rstrip("/")
        return row.name, experiment_body(content, base, self._health(tenant, row.name))

    def _task(self, view: ReadView, tenant: str, request: Request) -> tuple[str, str]:
        row, task = _row(view, tenant, request), request.path_params["task"]
        try:
            content = task_content(view, row, task, self._now())
        except UnknownTask:
            raise NotFound(f"there is no task {task!r}") from None
        return task, task_body(row.name, content, reward_words(parse(row.spec)))

    # who may see them, and how long they are kept

    def _page(self, make: Make) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            began, status = time.perf_counter(), 200
            headers = dict(request.headers.raw)
            try:
                tenant, signed_in = self._access.reader(headers)
                content = await self._fresh(make, tenant, signed_in, request)
            except Unauthorized:
                path = request.url.path
                return RedirectResponse(f"/sign-in?next={quote(path)}", 303, SAFE)
            except Exception as error:
                status = status_of(error)
                if status == FAULT:
                    log.error("a page failed", exc_info=error)
                body = f"<h1>{status}</h1><p>{escape(text_of(error))}</p>"
                content = page(str(status), body, tenant="")
            self._metrics.request("page", status, time.perf_counter() - began)
            return Response(content, status, SAFE, HTML)

        return answer

    async def _fresh(self, make: Make, tenant: str, signed_in: bool, request: Request) -> bytes:
        """A page that is at most some seconds old; it is made once for all who ask at a time."""
        key = (tenant, str(request.url))
        at, work = self._kept.get(key, (0.0, None))
        if work is None or time.monotonic() > at + FRESH or (work.done() and work.exception()):
            while len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]

            def made(view: ReadView) -> bytes:
                title, body = make(view, tenant, request)
                return page(f"{title} · adats", body, tenant=tenant if signed_in else "")

            work = asyncio.ensure_future(self._readers.read(made))
            self._kept[key] = (time.monotonic(), work)
        return await asyncio.shield(work)

    def clear(self) -> None:
        """Nothing of what was forgotten is shown again."""
        self._kept.clear()

    async def _sign_in(self, request: Request) -> Response:
        if request.method == "GET":
            then = _local(request.query_params.get("next"))
            return Response(sign_in_page(next_page=then), 200, SAFE, HTML)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_FORM:
                return Response(sign_in_page("That is too long for a key."), 413, SAFE, HTML)
        form = parse_qs(body.decode("latin-1"))
        then = _local(form.get("next", ["/"])[0])
        session = self._access.sign_in(form.get("key", [""])[0].strip())
        if session is None:
            return Response(sign_in_page("There is no such key.", then), 403, SAFE, HTML)
        return _redirect(request, then, session)

    async def _sign_out(self, request: Request) -> Response:
        return _redirect(request, "/sign-in", None)


def _redirect(request: Request, to: str, session: str | None) -> Response:
    forwarded = request.headers.get("x-forwarded-proto", request.url.scheme)
    cookie = sessions.cookie(session, secure=forwarded == "https")
    return RedirectResponse(to, 303, SAFE | {"Set-Cookie": cookie})


def _local(path: str | None) -> str:
    """A page of this service, and nobody else's."""
    good = path is not None and path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if path and good else "/"


def _row(view: ReadView, tenant: str, request: Request) -> ExperimentRow:
    name = request.path_params["name"]
    row = view.experiment(tenant, name)
    if row is None:
        raise NotFound(f"there is no experiment {name!r}")
    return row


def _file(name: str, media: str) -> Callable[[Request], Awaitable[Response]]:
    content = files("adats.service.pages").joinpath(name).read_bytes()
    headers = SAFE | {"Cache-Control": "max-age=300"}

    async def answer(_: Request) -> Response:
        return Response(content, 200, headers, media)

    return answer
