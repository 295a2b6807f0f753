"""The service without what it does: it parses a request, and answers with always the same."""

import socket
import sys

from starlette.routing import Route, Router

from adats.service.http.endpoint import AccessControl, Endpoint, MethodRouter, Reply, Request
from adats.service.http.metrics import Metrics
from adats.service.http.operations import OPERATIONS
from adats.service.keys import ApiKeys
from adats.service.messages import DecisionResult, RewardResult
from adats.service.server import run

ANSWERS = {
    "decide": DecisionResult("019a-0123456789abcdef-1", "t1", 3, 0.1, 1, 1, 1.5e9, False),
    "reward": RewardResult("019a-0123456789abcdef-1", "counted", 1),
}


def main() -> None:
    access, metrics = AccessControl(ApiKeys([]), ("127.0.0.1",)), Metrics()
    routes = []
    for operation in OPERATIONS:
        if operation.name in ANSWERS:
            reply = Reply(ANSWERS[operation.name])

            async def answer(_: Request, reply: Reply = reply) -> Reply:
                return reply

            endpoint = Endpoint(operation, answer, access, metrics)
            routes.append(Route(operation.path, MethodRouter({operation.method: endpoint})))
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        run(Router(routes), listening)


if __name__ == "__main__":
    sys.exit(main())
