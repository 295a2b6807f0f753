"""The service killed two hundred times under load, with all models."""

import pytest

from hammer import (
    ALL_MODELS,
    Client,
    Connection,
    check_replay,
    check_service,
    cut_off,
    kill_often,
)
from served import process

pytestmark = pytest.mark.heavy

STORES, KILLS = 4, 50  # of each


@pytest.mark.parametrize("seed", range(STORES))
def test_two_hundred_kills_lose_nothing_that_was_acknowledged(tmp_path, monkeypatch, capsys, seed):
    db = tmp_path / "x.db"
    clients = [Client(number, seed, ALL_MODELS) for number in range(16)]
    settings = {"experiments": ALL_MODELS, "check_every": 10, "longest": 0.2, "least": 20}
    kill_often(db, clients, times=KILLS, seed=seed, **settings)
    assert cut_off(clients) > KILLS
    with process(db) as service:
        with Connection(service.url) as connection:
            for client in clients:
                client.ask_all_again(connection)
        check_service(service, db, clients, ALL_MODELS)
    check_replay(db, monkeypatch, capsys)
