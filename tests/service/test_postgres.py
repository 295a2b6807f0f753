"""A store in PostgreSQL keeps what every store must keep."""

import numpy as np
import pytest

from adats.service.audit import check_store as check_store_at
from adats.service.replay import replay
from adats.service.stores.opening import open_store, open_view
from adats.service.stores.sqlite import SQLiteStore
from adats.testing import check_store
from hammer import (
    ALL_MODELS,
    PatientClient,
    check_replay,
    check_service,
    heard,
    loaded,
    start,
    wait_for,
)
from postgres import new_store
from schedules import CASES, random_rules, rules_that_fit
from served import process
from shared_play import SharedPlay

STEPS, CHECK_EVERY = 40, 20  # of each model


def test_postgres_keeps_all_laws():
    urls = {}
    check_store(lambda name: open_store(urls.get(name) or urls.setdefault(name, new_store(name))))


@pytest.mark.parametrize("model", CASES)
def test_after_any_schedule_of_two_workers_the_answer_is_the_librarys(model, tmp_path):
    number = list(CASES).index(model)
    rng, case = np.random.default_rng(number), CASES[model]
    rules = random_rules(rng, case)
    url = new_store(f"play{number}")
    play = SharedPlay(url, {"x": (case, rules_that_fit(case, rules))}, number)
    try:
        for i in range(STEPS):
            play.step()
            if i % CHECK_EVERY == CHECK_EVERY - 1:
                play.check("x")
        play.check("x")
    finally:
        play.close()
    again = SQLiteStore(tmp_path / "again.db")
    with open_view(url) as view:
        found = replay(view, again)
    again.close()
    assert (found.changed, found.differences) == ([], [])
    assert found.events > 5


def test_two_workers_under_load_lose_nothing_and_count_nothing_twice(monkeypatch, capsys):
    url = new_store("load")
    clients = [PatientClient(number, 3, ALL_MODELS) for number in range(6)]
    with process(url, "--workers", "2") as service:
        start(service.url, ALL_MODELS)
        with loaded(service.url, clients):
            wait_for(lambda: heard(clients) > 50)
            assert check_store_at(url) == []  # while it runs
            wait_for(lambda: heard(clients) > 400)
        check_service(service, url, clients, ALL_MODELS)
    assert [client.unavailable for client in clients] == [0] * len(clients)
    assert check_store_at(url) == []
    check_replay(url, monkeypatch, capsys)
