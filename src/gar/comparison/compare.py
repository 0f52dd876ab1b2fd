"""`gar compare`: run what is planned and not finished, then write the tables."""

from collections.abc import Sequence

import pandas as pd
from rich.console import Console

from gar.comparison.executors import Cluster, ClusterJobs, LocalPool, Workers
from gar.comparison.pairing import Results
from gar.comparison.plan import planned_runs
from gar.comparison.report import by_label, write_report
from gar.comparison.run import estimate, finished_results, run_cells
from gar.comparison.settings import ComparisonSettings, read_comparison
from gar.comparison.tables import on_screen
from gar.config import dump_config
from gar.evaluation.text_tables import NONE, aligned
from gar.records.dotted import leaves
from gar.records.lock import writer_lock

_REPORT_SECONDS = 120.0  # longest wait while another `gar compare` writes the same report


class Comparison:
    """A comparison and its state.

    Args:
        source: A YAML file, or the name of a comparison that ships with the package.
        only: Label of the only row to run; None runs all.
        seed: The only seed to run; None runs all.

    Raises:
        ConfigError: The comparison, its base run or one of its rows is wrong.
    """

    def __init__(
        self,
        source: str,
        *,
        only: str | None = None,
        seed: int | None = None,
    ):
        self._source = source
        self.settings: ComparisonSettings = read_comparison(source)
        self.settings.check_cell(only, seed)
        self.planned = planned_runs(self.settings, source)
        self._chosen = [run for run in self.planned if only in (None, run.label) and seed in (None, run.seed)]
        self._console = Console(highlight=False)

    def run(self, workers: Workers | Cluster) -> bool:
        """Run what is not finished, then write the report, unless only some rows or seeds were chosen.

        Args:
            workers: This machine, or the jobs of a cluster.

        Returns:
            Whether every run that was chosen has a result.

        Raises:
            RecordError: A result is damaged, the results are not paired, or a file cannot be written.
        """
        num_runs = len(self._chosen)
        jobs = self._chosen[0].folder.parent / "jobs"
        executor = ClusterJobs(workers, jobs) if isinstance(workers, Cluster) else LocalPool(workers)
        run_cells(self._chosen, executor, self._print)
        if num_runs == len(self.planned):
            return self.report()
        finished = len(finished_results(self._chosen))
        self._print(f"{finished} of {num_runs} runs have a result. Tables: gar compare {self._source} --report")
        return finished == num_runs

    def report(self) -> bool:
        """Write tables and figures from the results so far. Nothing is run.

        Returns:
            Whether every run has a result.

        Raises:
            RecordError: As `run`.
        """
        results = finished_results(self.planned)
        with writer_lock(self.settings.results_folder, wait_seconds=_REPORT_SECONDS):
            numbers, paths = write_report(self.settings, self.planned, results)
        self._print("\n".join(map(str, paths)))
        self._print(f"\n{on_screen(numbers)}")
        return len(results) == len(self.planned)

    def show_missing(self) -> None:
        """Print which runs have no result yet, after Ctrl-C.

        Raises:
            RecordError: A result is damaged.
        """
        results = finished_results(self._chosen)
        missing = [run for run in self._chosen if (run.label, run.seed) not in results]
        self._print(
            f"Interrupted: {len(results)} of {len(self._chosen)} runs have a result.\n"
            f"Missing: {by_label(missing) or 'none'}. Run the same command again to continue."
        )

    def show_plan(self, workers: Workers) -> None:
        """Print the base run, the rows with their counts, and how long these workers will take.

        Raises:
            RecordError: A result is damaged.
        """
        results = finished_results(self.planned)
        self._print(f"{self._chosen[0].title}, in {self._chosen[0].folder}:\n\n{dump_config(self._chosen[0].config)}")
        seeds = ", ".join(map(str, self.settings.seeds))
        self._print(aligned(f"{self.settings.name}: seeds {seeds}", self._rows(results)))
        to_do = sum((run.label, run.seed) not in results for run in self._chosen)
        side_by_side = len(workers.devices)
        left = estimate(to_do, side_by_side, _wall_seconds(results))
        expected = f"about {left}" if left else "no estimate before one has finished" if to_do else "nothing to do"
        self._print(f"{to_do} of {len(self._chosen)} runs to do, {side_by_side} side by side: {expected}.")
        if workers.devices[0] is not None:
            self._print(f"GPUs of each: {'; '.join(map(str, workers.devices))}")

    def _rows(self, results: Results) -> pd.DataFrame:
        """Finished runs, by row."""
        seeds, rows = self.settings.seeds, []
        for row in self.settings.runs:
            finished = sum(label == row.label for label, _ in results)
            method = [row.method] if row.method != row.label else []
            settings = ", ".join([*method, *(f"{name} {value}" for name, value in leaves(row.settings))])
            against = ", ".join(self.settings.against(row))
            rows.append([row.label, f"{finished} of {len(seeds)}", against or NONE, settings or NONE])
        return pd.DataFrame(rows, columns=["row", "finished", "against", "what it is"])

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


def _wall_seconds(results: Results) -> Sequence[float]:
    return [result.wall_seconds for result in results.values()]
