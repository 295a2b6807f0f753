"""Clients that hang up, read slowly, or hold connections open."""

import asyncio
import http.client
import resource
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace

import pytest

from adats.service import server
from adats.service.engine import Engine
from adats.service.http import app, connections, endpoint, readers
from adats.service.http.app import make_app
from adats.service.keys import mark_of_removed
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.stores.sqlite import SQLiteKeys, SQLiteStore
from hammer import wait_for
from served import GAUSSIAN, Local, add_key, call

X = "/v1/experiments/x"
NAME = "somebody-with-a-name"


@contextmanager
def running(path):
    """The service in a thread of this process: its port, and its store."""
    made = server.server_of(make_app(Engine(SQLiteStore(path)), hosts=("127.0.0.1",)))
    loop = asyncio.new_event_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(
            target=loop.run_until_complete, args=(made.serve(sockets=[listening]),)
        )
        thread.start()
        try:
            yield SimpleNamespace(port=port, url=f"http://127.0.0.1:{port}", db=path)
        finally:
            made.should_exit = True
            thread.join(30)
            loop.close()
    assert not thread.is_alive()


def fill(path, decisions):
    local = Local(path)
    local.put("x", GAUSSIAN)
    engine = local.engine
    engine.begin()
    for i in range(decisions):
        task = NAME if i == 5 else f"t{i % 50}"
        engine.decide("default", "x", DecisionRequest(task, f"d{i:06}-{'long' * 20}"))
        engine.reward("default", "x", RewardRequest(f"d{i:06}-{'long' * 20}", 1.0))
    engine.flush()
    engine.commit()
    local.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A store whose log has some megabytes."""
    path = tmp_path_factory.mktemp("large") / "x.db"
    fill(path, 20_000)
    return path


@pytest.fixture
def made(monkeypatch):
    """How many pieces of exports were made."""
    count = SimpleNamespace(pieces=0)
    kept = readers.run_in_threadpool

    async def counted(work, *more):
        count.pieces += work is next
        return await kept(work, *more)

    monkeypatch.setattr(readers, "run_in_threadpool", counted)
    return count


def ask_for(port, path, size=4096):
    """A client with a small window, which has sent a request and has read nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    client.connect(("127.0.0.1", port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return client


def rest(client):
    """What still comes, until the connection is closed."""
    client.settimeout(10)
    content = b""
    with client:
        try:
            while part := client.recv(1 << 20):
                content += part
        except ConnectionResetError:
            pass
    return content


def exports_end(url):
    """There is room for exports again."""
    try:
        status, content, _ = call(f"{url}{X}/log")
    except (OSError, http.client.IncompleteRead):  # we were too slow ourselves
        return False
    return status == 200 and len(content.splitlines()) >= 19_000


def test_an_export_stops_when_the_client_hangs_up(large, made):
    with running(large) as service:
        client = ask_for(service.port, f"{X}/log")
        client.recv(1000)
        client.close()

        def is_over():
            before = made.pieces
            time.sleep(0.5)
            return made.pieces == before

        wait_for(is_over)
        assert made.pieces < 10  # not made for nobody; it has 11


def test_who_does_not_read_is_cut_off_in_time(large, made, monkeypatch):
    monkeypatch.setattr(endpoint, "SLOWEST", 0.3)
    with running(large) as service:
        slow = [ask_for(service.port, f"{X}/log") for _ in range(readers.MOST_EXPORTS)]
        wait_for(lambda: made.pieces >= len(slow))
        wait_for(lambda: exports_end(service.url))
        for client in slow:
            assert not rest(client).endswith(b"0\r\n\r\n")  # a client sees that it is not whole


def test_exports_are_few_at_a_time(large, made):
    with running(large) as service:
        slow = [ask_for(service.port, f"{X}/log") for _ in range(readers.MOST_EXPORTS)]
        wait_for(lambda: made.pieces >= len(slow))
        status, answer, headers = call(f"{service.url}{X}/log")
        assert (status, "exports are under way" in answer["error"]) == (429, True)
        assert int(headers["retry-after"]) > 0
        assert call(f"{service.url}{X}/report")[0] == 200  # short reads go on
        for client in slow:
            client.close()
        wait_for(lambda: exports_end(service.url))


def test_a_key_is_taken_back_however_many_reads_wait(tmp_path, monkeypatch):
    """Whoever has it could ask for so much that nobody looks whether it is still one."""
    db, go_on = tmp_path / "x.db", threading.Event()
    known = [add_key(db, "default") for _ in range(2)]
    monkeypatch.setattr(app, "REFRESH", 0.02)
    with running(db) as service:
        headers = {"Authorization": f"Bearer {known[0]}"}
        assert call(f"{service.url}{X}", "PUT", GAUSSIAN, known[0])[0] == 201
        monkeypatch.setattr(app.reports, "report", lambda *_: go_on.wait(30))
        clients = []
        for _ in range(readers.MOST_WAITING):
            client = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
            client.request("GET", f"{X}/report", headers=headers)
            clients.append(client)
        try:
            assert wait_for(lambda: call(f"{service.url}{X}", key=known[0])[0] == 429)
            with SQLiteKeys(db) as kept:
                assert kept.remove(known[0].split("_")[1], mark_of_removed())
            assert wait_for(lambda: call(f"{service.url}{X}", key=known[0])[0] == 401)
            assert call(f"{service.url}{X}", key=known[1])[0] == 429
        finally:
            go_on.set()
            for client in clients:
                client.close()


def test_what_is_forgotten_is_gone_even_while_somebody_reads(tmp_path, made):
    path = tmp_path / "x.db"
    fill(path, 20_000)

    def on_disk():
        return any(NAME.encode() in file.read_bytes() for file in tmp_path.iterdir())

    with running(path) as service:
        client = ask_for(service.port, f"{X}/log")
        wait_for(lambda: made.pieces > 0)
        call(f"{service.url}{X}/decide", "POST", {"task": NAME})  # in the log of the store
        assert on_disk()
        assert call(f"{service.url}{X}/tasks/{NAME}", "DELETE")[0] == 204
        assert not on_disk()
        client.close()
        assert call(f"{service.url}{X}/report")[0] == 200


# connections


def half_open(port, text=b"GET /healthz HTTP/1.1\r\nHost:"):
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(text)
    return client


def test_two_thousand_half_open_connections_keep_nobody_out(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "TIMES", {})  # none of them is ended in time
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2000 + 2 * connections.MOST_CONNECTIONS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip("too few files can be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        with ExitStack() as stack:
            service = stack.enter_context(running(tmp_path / "x.db"))
            clients = [stack.enter_context(half_open(service.port)) for _ in range(2000)]
            assert call(f"{service.url}/healthz")[0] == 200
            opened = sum(_is_open(client) for client in clients)
            assert opened <= connections.MOST_CONNECTIONS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _is_open(client):
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: 127",
        b"POST /v1/experiments/x/decide HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{",
    ],
)
def test_a_request_that_does_not_come_is_not_waited_for(tmp_path, monkeypatch, sent):
    monkeypatch.setattr(connections, "TIMES", {connections.HEAD: 0.2, connections.BODY: 0.2})
    with running(tmp_path / "x.db") as service:
        client = half_open(service.port, sent)
        assert rest(client) == b""


def test_a_request_that_comes_bit_by_bit_does_not_gain_time(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "TIMES", {connections.HEAD: 0.5, connections.BODY: 0.5})
    with running(tmp_path / "x.db") as service:
        client = half_open(service.port, b"GET /healthz HTTP/1.1\r\n")
        until = time.monotonic() + 5
        while _is_open(client):
            assert time.monotonic() < until
            with suppress(OSError):
                client.send(b"X: y\r\n")
            time.sleep(0.05)
        client.close()


def test_headers_without_end_are_refused(tmp_path):
    with running(tmp_path / "x.db") as service:
        client = half_open(service.port, b"GET /healthz HTTP/1.1\r\nX: ")
        for _ in range(40):
            with suppress(OSError):  # it is ended while we write
                client.sendall(b"y" * 1000)
            time.sleep(0.005)
        assert b" 431 " in rest(client)
        assert call(f"{service.url}/healthz")[0] == 200


def test_long_headers_that_end_are_taken(tmp_path):
    with running(tmp_path / "x.db") as service:
        client = http.client.HTTPConnection("127.0.0.1", service.port, timeout=5)
        client.request("GET", "/healthz", headers={"X-Long": "y" * 20_000})
        assert client.getresponse().status == 200
        client.close()
