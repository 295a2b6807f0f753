"""Signing in with a key: a cookie that says which key it was, until when, sealed by the key's hash.

Nothing is kept here, so any worker knows any session; when a key is removed its sessions end.
"""

import hashlib
import hmac
import time
from http.cookies import CookieError, SimpleCookie

from adats.service.keys import Access, ApiKeys
from adats.service.stores.interface import KeyRow

COOKIE = "adats_session"
LASTS = 8 * 3600  # seconds


def new_session(keys: ApiKeys, key: str, now: float | None = None) -> str | None:
    """The value of a cookie; None if there is no such key."""
    row = None if keys.access(key) is None else keys.get(key.split("_")[1])
    if row is None:
        return None
    until = int((time.time() if now is None else now) + LASTS)
    return f"{row.id}.{until}.{_seal(row, until)}"


def access_of(keys: ApiKeys, session: str, now: float | None = None) -> Access | None:
    """What a session allows, which is to read; None if it is over, or was never given."""
    name, _, rest = session.partition(".")
    end, _, seal = rest.partition(".")
    row = keys.get(name)
    if row is None or not (end.isascii() and end.isdecimal() and len(end) < 12):
        return None
    same = hmac.compare_digest(_seal(row, int(end)).encode(), seal.encode())
    if not same or int(end) < (time.time() if now is None else now):
        return None
    return Access(row.tenant, write=False)


def _seal(row: KeyRow, until: int) -> str:
    return hmac.new(row.hash, f"page {row.id} {until}".encode(), hashlib.sha256).hexdigest()


def session_in(header: bytes) -> str:
    """The session among the cookies of a request; empty if there is none."""
    try:
        found = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def cookie(session: str | None, *, secure: bool) -> str:
    """The header that keeps a session, or ends it."""
    value, age = (session, LASTS) if session else ("", 0)
    more = "; Secure" if secure else ""
    return f"{COOKIE}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{more}"
