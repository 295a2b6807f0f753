"""What an experiment has written, but for what differs between two runs of one seed."""

import json

from pyarrow import parquet

from adats.paper.experiments.report_text import TIMING


def contents(folder):
    """By file: its bytes, or a table without its metadata, or a report but for its record."""
    found = {}
    for path in folder.iterdir():
        if path.suffix == ".parquet":
            found[path.name] = parquet.read_table(path)
        elif path.name == "report.json":
            found[path.name] = json.loads(path.read_bytes()) | {"made": None}
        else:
            found[path.name] = path.read_bytes().split(TIMING.encode())[0]
    return found
