"""What an experiment is: what to run, how to judge it, and how to show it."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from adats import plots
from adats.paper.experiments import figures, records, report_text
from adats.paper.experiments.claims import Claim, judge
from adats.paper.experiments.panels import Options, Outcome, Panel, run_panel
from adats.paper.experiments.report_text import Record, ReportParts
from adats.simulation.problems import Problem
from adats.simulation.provenance import parquet_bytes

Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much
Advance = Callable[[int], None]  # how much more is done


Draw = Callable[[Sequence[Outcome]], "plots.Figure"]
Drawings = Mapping[str, Draw]
Tables = Mapping[str, Callable[[Sequence[Outcome]], records.Columns]]


class RunRequest(NamedTuple):
    """What an experiment is asked for."""

    options: Options
    data: Path | None = None  # a folder with the files of a dataset
    progress: Progress | None = None  # of work before the first part


class ExperimentPart(NamedTuple):
    """Something to run; the function is given what to call when more is done."""

    label: str
    run: Callable[[Advance], Sequence[Outcome]]


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """Parts to run, figures and tables of what came out, and a report that checks claims."""

    name: str
    title: str
    claims: tuple[Claim, ...]
    runs: int = 100
    needs_numba: bool = False
    takes_files: bool = False
    quick: "Experiment | None" = None  # a small version, for a first look

    @abstractmethod
    def steps(self, runs: int) -> int:
        """How much there is to do, as progress counts it."""

    @abstractmethod
    def parts(self, request: RunRequest) -> list[ExperimentPart]:
        """What to run. What is missing for it is found here, before anything runs."""

    @abstractmethod
    def figures(self) -> Drawings:
        """How to draw each figure, by its name."""

    @abstractmethod
    def tables(self) -> Tables:
        """How to fill each table, by its name."""

    @abstractmethod
    def report_parts(self, outcomes: Sequence[Outcome]) -> ReportParts:
        """What the report has that other reports do not have."""

    def small(self) -> "Experiment":
        """For a first look: its small version, or fewer runs."""
        few = replace(self, runs=max(10, self.runs // 10), title=f"{self.title}; a quick look")
        return self.quick or few

    def called(self, data_name: str) -> "Experiment":  # noqa: ARG002
        """The same where the data have this name."""
        return self

    def file_names(self) -> tuple[str, ...]:
        """All that is written but the report."""
        drawn = [f"{name}.{kind}" for name in self.figures() for kind in plots.KINDS]
        return *drawn, *(f"{name}.parquet" for name in self.tables()), "report.json"

    def drawn(self, outcomes: Sequence[Outcome]) -> dict[str, bytes]:
        """All figures as files."""
        drawn = {name: draw(outcomes) for name, draw in self.figures().items()}
        return {
            f"{name}.{kind}": plots.rendered(figure, kind)
            for name, figure in drawn.items()
            for kind in plots.KINDS
        }

    def written(self, outcomes: Sequence[Outcome], record: Record) -> dict[str, bytes]:
        """All that is not drawn, as files: tables, and the report in two forms."""
        parts = self.report_parts(outcomes)
        judged = judge(self.claims, parts.judged)
        report = report_text.report(self.title, parts, judged, self.file_names(), record)
        data = report_text.report_data(self.name, self.title, judged, record)
        tables = {
            f"{name}.parquet": parquet_bytes(fill(outcomes), record)
            for name, fill in self.tables().items()
        }
        text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        return {**tables, "report.json": text.encode(), "report.md": report.encode()}

    def verdicts(self, outcomes: Sequence[Outcome]) -> str:
        """The verdicts on all claims, as a table in Markdown."""
        return report_text.verdicts(judge(self.claims, self.report_parts(outcomes).judged))


@dataclass(frozen=True, kw_only=True)
class PanelExperiment(Experiment):
    """Panels, one figure of them or several, and the regrets of all."""

    about: str
    panels: tuple[Panel, ...]
    draw: Draw = figures.regret_panels
    drawings: Mapping[str, tuple[str, Draw]] = field(default_factory=dict)  # captions, and how
    sections: Callable[[Sequence[Outcome]], Sequence[str]] = lambda _: ()  # before the regrets

    def steps(self, runs: int) -> int:
        """Runs over all panels."""
        return sum(panel.total_runs(runs) for panel in self.panels)

    def parts(self, request: RunRequest) -> list[ExperimentPart]:
        return [
            ExperimentPart(panel.label, partial(_run, panel, panel.problem(), request.options))
            for panel in self.panels
        ]

    def figures(self) -> Drawings:
        if self.drawings:
            return {name: draw for name, (_, draw) in self.drawings.items()}
        return {self.name: self.draw}

    def tables(self) -> Tables:
        return {"records": records.records, "curves": records.curves}

    def report_parts(self, outcomes: Sequence[Outcome]) -> ReportParts:
        first = outcomes[0].result
        sizes = {(o.result.tasks, o.result.rounds) for o in outcomes}
        size = f"{first.tasks} tasks, {first.rounds} rounds a task, " if len(sizes) == 1 else ""
        settings = (
            f"{size}{first.runs} runs, "
            f"seed {first.seed}. Regret is expected regret, summed over tasks and averaged over "
            "runs; the standard error is the standard deviation of the runs over √runs, here and "
            "in the bands of the figure."
        )
        captions = {name: caption for name, (caption, _) in self.drawings.items()}
        images = [
            f"![{caption}]({name}.png)"
            for name, caption in (captions or {self.name: self.title}).items()
        ]
        tables = [
            *self.sections(outcomes),
            "## Total regret",
            report_text.total_regrets(outcomes),
        ]
        return ReportParts([self.about, settings, *images], tables, outcomes, outcomes)


def _run(panel: Panel, problem: Problem, options: Options, advance: Advance) -> list[Outcome]:
    return [run_panel(panel, problem, **options, progress=advance)]
