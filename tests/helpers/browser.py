"""A real browser for tests: Playwright's own Chromium, or the machine's."""

import shutil
from contextlib import contextmanager

import pytest

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def browser():
    from playwright.sync_api import Error, sync_playwright  # only the heavy tests have it

    with sync_playwright() as playwright:
        own = next((path for name in NAMES if (path := shutil.which(name))), None)
        try:
            running = playwright.chromium.launch(executable_path=own, args=OPTIONS)
        except Error:
            pytest.fail(
                "there is no browser: install Chromium, or run: playwright install chromium"
            )
        try:
            yield running
        finally:
            running.close()
