"""The container files: what they say, and that their commands work, outside a container."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import yaml

from adats.service.audit import check_store
from hammer import start
from postgres import new_store, server_url
from served import GAUSSIAN, call, process

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
GRANTS = re.search(r"```sql\n(.*?)```", (ROOT / "docs/guides/operations.md").read_text(), re.S)[1]


def words(instruction):
    """Of the instruction that begins like this, and ends with a list."""
    return yaml.safe_load(re.findall(rf"^{instruction}.*?(\[.*\])$", DOCKERFILE, re.M)[-1])


def adats(*command, env):
    line = [sys.executable, "-m", "adats", *command]
    return subprocess.run(line, env=env, capture_output=True, text=True, check=True).stdout


def test_the_image_is_not_roots_and_says_how_it_is():
    last = DOCKERFILE.split("FROM ")[-1]
    assert last.index("useradd") < last.index("USER adats") < last.index("ENTRYPOINT")
    assert "HEALTHCHECK" in last
    assert "pip install" not in last  # what builds it is not in it
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M):
        for name in copied.split():
            assert (ROOT / name).exists()


def test_compose_has_a_database_two_workers_and_a_proxy():
    services = COMPOSE["services"]
    assert set(services) == {"database", "tables", "one", "two", "proxy"}
    for name in ("one", "two"):
        assert services[name]["cap_drop"] == ["ALL"]
        assert (
            services[name]["depends_on"]["tables"]["condition"] == "service_completed_successfully"
        )
    assert all(f"{name}:8000" in services["proxy"]["command"] for name in ("one", "two"))
    said = str(COMPOSE)
    assert "PGPASSWORD" not in said
    assert set(COMPOSE["secrets"]) == {"db-password", "pgpass"}


def test_the_commands_work():
    found = psycopg.conninfo.conninfo_to_dict(server_url())
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS adats CASCADE")
    env = os.environ | {f"PG{k.upper()}": str(v) for k, v in found.items() if k in ("host", "port")}
    env |= {"PGUSER": found["user"], "PGDATABASE": found["dbname"]}
    assert adats(*COMPOSE["services"]["tables"]["command"], env=env).endswith("is ready\n")
    header = (ROOT / "compose.yaml").read_text()
    add = shlex.split(re.search(r"run --rm one (keys add .*)", header)[1])
    key = adats(*add, env=env).strip()
    command = words("CMD")
    assert command[:1] == ["serve"]
    db = command[command.index("--db") + 1]
    with process(db, "--host", command[command.index("--host") + 1], env=env) as service:
        url = service.url.replace("0.0.0.0", "127.0.0.1")
        check = [word.replace("http://127.0.0.1:8000", url) for word in words("HEALTHCHECK")]
        assert check[0] == "python"
        subprocess.run([sys.executable, *check[1:]], check=True)
        assert call(f"{url}/v1/experiments/x", "PUT", GAUSSIAN, key=key)[0] == 201
        assert call(f"{url}/v1/experiments/x", "PUT", GAUSSIAN)[0] == 401


def test_the_least_privileges_are_enough():
    if os.environ.get("ADATS_TEST_POSTGRES"):
        pytest.skip("roles are made in a server of our own only")
    url = new_store("least")
    schema, role = url.rpartition("=")[2], "worker"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {role}")
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(GRANTS.replace("SCHEMA adats", f"SCHEMA {schema}"))
    with process(url.replace("postgres@", f"{role}@")) as service:
        start(service.url, {"x": GAUSSIAN})
        for i in range(5):
            body = {"task": "t", "decision_id": f"d{i}"}
            assert call(f"{service.url}/v1/experiments/x/decide", "POST", body)[0] == 200
            body = {"decision_id": f"d{i}", "reward": 1.0}
            assert call(f"{service.url}/v1/experiments/x/reward", "POST", body)[0] == 200
        assert call(f"{service.url}/v1/experiments/x/arms/c", "DELETE")[0] == 200
        assert call(f"{service.url}/v1/experiments/x/tasks/t", "DELETE")[0] == 204
    assert check_store(url) == []
