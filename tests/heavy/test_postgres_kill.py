"""Workers and PostgreSQL killed under load: nothing is lost, nothing is there twice."""

import os
import random
import signal
import time
from contextlib import suppress

import psutil
import pytest

from adats.service.audit import check_store
from hammer import (
    ALL_MODELS,
    CUT_OFF,
    Connection,
    PatientClient,
    Unavailable,
    check_replay,
    check_service,
    cut_off,
    heard,
    loaded,
    start,
    wait_for,
)
from postgres import kill_and_restart, new_store
from served import process

pytestmark = pytest.mark.heavy

WORKERS, KILLS, DATABASE_KILLS = 3, 100, 20


def test_a_hundred_kills_of_workers_and_twenty_of_the_database(tmp_path, monkeypatch, capsys):
    if os.environ.get("ADATS_TEST_POSTGRES"):
        pytest.skip("only a server that was started here is killed")
    url, rng = new_store("kills"), random.Random(1)
    clients = [PatientClient(number, 1, ALL_MODELS) for number in range(8)]
    victims = ["worker"] * KILLS + ["database"] * DATABASE_KILLS
    rng.shuffle(victims)
    log = (tmp_path / "log").open("w")  # a pipe that nobody reads would be full
    with log, process(url, "--workers", str(WORKERS), stderr=log) as service:
        start(service.url, ALL_MODELS)
        parent = psutil.Process(service.process.pid)
        with loaded(service.url, clients):
            for victim in victims:
                known = heard(clients)
                wait_for(lambda before=known: heard(clients) > before + 5, 60)
                time.sleep(rng.uniform(0.0, 0.2))
                if victim == "database":
                    kill_and_restart()
                else:
                    with suppress(psutil.NoSuchProcess):  # it ends by itself
                        rng.choice(wait_for(parent.children)).send_signal(signal.SIGKILL)
                assert check_store(url) == []
        assert cut_off(clients) > 0
        for client in clients:
            again(service.url, client)
        check_service(service, url, clients, ALL_MODELS)
    assert check_store(url) == []
    check_replay(url, monkeypatch, capsys)


def again(url, client):
    """Whatever was cut off gets an answer now; a worker may still be without the database."""

    def answered():
        with suppress(*CUT_OFF, Unavailable), Connection(url) as connection:
            client.ask_all_again(connection)
            return True
        return False

    wait_for(answered)


def test_a_worker_that_is_stopped_keeps_nobody_waiting_for_long(tmp_path, monkeypatch, capsys):
    """Its session ends when it has held its locks for five seconds without a word."""
    url, everybody = new_store("stops"), []
    log = (tmp_path / "log").open("w")
    with log, process(url, "--workers", "2", stderr=log) as service:
        start(service.url)
        for turn in range(4):
            clients = [PatientClient(10 * turn + number, 2) for number in range(10)]
            everybody += clients
            for client in clients:  # connections to the worker that is stopped have no answer
                client.patience = 3
            with loaded(service.url, clients):
                wait_for(lambda clients=clients: heard(clients) > 50, 60)
                victim = max(psutil.Process(service.process.pid).children(), key=_connections)
                victim.suspend()
                try:
                    time.sleep(6.5)
                    known = heard(clients)
                    wait_for(lambda clients=clients, known=known: heard(clients) > known + 20, 40)
                finally:
                    victim.resume()
        check_service(service, url, everybody)
    assert check_store(url) == []
    check_replay(url, monkeypatch, capsys)


def _connections(worker):
    return sum(one.status == "ESTABLISHED" for one in worker.net_connections())
