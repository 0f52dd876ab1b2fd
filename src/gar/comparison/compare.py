"""`gar compare`: run what is planned and not finished, then write the tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gar.comparison.cluster import Cluster, run_on_cluster
from gar.comparison.plan import planned_runs
from gar.comparison.progress import ComparisonProgress, estimate
from gar.comparison.report import write_report
from gar.comparison.runner import run_side_by_side
from gar.comparison.settings import ComparisonSettings, read_comparison
from gar.comparison.store import Results, failures, finished_results, remove_others
from gar.comparison.workers import Workers
from gar.config import dump_config
from gar.records.dotted import leaves
from gar.records.lock import only_writer

_REPORT_SECONDS = 120.0  # longest wait while another `gar compare` writes the same report


class Comparison:
    """A comparison and where it stands.

    Args:
        source: A YAML file, or the name of a comparison that ships with the package.
        only: Run this row alone, by its label.
        seed: Run this seed alone.
        console: Where to print.

    Raises:
        ConfigError: The comparison, its base run or one of its rows is wrong.
    """

    def __init__(
        self,
        source: str,
        *,
        only: str | None = None,
        seed: int | None = None,
        console: Console | None = None,
    ):
        self._source = source
        self.settings: ComparisonSettings = read_comparison(source)
        self.settings.check_cell(only, seed)
        self.planned = planned_runs(self.settings, source)
        self._chosen = [run for run in self.planned if only in (None, run.label) and seed in (None, run.seed)]
        self._console = console or Console(highlight=False)

    def run(self, workers: Workers | Cluster) -> bool:
        """Run what is not finished, then write the report; of some rows or seeds alone, write none.

        Args:
            workers: What trains: this machine, or the jobs of a cluster.

        Returns:
            Whether every run that was chosen has a result.

        Raises:
            RecordError: A result was made under other settings, the results are not paired, or a file cannot be
                written.
        """
        results = finished_results(self._chosen)
        waiting = [run for run in self._chosen if (run.label, run.seed) not in results]
        num_runs = len(self._chosen)
        on_cluster = isinstance(workers, Cluster)
        parallel = workers.parallel if on_cluster else len(workers.devices)
        progress = ComparisonProgress(
            num_runs, num_runs - len(waiting), parallel, _wall_seconds(results), console=self._console
        )
        with progress:
            if on_cluster:
                run_on_cluster(waiting, results, cluster=workers, progress=progress)
            else:
                run_side_by_side(waiting, results, workers=workers, progress=progress)
        if num_runs == len(self.planned):
            return self.report()
        finished = len(finished_results(self._chosen))
        self._console.print(
            f"{finished} of {num_runs} runs have a result. Tables: gar compare {escape(self._source)} --report",
            soft_wrap=True,
        )
        return finished == num_runs

    def report(self) -> bool:
        """Write tables and figures from the results so far. Nothing is run.

        Returns:
            Whether every run has a result.

        Raises:
            RecordError: As `run`.
        """
        results = finished_results(self.planned)
        failed = failures(self.planned)
        with only_writer(self.settings.results_folder, wait_seconds=_REPORT_SECONDS):
            paths = write_report(self.settings, self.planned, results, [*failed.values()])
        for path in paths:
            self._console.print(escape(str(path)), soft_wrap=True)
        self._console.print(self._rows(results, failed))
        return len(results) == len(self.planned)

    def remove_others(self) -> None:
        """Remove results that were made under other settings, so that `run` makes them anew."""
        for run in remove_others(self._chosen):
            self._console.print(f"{escape(run.title)}: removed, made under other settings", soft_wrap=True)

    def show_plan(self, workers: Workers) -> None:
        """Print the base run, the rows with their counts, and how long these workers will take.

        Raises:
            RecordError: A result was made under other settings.
        """
        results = finished_results(self.planned)
        self._console.print(f"{escape(self._chosen[0].title)}:\n", style="bold")
        self._console.print(dump_config(self._chosen[0].config), markup=False)
        self._console.print(self._rows(results, failures(self.planned)))
        to_do = sum((run.label, run.seed) not in results for run in self._chosen)
        side_by_side = len(workers.devices)
        left = estimate(to_do, side_by_side, _wall_seconds(results))
        expected = f"about {left}" if left else "no estimate before one has finished" if to_do else "nothing to do"
        self._console.print(f"{to_do} of {len(self._chosen)} runs to do, {side_by_side} side by side: {expected}.")
        if workers.devices[0] is not None:
            self._console.print(f"GPUs of each: {'; '.join(map(str, workers.devices))}")

    def _rows(self, results: Results, failed: Mapping[tuple[str, int], Any]) -> Table:
        """Table of what is finished and what failed, by row."""
        seeds = self.settings.seeds
        table = Table(title=f"{escape(self.settings.name)}: seeds {', '.join(map(str, seeds))}", title_justify="left")
        for heading in ("row", "what it is", "against", "finished", "failed"):
            table.add_column(heading, justify="right" if heading in ("finished", "failed") else "left", overflow="fold")
        for row in self.settings.runs:
            finished, broken = (sum(label == row.label for label, _ in keys) for keys in (results, failed))
            method = [row.method] if row.method != row.label else []
            settings = ", ".join([*method, *(f"{name} {value}" for name, value in leaves(row.settings))])
            words = (row.label, settings, ", ".join(self.settings.against(row)))
            table.add_row(*(escape(word or "-") for word in words), f"{finished} of {len(seeds)}", str(broken or "-"))
        return table


def _wall_seconds(results: Results) -> Sequence[float]:
    return [result.wall_seconds for result in results.values()]
