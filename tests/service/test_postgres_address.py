"""Addresses that cannot be used: one line says why, whatever is asked, and no secret is in it."""

import os
from pathlib import Path

import psycopg
import pytest

from adats.service.stores.postgres_link import address_of
from command import call
from postgres import new_store, server, server_url

REFUSED = {
    "postgresql://postgres@127.0.0.1:1/postgres": "Connection refused",
    "postgresql://nobody.invalid/postgres": "nobody.invalid",
    "postgresql://ann:hunter2@127.0.0.1/postgres": "PGPASSWORD",
    "postgresql://ann@127.0.0.1/postgres?password=hunter2": "PGPASSWORD",
    "postgresql://postgres@127.0.0.1:port/postgres": "port",
    "postgresql://postgres@127.0.0.1/postgres?nonsense=1": "nonsense",
    "postgresql://postgres@127.0.0.1/postgres?schema=a-b": "schema=a-b",
    "mysql://127.0.0.1/x": "not mysql://",
}
COMMANDS = [["store", "check"], ["replay"], ["keys", "list", "--db"], ["serve", "--db"]]


def refused(monkeypatch, capsys, *words):
    """What a command says that fails."""
    assert call(monkeypatch, *words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert "hunter2" not in said.err
    return said.err


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_that_cannot_be_used(url, monkeypatch, capsys):
    for command in COMMANDS:
        assert REFUSED[url] in refused(monkeypatch, capsys, *command, url)


def test_a_database_without_what_is_needed(monkeypatch, capsys):
    base, check = server_url(), ("store", "check")
    apart = "&" if "?" in base else "?"
    said = refused(monkeypatch, capsys, *check, f"{base}{apart}schema=nothing_here")
    assert "adats store upgrade" in said
    elsewhere = base.replace("/postgres?", "/nothing_here?")
    assert "does not exist" in refused(monkeypatch, capsys, *check, elsewhere)


@pytest.fixture
def role():
    """That may connect, with a password, and nothing else."""
    if os.environ.get("ADATS_TEST_POSTGRES"):
        pytest.skip("needs a server whose rules can be changed")
    rules = Path(server().pgdata, "pg_hba.conf")
    before = rules.read_text()
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger LOGIN PASSWORD 'hunter1'")
        rules.write_text(f"local all stranger scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        yield "stranger"
        rules.write_text(before)
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("DROP ROLE stranger")


def test_a_role_without_the_password_or_without_rights(role, monkeypatch, capsys):
    url = new_store("rights").replace("postgres@", f"{role}@")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    for command in COMMANDS:
        assert "password" in refused(monkeypatch, capsys, *command, url)
    monkeypatch.setenv("PGPASSWORD", "hunter1")
    for command in COMMANDS:
        assert "permission denied" in refused(monkeypatch, capsys, *command, url)
    own = url.replace("schema=", "schema=another_")
    assert "permission denied" in refused(monkeypatch, capsys, "store", "upgrade", own)


def test_what_libpq_takes_comes_through():
    url = "postgresql://db.example/x?options=-c%20geqo%3Doff&schema=own&sslmode=verify-full"
    address = address_of(url)
    assert address.schema == "own"
    found = psycopg.conninfo.conninfo_to_dict(address.conninfo)
    assert (found["options"], found["sslmode"]) == ("-c geqo=off", "verify-full")
