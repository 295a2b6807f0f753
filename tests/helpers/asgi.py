"""Requests to the service in this process, without a socket."""

import asyncio
import json
import time

from adats.service.engine import Engine
from adats.service.http.app import make_app
from adats.service.stores.opening import open_store


def talk(path, calls, clock=time.time, **options):
    """Status and JSON, or text, of each of some calls: method, path and body."""

    async def run():
        store = open_store(str(path))
        if store.many_writers:
            beside = open_store(str(path))
            options["folding"] = Engine(beside, clock=beside.now)
        app = make_app(Engine(store, clock=clock), hosts=("localhost",), **options)
        async with app.lifespan_context(app):
            return [await send(app, *call) for call in calls]

    return asyncio.run(run())


async def send(app, method, path, body=None, *, parsed=True):
    """Status and JSON, or text; a body of bytes goes as it is."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    content, sent = b"" if body is None else content, []
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    headers.append((b"content-length", str(len(content)).encode()))
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }

    waiting = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive():
        if not waiting:
            await asyncio.Event().wait()  # the client stays
        return waiting.pop()

    async def keep(message):
        sent.append(message)

    await app(scope, receive, keep)
    if not parsed:
        return sent[0]["status"], None
    answer = b"".join(message.get("body", b"") for message in sent)
    if dict(sent[0]["headers"]).get(b"content-type") == b"application/json":
        return sent[0]["status"], json.loads(answer)
    return sent[0]["status"], answer.decode() or None
