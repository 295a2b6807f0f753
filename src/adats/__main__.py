"""The command `adats`: says in one line what to install where the command line is missing."""

import importlib.util
import sys


def main() -> None:
    if any(importlib.util.find_spec(name) is None for name in ("typer", "rich")):
        sys.exit("adats: the command line is an extra: pip install 'adats[cli]'")
    from adats.cli import run

    run()


if __name__ == "__main__":
    main()
