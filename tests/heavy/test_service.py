"""Schemathesis over the whole description of the service, for some minutes."""

import pytest

import fuzzing
from adats.service.http.operations import OPERATIONS
from adats.service.keys import new_key
from adats.service.stores.sqlite import SQLiteKeys
from served import call, process

pytestmark = pytest.mark.heavy


def add_key(db, tenant, *, write):
    key, row = new_key(tenant, write=write)
    with SQLiteKeys(db, make=True) as kept:
        kept.add(row)
    return key


def test_schemathesis_finds_no_fault_in_what_is_described(tmp_path):
    with process(tmp_path / "x.db") as service:
        codes = fuzzing.fuzz(service.url, tmp_path, "-n", "60", "--seed", "2")
        assert call(f"{service.url}/readyz")[0] == 200
    assert sum(codes.values()) > 1500


def test_schemathesis_finds_no_fault_in_sequences_of_requests(tmp_path):
    with process(tmp_path / "x.db") as service:
        fuzzing.prepare(service.url)
        options = ("--phases", "fuzzing,stateful", "-n", "100", "--seed", "3", "--mode", "positive")
        codes = fuzzing.fuzz(service.url, tmp_path, *options, description=fuzzing.narrowed())
        assert call(f"{service.url}/readyz")[0] == 200
    done = {operation for operation, code in codes if code < 300}
    assert len(done) == len(OPERATIONS)


def test_schemathesis_finds_no_fault_with_a_key_that_may_write(tmp_path):
    db = tmp_path / "x.db"
    key = add_key(db, "shop", write=True)
    with process(db) as service:
        fuzzing.prepare(service.url, key)
        options = ("-n", "30", "--seed", "4", "--header", f"Authorization: Bearer {key}")
        described = fuzzing.narrowed(keyed=True)
        codes = fuzzing.fuzz(service.url, tmp_path, *options, description=described)
        counted = call(f"{service.url}/metrics", key=key)[1].decode()
        assert 'code="401",operation="decide"' in counted  # it leaves the key out, on purpose
    assert {200, 409, 422} <= {code for operation, code in codes if operation.endswith("/decide")}


def test_schemathesis_changes_nothing_with_a_key_that_may_read(tmp_path):
    db = tmp_path / "x.db"
    write, read = (add_key(db, "shop", write=write) for write in (True, False))
    with process(db) as service:
        fuzzing.prepare(service.url, write)
        before = call(f"{service.url}/v1/experiments/gaussian", key=write)[1]
        options = ("-n", "30", "--seed", "5", "--header", f"Authorization: Bearer {read}")
        codes = fuzzing.fuzz(service.url, tmp_path, *options, description=fuzzing.narrowed())
        assert call(f"{service.url}/v1/experiments/gaussian", key=write)[1] == before
    changed = {o for o, code in codes if not o.startswith("GET") and code < 300}
    assert changed == set()
