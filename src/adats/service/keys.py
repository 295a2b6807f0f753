"""API keys: of a tenant, to read or to write too. Only their hashes are kept."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from adats.service.stores.interface import KeyRow

PREFIX = "adats"
NO_HASH = bytes(32)  # no secret has this hash
REMOVED = "removed"  # the id of a row that is no key: it says that there were some
OPEN_TENANT = "default"  # of all requests, where there are no keys


class Access(NamedTuple):
    tenant: str
    write: bool


def new_key(tenant: str, *, write: bool) -> tuple[str, KeyRow]:
    """A key to hand out, once, and the row to keep."""
    if not tenant or len(tenant) > 100:
        raise ValueError(f"a tenant is named by 1 to 100 characters, got {tenant!r}")
    name, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    row = KeyRow(name, tenant, hash_of(secret), int(write), time.time())
    return f"{PREFIX}_{name}_{secret}", row


def mark_of_removed() -> KeyRow:
    """What stays when a key is removed."""
    return KeyRow(REMOVED, "", NO_HASH, int(False), time.time())


class ApiKeys:
    """The keys there are, and whether there ever were any."""

    def __init__(self, rows: Iterable[KeyRow]) -> None:
        self._rows = {row.id: row for row in rows}
        self.were_used = bool(self._rows)
        self._rows.pop(REMOVED, None)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[KeyRow]:
        return iter(self._rows.values())

    def get(self, name: str) -> KeyRow | None:
        return self._rows.get(name)

    def access(self, key: str | None) -> Access | None:
        """What a key allows; None if it is missing, or is none of these."""
        prefix, _, rest = (key or "").partition("_")
        name, _, secret = rest.partition("_")
        row = self._rows.get(name)
        kept = NO_HASH if row is None else row.hash
        same = hmac.compare_digest(hash_of(secret), kept)  # always, and in constant time
        if row is None or not same or prefix != PREFIX:
            return None
        return Access(row.tenant, bool(row.write))


def hash_of(secret: str) -> bytes:
    """A secret is 256 random bits: one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).digest()
