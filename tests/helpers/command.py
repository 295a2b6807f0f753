"""The command line, called in this process."""

import sys

import pytest

from adats import cli


def call(monkeypatch, *words):
    """The exit code of the command."""
    monkeypatch.setattr(sys, "argv", ["adats", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.run()
    return stop.value.code or 0
