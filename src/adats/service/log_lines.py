"""The log of the service: lines of text or of JSON, and few of them when much goes wrong."""

import json
import logging
import time
from typing import Literal

LogKind = Literal["text", "json"]


class OneASecond(logging.Filter):
    """Of warnings and errors at most one a second; the next says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._next, self._left_out = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        if self._next - 1.0 <= record.created < self._next:  # a clock may be put back
            self._left_out += 1
            return False
        self._next = record.created + 1.0
        if self._left_out:
            record.msg = f"{record.getMessage()} ({self._left_out} lines left out before)"
            record.args, self._left_out = None, 0
        return True


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
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if kind == "json" else TextLines())
    handler.addFilter(OneASecond())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
