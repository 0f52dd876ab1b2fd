"""`gar eval`: measure models on benchmarks. A stopped command resumes."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table

from gar.cli.arguments import run_stage
from gar.cli.console import announce, show
from gar.cli.outcomes import DEGENERATE, DONE, degenerate
from gar.errors import ConfigError, UsageError
from gar.evaluation.benchmarks.registry import BENCHMARKS
from gar.evaluation.job import GenerateJob, ScoreSettings
from gar.models.hub import check_model_name
from gar.settings import ModelSettings, Settings

if TYPE_CHECKING:
    from gar.evaluation.folder import EvaluationFolder

_RUN = f"""Sample and score responses to every problem of some benchmarks:
  gar eval run MODEL --benchmark NAME[,NAME] [--SETTING VALUE ...]

If it is killed, run the same command again to continue.
  MODEL      a Hub id, a local folder, a PEFT adapter, or "embedded"
  NAME       a known benchmark; NAME@REVISION of the Hub; NAME=FILE
             with the published columns; or a file of problems
  results    evals/MODEL/BENCHMARK/

Known benchmarks:
{textwrap.indent(textwrap.fill(", ".join(BENCHMARKS), 74, break_on_hyphens=False), "  ")}
"""
_TABLE = """Benchmarks and models in one table, with intervals and paired tests:
  gar eval table A [B ...] [--format markdown]

  A                  [LABEL=]FOLDER, as `gar eval run` writes it; the first
                     is what the others are tested against
  A of several seeds FOLDER,FOLDER,... paired in their order
"""


class _Model(ModelSettings):
    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = tyro.MISSING


class _RunArguments(GenerateJob):
    model: tyro.conf.OmitArgPrefixes[_Model]  # pyright: ignore[reportIncompatibleVariableOverride]: it is frozen
    """How to load the model."""
    score: tyro.conf.OmitArgPrefixes[ScoreSettings] = ScoreSettings()


class _ScoreArguments(ScoreSettings):
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER [FOLDER ...]")]
    """Evaluations of a model, or one of them, as `gar eval run` writes them."""


class _TableArguments(Settings):
    models: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="A [B ...]")]
    """The reference first. A benchmark that a model lacks is a dash."""
    format: Annotated[Literal["text", "markdown"], tyro.conf.arg(metavar="FMT")] = "text"
    """text, for a terminal, or markdown."""
    pass_at_k: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K")] = ()
    """pass@k and maj@k for these k. By default pass@1, pass@n/2 and maj@n."""


def main(arguments: list[str]) -> int:
    """Run one stage. Torch is imported only if the stage samples from a model."""
    stages = {
        "run": (_run, _RunArguments, "generate, score, and print the numbers", _RUN),
        "score": (_score, _ScoreArguments, "grade the responses again, for example for other k",
                  "Grade responses: samples.parquet and metrics.json."),
        "table": (_table, _TableArguments, "one table of benchmarks and models, with tests", _TABLE),
    }  # fmt: skip # a line for each stage
    try:
        return run_stage("eval", stages, arguments, "Start with: gar eval run embedded --benchmark arithmetic")
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted. Run the same command again to continue.") from None


def _run(job: _RunArguments) -> int:
    from gar.evaluation.benchmarks.load import load_sets

    check_model_name(job.model.path, job.model.revision)
    sets = load_sets(job, largest_k=max(job.score.pass_at_k, default=1))
    announce("loading torch and transformers ...")
    from gar.evaluation.generate import generate
    from gar.models.load import quiet_libraries

    quiet_libraries()
    return _score_folders(generate(job, sets), job.score)


def _score(settings: _ScoreArguments) -> int:
    if not settings.folders:
        raise ConfigError("name a folder that `gar eval run` wrote, for example evals/MODEL.")
    from gar.evaluation.folder import evaluation_folders

    return _score_folders([folder for path in settings.folders for folder in evaluation_folders(path)], settings)


def _score_folders(folders: "list[EvaluationFolder]", settings: ScoreSettings) -> int:
    from gar.evaluation.scoring import score

    faults = []
    for folder in folders:
        numbers, identity = score(folder, settings), folder.identity()
        if fault := _fault(numbers):
            faults.append(fault)
            show(fault, style="bold red")
        show(_metrics_table(f"{identity['benchmark']['name']}, {identity['prompt']['template']}", numbers))
        for note in identity["benchmark"]["notes"]:
            show(f"Note: {note}", style="yellow")
        print(f"Results  {folder.path}\n")
    return DEGENERATE if faults and not settings.allow_degenerate else DONE


def _fault(metrics: dict[str, Any]) -> str:
    total = sum(metrics["status_counts"].values())
    return degenerate(
        total=total,
        format=metrics["format"],
        well_formatted=round(metrics["well_formatted_fraction"] * total),
        statuses=metrics["status_counts"],
        truncated=round(metrics["truncated_fraction"] * total),
    )


def _metrics_table(name: str, metrics: dict[str, Any]) -> Table:
    """The numbers of one evaluation."""
    title = f"{name}: {metrics['num_problems']:,} problems, {metrics['num_samples']} samples each"
    table = Table(title=title, title_justify="left")
    for heading in ("", "mean", "95% over problems"):
        table.add_column(heading, justify="right" if heading else "left")
    for k, value in metrics["pass_at"].items():
        interval = metrics["interval_95"][k]
        table.add_row(f"pass@{k}", f"{value:.3f}", f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else "-")
    for k, value in metrics["majority_at"].items():
        if int(k) > 2:  # maj@1 and maj@2 are pass@1
            table.add_row(f"maj@{k}", f"{value:.3f}", "")
    table.add_section()
    table.add_row("mean tokens of a response", f"{metrics['mean_response_tokens']:.1f}", "")
    table.add_row("truncated", f"{metrics['truncated_fraction']:.1%}", "")
    table.add_row("well formatted", f"{metrics['well_formatted_fraction']:.1%}", "")
    table.add_row("right, whatever the format", f"{metrics['verified_fraction']:.1%}", "")
    table.add_section()
    total = sum(metrics["status_counts"].values())
    for status, count in metrics["status_counts"].items():
        table.add_row(f"verification: {status}", f"{count / total:.1%}", f"{count:,}")
    return table


def _table(settings: _TableArguments) -> int:
    if not settings.models:
        raise UsageError("name a folder that `gar eval run` wrote, for example evals/MODEL.")
    from gar.evaluation.benchmark_table import benchmark_table, load_model, text_tables
    from gar.evaluation.text_tables import aligned, markdown_text

    *numbers, notes = benchmark_table([load_model(model) for model in settings.models], ks=settings.pass_at_k)
    tables = text_tables(*numbers)
    if settings.format == "markdown":
        print(markdown_text(tables, notes), end="")
    else:
        print("\n\n".join([*(aligned(*each) for each in tables.items()), *notes]))
    return DONE
