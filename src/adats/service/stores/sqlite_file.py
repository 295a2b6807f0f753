"""The files of a store in SQLite: its witness, copies of it, and whether all is whole.

Beside the file lies its witness: how many commits there have been, written after each of them. A
store with fewer commits than its witness has lost some, and is not opened.
"""

import fcntl
import os
import sqlite3
import stat
import struct
from contextlib import suppress
from pathlib import Path

from adats.models.core.errors import FileFormatError
from adats.service.errors import DamagedStore
from adats.service.stores.sqlite_schema import (
    APPLICATION_ID,
    VERSION,
    bring_up_to_date,
    missing_part,
    version_of,
)

CACHE_SIZE = 32_000  # kilobytes of the file that are kept in memory
MOST_FOR_FULL_CHECK = 50e6  # bytes of a store that is read as a whole at the start
PRIVATE = 0o600  # the mode of all files of a store
LOCK_WAIT = 5.0  # seconds that a view or a command waits for a lock; the engine does not wait


class Witness:
    """How many commits there have been, beside the store; and the lock on it."""

    def __init__(self, store: Path) -> None:
        self._file = os.open(f"{store}-witness", os.O_RDWR | os.O_CREAT, PRIVATE)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise FileFormatError(f"{store} is in use by another process") from None

    def write(self, count: int) -> None:
        os.pwrite(self._file, struct.pack("<q", count), 0)

    def close(self) -> None:
        os.close(self._file)


sync_file = getattr(os, "fdatasync", os.fsync)  # its content, and its size


def commits_witnessed(path: Path) -> int:
    """The commits that the witness of a store knows of; 0 if there is none."""
    try:
        kept = Path(f"{path}-witness").read_bytes()
    except FileNotFoundError:
        return 0
    return int(struct.unpack("<q", kept)[0]) if len(kept) == 8 else 0


def real_path(path: str | os.PathLike[str]) -> Path:
    """Where a store is, whatever links lead there: its log and its lock are beside the file."""
    return Path(os.path.realpath(path))


def check_file(path: Path, least: int = 0, *, whole: bool = False) -> int:
    """The commits of a store that is whole, or new; raises if it is not, and changes nothing.

    There have to be `least`, and as many as the witness knows of. What is large is not read as a
    whole, unless that is asked for: rows have checksums, and the service looks at all of them.
    """
    _check_links(path)
    remedy = (
        "nothing was changed; bring its files back as they were, or put a copy of the store here "
        f"and remove {path}-wal, -shm and -witness"
    )
    least = max(least, commits_witnessed(path))
    log = Path(f"{path}-wal")
    commits, found = 0, ["ok"]
    if not _size(path):
        left = log if _size(log) else f"{path}-witness" if least else None
        if left is not None:  # SQLite would remove the log
            state = "empty" if path.exists() else "gone"
            raise FileFormatError(f"{path} is {state}, but it was not, says {left}; {remedy}")
    else:
        try:  # where there is no log, none must be made
            connection = connect(path, mode="ro" if log.exists() else "ro&immutable=1")
            try:
                if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    _check_kind(connection, path)
                    if whole or _size(path) < MOST_FOR_FULL_CHECK:
                        found = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
                    commits = _commits(connection)
                    (page,) = connection.execute("PRAGMA page_size").fetchone()
                    if _size(path) % page and not _size(log):
                        found = ["its last page is cut off"]
            finally:
                connection.close()
        except sqlite3.OperationalError as error:
            raise FileFormatError(f"{path} cannot be read: {error}; nothing was changed") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise FileFormatError(f"{path} is damaged or not a store: {error}; {remedy}") from None
    if found != ["ok"]:
        listed = "; ".join(" ".join(found).splitlines())
        raise FileFormatError(f"{path} is damaged: {listed}; {remedy}")
    if commits < least:
        raise FileFormatError(
            f"{path} is damaged: it has {commits} commits, but {least} were acknowledged (is {log} "
            f"whole?); {remedy}; to go on with what is left, remove {path}-witness alone"
        )
    return commits


