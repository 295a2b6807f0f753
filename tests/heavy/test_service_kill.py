"""The service killed forty times under load."""

import pytest

from hammer import (
    Client,
    Connection,
    check_replay,
    check_service,
    cut_off,
    heard,
    kill_often,
)
from served import process

pytestmark = pytest.mark.heavy


def test_forty_kills_lose_nothing_that_was_acknowledged(tmp_path, monkeypatch, capsys):
    db = tmp_path / "x.db"
    clients = [Client(number, seed=11) for number in range(16)]
    kill_often(db, clients, times=40, seed=12)
    assert cut_off(clients) > 40
    assert heard(clients) > 4000
    with process(db) as service:
        with Connection(service.url) as connection:
            for client in clients:
                client.ask_all_again(connection)
        check_service(service, db, clients)
    check_replay(db, monkeypatch, capsys)
