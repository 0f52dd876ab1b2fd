"""`gar eval`: measure models on benchmarks. A stopped command resumes."""

import importlib.util
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gar.cli.arguments import run_stage
from gar.cli.console import announce, show, show_table
from gar.cli.outcomes import DEGENERATE, DONE, degenerate
from gar.errors import ConfigError, UsageError
from gar.evaluation.benchmarks import BENCHMARKS
from gar.evaluation.job import GenerateJob, ScoreSettings
from gar.extras import install_command
from gar.models.files import check_model
from gar.models.hub import check_response_length
from gar.settings import ModelSettings, Settings

if TYPE_CHECKING:
    from gar.evaluation.folder import EvaluationFolder


class _Model(ModelSettings):
    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = tyro.MISSING


class _Run(GenerateJob):
    __doc__ = f"""Sample responses to the problems of benchmarks, and grade them.

      gar eval run MODEL --benchmark NAME[,NAME] [--SETTING VALUE ...]

    If it is killed, run the same command again to continue.

    Known benchmarks:
{textwrap.indent(textwrap.fill(", ".join(BENCHMARKS), 74, break_on_hyphens=False), "      ")}
    """

    model: tyro.conf.OmitArgPrefixes[_Model]  # pyright: ignore[reportIncompatibleVariableOverride]: it is frozen
    """How to load the model."""
    score: tyro.conf.OmitArgPrefixes[ScoreSettings] = ScoreSettings()

    def run(self) -> int:
        from gar.evaluation.benchmark_sets import load_sets

        if self.backend == "vllm" and importlib.util.find_spec("vllm") is None:
            raise ConfigError(f"--backend vllm needs vLLM: {install_command('vllm')}")
        check_model(self.model)
        check_response_length(self.model.path, self.max_new_tokens or 0, "--max-new-tokens")
        sets = load_sets(self, largest_k=max(self.score.pass_at_k, default=1))
        for note in (note for each in sets for note in each.identity["benchmark"]["notes"]):
            announce(f"Note: {note}")
        announce("loading torch and transformers ...")
        if self.device is not None:
            from gar.models.device import choose_device

            choose_device(self.device)
        from gar.evaluation.generate import generate
        from gar.models.load import quiet_libraries

        quiet_libraries()
        return _score_folders(generate(self, sets, announce), self.score)


class _Score(ScoreSettings):
    """Grade responses again, for example for other k."""

    folders: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER [FOLDER ...]", help_behavior_hint="")
    ]
    """Folders that `gar eval run` wrote: evals/MODEL for all benchmarks, or evals/MODEL/BENCHMARK for one."""

    def run(self) -> int:
        if not self.folders:
            raise ConfigError("name a folder that `gar eval run` wrote, for example evals/MODEL.")
        from gar.evaluation.folder import evaluation_folders

        return _score_folders([folder for path in self.folders for folder in evaluation_folders(path)], self)


class _Table(Settings):
    """Show benchmarks and models in one table, with intervals and tests.

      gar eval table A [B ...] [--format markdown]

    A and B are folders that `gar eval run` wrote. LABEL=FOLDER names a model.

    Every other model is tested against A.

    For several seeds of a model write FOLDER,FOLDER,... Their order pairs them.
    """

    models: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="A [B ...]", help_behavior_hint="")]
    """The reference model first. A dash marks a benchmark that a model lacks."""
    format: Annotated[Literal["text", "markdown"], tyro.conf.arg(metavar="FMT")] = "text"
    """text prints tables for a terminal, markdown prints Markdown. Files and pipes always get Markdown."""
    pass_at_k: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K")] = ()
    """pass@k and maj@k for these k. By default pass@1, pass@n/2 and maj@n."""

    def run(self) -> int:
        if not self.models:
            raise UsageError("name a folder that `gar eval run` wrote, for example evals/MODEL.")
        from gar.evaluation.benchmark_table import benchmark_table, load_model, text_tables
        from gar.evaluation.text_tables import print_tables

        *numbers, notes = benchmark_table([load_model(model) for model in self.models], ks=self.pass_at_k)
        print_tables(text_tables(*numbers), notes, markdown=self.format == "markdown")
        return DONE


def main(arguments: list[str]) -> int:
    """Run one stage. Torch is imported only if the stage samples from a model."""
    stages = {"run": _Run, "score": _Score, "table": _Table}
    about = "Measure models on benchmarks.\nStart with: gar eval run embedded --benchmark arithmetic"
    return run_stage("gar eval", stages, arguments, about=about)


def _score_folders(folders: "list[EvaluationFolder]", settings: ScoreSettings) -> int:
    from gar.evaluation.grade import grade_folder
    from gar.evaluation.text_tables import NUMBER_HEADINGS, number_rows

    faults = []
    for place, folder in enumerate(folders):
        if place:
            show("")
        numbers, identity = grade_folder(folder, settings), folder.identity()
        total = sum(numbers.status_counts.values())
        assert numbers.format is not None  # these are known of what was graded
        assert numbers.well_formatted_fraction is not None
        assert numbers.truncated_fraction is not None
        fault = degenerate(
            total=total,
            format=numbers.format,
            well_formatted=round(numbers.well_formatted_fraction * total),
            statuses=numbers.status_counts,
            truncated=round(numbers.truncated_fraction * total),
        )
        if fault:
            faults.append(fault)
            show(fault, style="bold red")
        title, rows = number_rows(identity, numbers)
        show_table(title, rows, NUMBER_HEADINGS)
        for note in identity["benchmark"]["notes"]:
            show(f"Note: {note}", style="yellow")
        show(f"Results  {folder.path}")
    return DEGENERATE if faults and not settings.allow_degenerate else DONE
