"""What a study may be asked for on the command line."""

import argparse


def asked(*, with_part: bool = False) -> argparse.Namespace:
    """`--quick`, `--seed` and `--runs`; `with_part`: only worlds with this in their names."""
    parser = argparse.ArgumentParser()
    if with_part:
        parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=0)
    return parser.parse_args()
