"""Who may send which request."""

from adats.service.errors import Forbidden, Unauthorized
from adats.service.http.operations import Operation
from adats.service.keys import OPEN_TENANT, ApiKeys

NOBODY = ""  # the tenant of requests that are open to everybody


class AccessControl:
    """Who may come in.

    With keys: who has one. Without: everybody on this machine, so requests have to be addressed
    to it by one of its `hosts`; a page of another site would use a name of its own. Once there
    were keys, or if there are no such hosts, no request comes in without one.
    """

    def __init__(self, keys: ApiKeys, hosts: tuple[str, ...] | None) -> None:
        self._hosts = hosts
        self._last_host: bytes | None = None  # that was good
        self._needs_key = hosts is None
        self.renew(keys)

    def renew(self, keys: ApiKeys) -> None:
        self._keys = keys
        self._needs_key = self._needs_key or len(keys) > 0

    def tenant(self, headers: dict[bytes, bytes], operation: Operation) -> str:
        """Whose experiments the request is about; it raises if it may not do this operation."""
        if operation.open:
            return NOBODY
        if not self._needs_key:
            self._check_host(headers.get(b"host", b""))
            return OPEN_TENANT
        scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        access = self._keys.access(key if scheme.lower() == "bearer" else None)
        if access is None:
            raise Unauthorized("give a valid key: Authorization: Bearer adats_…")
        if operation.write and not access.write:
            raise Forbidden("this key may only read")
        return access.tenant

    def _check_host(self, host: bytes) -> None:
        if host == self._last_host:
            return
        name, _, port = host.decode("latin-1").rpartition(":")
        if not port.isdecimal():
            name = host.decode("latin-1")
        if self._hosts is None or name.lower() not in self._hosts:
            own = " or ".join(dict.fromkeys(self._hosts or ()))
            raise Forbidden(f"without keys, address this service as {own}, not {name}")
        self._last_host = host
