"""`adats decide`: an action for each row of a table, of any size."""

from pathlib import Path
from typing import Annotated, Any

import typer

from adats.agents.agent import load
from adats.agents.stateless import BATCH, Scorer
from adats.cli.common import check_file, progress_bar, say
from adats.models import prior_files
from adats.models.core.errors import RowsError

PER_DECISION = "Column of decisions; without it a task has one decision."
Ids = Annotated[str | None, typer.Option("--id", help=PER_DECISION)]
Horizon = Annotated[int | None, typer.Option(help="Rounds left, for policies that plan.")]
LIKELY = "How likely each action was, too."
Propensities = Annotated[bool, typer.Option("--propensities", help=LIKELY)]


def decide(
    agent: Annotated[Path, typer.Argument(help="An agent that was saved, or a prior file.")],
    table: Annotated[Path, typer.Argument(help="Parquet or CSV, or a folder of Parquet files.")],
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    seed: Annotated[int, typer.Option(help="The same seed, the same decisions.")],
    task: Annotated[str, typer.Option(help="Column of tasks.")] = "task",
    decision_id: Ids = None,
    horizon: Horizon = None,
    propensities: Propensities = False,
) -> None:
    """Decide for every row of a table; the agent stays as it is."""
    try:
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError:
        raise ValueError("decide is an extra: pip install 'adats[logs]'") from None
    if not table.exists():
        raise ValueError(f"{table} is not there")
    check_file("--out", out, table, agent)
    scorer = Scorer(_agent(agent), seed, horizon, propensities)
    source = pyarrow.dataset.dataset(table, format="csv" if table.suffix == ".csv" else "parquet")
    wanted = [name for name in (task, decision_id) if name]
    missing = [name for name in wanted if name not in source.schema.names]
    if missing:
        known = ", ".join(source.schema.names)
        raise ValueError(f"{table} lacks {', '.join(missing)}; its columns are {known}")
    total = source.count_rows()
    part = out.with_name(f".{out.name}.part")
    writer: Any = None
    done = 0
    try:
        with progress_bar("deciding", total) as advance:
            for rows in source.to_batches(columns=wanted, batch_size=BATCH):
                if rows.num_rows == 0:
                    continue
                try:
                    decided = scorer.record_batch(rows, (task, decision_id))
                except RowsError as error:
                    raise RowsError([done + int(i) for i in error.rows], error.why) from None
                if writer is None:
                    writer = pyarrow.parquet.ParquetWriter(part, decided.schema)
                writer.write_batch(decided)
                advance(rows.num_rows)
                done += rows.num_rows
        if writer is None:
            raise ValueError(f"{table} has no rows")
        writer.close()
        part.replace(out)
    finally:
        if writer is not None:
            writer.close()
        part.unlink(missing_ok=True)
    say(f"{total:,} decisions are in {out}")


def _agent(path: Path) -> Any:
    """An agent, or the prior that a prior file has."""
    with path.open("rb") as file:
        is_prior = file.read(1) == b"{"  # JSON
    return prior_files.load_prior(path) if is_prior else load(path)
