"""`gar compare`: run the planned cells that are not finished, then write the tables."""

from rich.console import Console

from gar.analysis.style import save_figure
from gar.comparison.executors import Executor
from gar.comparison.plan import planned_runs
from gar.comparison.result import check_paired, finished_results
from gar.comparison.run import run_cells
from gar.comparison.settings import ComparisonSettings, near, read_comparison
from gar.comparison.tables import comparison_tables, markdown, missing_note, result_notes, row_curves
from gar.config import dump_config
from gar.errors import ConfigError
from gar.records import write_atomic
from gar.records.lock import writer_lock

_REPORT_SECONDS = 120.0  # longest wait while another `gar compare` writes the same report


class Comparison:
    """A comparison and its state. `only` and `seed` choose some of its runs."""

    def __init__(self, source: str, *, only: str | None = None, seed: int | None = None):
        self._source = source
        self.settings: ComparisonSettings = read_comparison(source)
        self.planned = planned_runs(self.settings, source)
        labels, seeds = [row.label for row in self.settings.runs], self.settings.seeds
        if only not in (None, *labels):
            raise ConfigError(f"{self.settings.name} has no row {only!r}.{near(str(only), labels)}")
        if seed not in (None, *seeds):
            raise ConfigError(f"{self.settings.name} has no seed {seed}. Its seeds: {', '.join(map(str, seeds))}.")
        self.chosen = [run for run in self.planned if only in (None, run.label) and seed in (None, run.seed)]
        self._console = Console(highlight=False)

    def run(self, executor: Executor) -> bool:
        """Run what is not finished, then write the report, unless only some rows or seeds were chosen.

        Returns whether every run that was chosen has a result.
        """
        run_cells(self.chosen, executor, self._print)
        if len(self.chosen) == len(self.planned):
            return self.report()
        finished = len(finished_results(self.chosen))
        self._print(f"{finished} of {len(self.chosen)} runs have a result. Tables: gar compare {self._source} --report")
        return finished == len(self.chosen)

    def report(self) -> bool:
        """Write `table.md` and the curves from the results so far. Returns whether every run has a result."""
        results = finished_results(self.planned)
        check_paired(results)
        tables = comparison_tables(
            results,
            against={row.label: self.settings.against(row) for row in self.settings.runs},
            seeds=self.settings.seeds,
            ks=self.planned[0].config.evaluate.pass_at_k,
        )
        notes = [*missing_note(self.planned, results), *result_notes(results)]
        folder = self.settings.results_folder
        with writer_lock(folder, wait_seconds=_REPORT_SECONDS):
            text = markdown(self.settings.name, tables, notes)
            write_atomic(folder / "table.md", text)
            pictures = save_figure(row_curves(results), folder / "curves") if results else []
        self._print("\n".join([text, *map(str, [folder / "table.md", *pictures])]))
        return len(results) == len(self.planned)

    def show_plan(self) -> None:
        """Print the settings of the first run, and what would run."""
        results = finished_results(self.chosen)
        to_do = [run.title for run in self.chosen if (run.label, run.seed) not in results]
        self._print(f"{self.chosen[0].title}, in {self.chosen[0].folder}:\n\n{dump_config(self.chosen[0].config)}")
        self._print("\n".join([*to_do, f"{len(to_do)} of {len(self.chosen)} runs to do."]))

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