def _commits(connection: sqlite3.Connection) -> int:
    counted = connection.execute("SELECT count FROM commits").fetchall()
    if len(counted) != 1 or not isinstance(counted[0][0], int):
        raise sqlite3.DatabaseError("its commits are not counted any more")
    return int(counted[0][0])


def open_to_write(path: Path, *, wait: float = 0.0, upgrade: bool = True) -> sqlite3.Connection:
    """A connection that writes; a new file becomes a store, and an old store one of this version.

    Without `upgrade` it stays what it is.
    """
    _keep_private(path)
    try:
        connection = connect(path, mode="rwc", wait=wait)
        if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise sqlite3.OperationalError("there can be no write-ahead log in its folder")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = {-CACHE_SIZE}")
        connection.execute("PRAGMA secure_delete = ON")  # what is forgotten is overwritten
        version = version_of(connection)
        if version == 0:
            bring_up_to_date(connection)
        elif upgrade and version < VERSION:
            _upgrade(connection, path, version)
    except (sqlite3.Error, DamagedStore) as error:
        raise FileFormatError(f"{path} cannot be opened: {error}") from None
    return connection


def _upgrade(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Bring a store that an earlier version made to this one; nobody else uses it."""
    _copy(connection, copy_of_version(path, version))
    bring_up_to_date(connection)


def copy_of_version(path: Path, version: int) -> Path:
    """Where a store is kept as it was before it was brought up to date."""
    return Path(f"{path}-version-{version}")


def version_at(path: Path) -> int:
    """The version of the store in a file."""
    connection = connect(path, mode="ro")
    try:
        return version_of(connection)
    except sqlite3.Error as error:
        raise FileFormatError(f"{path} cannot be read: {error}") from None
    finally:
        connection.close()


def back_up(path: Path, target: Path) -> None:
    """A whole copy of a store, which may be in use."""
    check_file(path)
    connection = connect(path, mode="ro")
    try:
        _copy(connection, target)
    except sqlite3.Error as error:
        raise FileFormatError(f"{path} cannot be copied to {target}: {error}") from None
    finally:
        connection.close()


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    """A whole copy, which only its owner may read; what is there is replaced at the end."""
    unfinished = Path(f"{target}-unfinished")
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE))
    try:
        copy = connect(unfinished, mode="rw")
        try:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log
        finally:
            copy.close()
        with open(unfinished, "rb") as written:
            os.fsync(written.fileno())
        os.replace(unfinished, target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _keep_private(path: Path) -> None:
    """What the store is in, or will be, only its owner may read; SQLite gives its log that mode."""
    with suppress(OSError):  # if it is there already it is not opened, see `_check_links`
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))
    for part in ("", "-wal", "-shm", "-witness"):
        name = f"{path}{part}"
        with suppress(OSError):  # not there, or a file system without modes
            found = os.stat(name)
            if found.st_uid == os.geteuid() and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                os.chmod(name, found.st_mode & stat.S_IRWXU)


def connect(path: Path, *, mode: str, wait: float = LOCK_WAIT) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=wait
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def file_ids(path: Path) -> tuple[int, ...]:
    """Which files the store is in, whatever their names are now."""
    try:
        return tuple(os.stat(name).st_ino for name in (path, f"{path}-wal"))
    except OSError:
        return ()


def _check_links(path: Path) -> None:
    """That the file has one name. It is not opened: closing it would drop the locks of SQLite."""
    names = os.stat(path).st_nlink if path.exists() else 1
    if names > 1:
        raise FileFormatError(
            f"{path} has {names} names (hard links), and each would have a lock and a log of its "
            "own; nothing was changed; remove the other names, or serve a copy of the file"
        )


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    """That this is a store of this version or an earlier, with the tables that it has to have."""
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    version = version_of(connection)
    if kind != APPLICATION_ID:
        raise FileFormatError(
            f"{path} is not a store of adats; nothing was changed; give the name of a store, or of "
            "a new file"
        )
    if not 1 <= version <= VERSION:
        raise FileFormatError(
            f"{path} has version {version}; this adats reads 1 to {VERSION}: use the one that "
            "wrote it"
        )
    missing = missing_part(connection, version)
    if missing is not None:
        raise sqlite3.DatabaseError(f"its {missing} is not as it was made")
