"""The log of the service: lines of text or of JSON, and few of them when much goes wrong."""

import json
import logging
import os
import threading
import time
from contextlib import nullcontext
from typing import Literal, TextIO

LogKind = Literal["text", "json"]
MOST_HELD = 100  # lines that differ


class OneASecond(logging.StreamHandler[TextIO]):
    """Of warnings and errors at most one line a second. Those between are held back, equal ones as
    one; what is left is said when the process stops."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._held: dict[str, tuple[logging.LogRecord, int]] = {}  # with how often
        self._left_out, self._next = 0, 0.0
        self._timer: threading.Timer | None = None
        os.register_at_fork(after_in_child=self._held.clear)  # the other process says them

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            super().emit(record)
            return
        text = record.getMessage()
        if text not in self._held and len(self._held) == MOST_HELD:
            self._left_out += 1
            return
        first, times = self._held.get(text, (record, 0))
        self._held[text] = first, times + 1
        if self._timer is None or not self._timer.is_alive():  # as in a process that was forked
            self._go_on()

    def close(self) -> None:
        with self.lock or nullcontext():
            if self._timer is not None:
                self._timer.cancel()
            while self._held:
                self._say()
        super().close()

    def _go_on(self) -> None:
        """Say one if it is time; come again while there may be more."""
        with self.lock or nullcontext():
            self._timer = None
            wait = self._next - time.monotonic()
            if wait <= 0 and self._held:
                self._say()
                self._next, wait = time.monotonic() + 1.0, 1.0
            if self._held:
                self._timer = threading.Timer(wait, self._go_on)
                self._timer.daemon = True
                self._timer.start()

    def _say(self) -> None:
        record, times = self._held.pop(next(iter(self._held)))
        left_out, self._left_out = self._left_out, 0
        more = [f"{times} times"] * (times > 1) + [f"{left_out} others left out"] * (left_out > 0)
        if more:
            record.msg, record.args = f"{record.getMessage()} ({', '.join(more)})", None
        super().emit(record)


class TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        found, request = super().formatMessage(record), getattr(record, "request_id", None)
        return found if request is None else f"{found}, request {request}"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{when}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "process": record.process,
        }
        request = getattr(record, "request_id", None)
        if request is not None:
            line["request_id"] = request
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up(kind: LogKind) -> None:
    """For all of the process, on its standard error."""
    handler = OneASecond()
    handler.setFormatter(JsonLines() if kind == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
