"""Between a worker and PostgreSQL: it passes on what is sent, until it is told to cut."""

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import psycopg

COMMIT = b"COMMIT\x00"


class Relay:
    """`cut` is "before" or "after": the connection ends there, at the next commit.

    `shut`: nobody gets through any more, from then on.
    """

    def __init__(self, url):
        given = psycopg.conninfo.conninfo_to_dict(url.replace("&schema=", "&application_name="))
        self._target = (given["host"], int(given.get("port", 5432)))
        self._folder = tempfile.TemporaryDirectory()
        self.cut, self.shut, self.cuts = None, False, 0
        self.shut_when_cut = False
        self._open = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(Path(self._folder.name, ".s.PGSQL.5432")))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def folder(self):
        return self._folder.name

    def url(self, url):
        """The same store, through here."""
        return url.replace(self._target[0], self.folder)

    def close(self):
        self._listening.close()
        self.end_all()
        self._folder.cleanup()

    def end_all(self):
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.shut:
                    client.close()
                    continue
                server = self._connect()
                self._open += [client, server]
                muted = threading.Event()  # what the server says is not passed on
                for ends in ((client, server, True), (server, client, False)):
                    work = threading.Thread(target=self._pass, args=(*ends, muted), daemon=True)
                    work.start()

    def _connect(self):
        host, port = self._target
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host, port))

    def _pass(self, source, target, asked, muted):
        with suppress(OSError):
            while data := source.recv(65536):
                if asked and self.cut is not None and COMMIT in data:
                    how, self.cut = self.cut, None
                    self.cuts += 1
                    self.shut = self.shut_when_cut
                    if how == "before":
                        break
                    muted.set()
                elif not asked and muted.is_set():
                    break  # it has happened
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
