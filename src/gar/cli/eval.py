"""`gar eval`: measure models on benchmarks, in three stages. A stopped stage resumes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table

from gar.cli.arguments import run_stage
from gar.cli.console import announce, show
from gar.cli.outcomes import DEGENERATE, DONE, degenerate
from gar.errors import ConfigError, UsageError
from gar.evaluation.job import GenerateJob, ScoreSettings
from gar.models.hub import check_model_name
from gar.settings import Settings

if TYPE_CHECKING:
    from gar.evaluation.folder import EvaluationFolder

_GENERATE = """Sample responses to every problem of some benchmarks:
  gar eval generate MODEL --benchmark NAME[,NAME] [--SETTING VALUE ...]

If it is killed, run the same command again to continue.
  MODEL      a Hub id, a local folder, a PEFT adapter, or "embedded"
  NAME       a name from `gar eval list`; NAME@REVISION of the Hub;
             NAME=FILE with the published columns; or a file of problems
  results    evals/MODEL/BENCHMARK/responses.jsonl
"""
_RUN = _GENERATE.replace("Sample responses to", "Sample and score responses to").replace("eval generate", "eval run")


_TABLE = """Benchmarks and models in one table, with intervals and paired tests:
  gar eval table A [B ...] [--format markdown] [--out FILE]

  A                  [LABEL=]FOLDER, as `gar eval generate` writes it; the first
                     is what the others are tested against
  A of several seeds FOLDER,FOLDER,... paired in their order
"""


class _GenerateArguments(GenerateJob):
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]


class _RunArguments(_GenerateArguments):
    score: tyro.conf.OmitArgPrefixes[ScoreSettings] = ScoreSettings()


class _ScoreArguments(ScoreSettings):
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER [FOLDER ...]")]
    """Evaluations of a model, or one of them, as `gar eval generate` writes them."""


class _TableArguments(Settings):
    models: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="A [B ...]")]
    """The reference first. A benchmark that a model lacks is a dash."""
    format: Annotated[Literal["text", "markdown"], tyro.conf.arg(metavar="FMT")] = "text"
    """text, for a terminal, or markdown."""
    pass_at_k: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K")] = ()
    """pass@k and maj@k for these k. By default pass@1, pass@n/2 and maj@n."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the table to this file instead."""


def main(arguments: list[str]) -> int:
    """Run one stage. Torch is imported only if the stage samples from a model."""
    stages = {
        "generate": (_generate, _GenerateArguments, "write responses to an append-only file", _GENERATE),
        "score": (_score, _ScoreArguments, "grade every response, and write the numbers",
                  "Grade responses: samples.parquet and metrics.json."),
        "table": (_table, _TableArguments, "one table of benchmarks and models, with tests", _TABLE),
        "run": (_run, _RunArguments, "generate, score, and print the numbers", _RUN),
        "list": (_list, Settings, "show the known benchmarks", "The known benchmarks."),
    }  # fmt: skip # a line for each stage
    try:
        return run_stage("eval", stages, arguments, "Start with: gar eval run embedded --benchmark arithmetic")
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted. Run the same command again to continue.") from None


def _generate(job: GenerateJob) -> int:
    for folder in _generated(job):
        print(f"Responses  {folder.responses.path}")
    return DONE


def _run(job: _RunArguments) -> int:
    _check_ks(job)
    return _score_folders(_generated(job), job.score)


def _check_ks(job: _RunArguments) -> None:
    """Compare --pass-at-k with the samples of each benchmark, if their number is known before it is read."""
    from gar.evaluation.benchmarks.load import find_benchmark

    most = max(job.score.pass_at_k, default=1)
    for benchmark in map(find_benchmark, job.specs):
        if job.samples is None and benchmark is None:
            continue  # the samples of a file depend on its size
        size = benchmark.num_problems if benchmark else 0
        number = job.num_samples(min(size, job.limit or size))
        if most > number:
            raise ConfigError(
                f"pass@{most} needs at least {most} samples per problem, got {number}. Raise --samples, or lower "
                "--pass-at-k."
            )


def _score(settings: _ScoreArguments) -> int:
    if not settings.folders:
        raise ConfigError("name a folder that `gar eval generate` wrote, for example evals/MODEL.")
    from gar.evaluation.folder import evaluation_folders

    return _score_folders([folder for path in settings.folders for folder in evaluation_folders(path)], settings)


def _table(settings: _TableArguments) -> int:
    if not settings.models:
        raise UsageError("name a folder that `gar eval score` has graded, for example evals/MODEL.")
    from gar.evaluation import benchmark_table as tables
    from gar.records.files import write_atomic

    table = tables.benchmark_table([tables.load_model(model) for model in settings.models], ks=settings.pass_at_k)
    content = tables.text(table) if settings.format == "text" else tables.markdown(table)
    if settings.out is None:
        print(content, end="")
    else:
        write_atomic(settings.out, content)
        print(f"Table    {settings.out}")
    return DONE


def _list(_: Settings) -> int:
    from gar.evaluation.benchmarks import BENCHMARKS

    table = Table(box=None)
    for heading in ("name", "problems", "from"):
        table.add_column(heading, justify="right" if heading == "problems" else "left", no_wrap=True)
    for benchmark in BENCHMARKS.values():
        source = benchmark.hub_id or ("the package" if benchmark.schema is None else "a file, see the docs")
        table.add_row(benchmark.name, f"{benchmark.num_problems:,}", source + (", gated" if benchmark.gated else ""))
    show(table)
    return DONE


def _generated(job: GenerateJob) -> "list[EvaluationFolder]":
    """The complete evaluations of a job. None with --show-prompts."""
    if not job.specs:
        raise ConfigError("name a benchmark: --benchmark NAME[,NAME]. `gar eval list` shows the known ones.")
    from gar.evaluation.benchmarks.load import find_benchmark

    for spec in job.specs:
        find_benchmark(spec)
    check_model_name(job.model, job.revision)
    announce("loading torch and transformers ...")
    from gar.evaluation.sampling import generate, rendered_prompts
    from gar.models.load import quiet_libraries

    if job.show_prompts:
        for name, form, text in rendered_prompts(job):
            print(f"===== {name}, {form}: the first prompt as the model sees it =====\n{text}\n")
        return []
    quiet_libraries()
    return generate(job)


def _score_folders(folders: "list[EvaluationFolder]", settings: ScoreSettings) -> int:
    from gar.evaluation.scoring import score

    faults = []
    for folder in folders:
        numbers, identity = score(folder, settings), folder.identity()
        if fault := _fault(numbers):
            faults.append(fault)
            show(fault, style="bold red")
        show(_metrics_table(f"{identity['benchmark']['name']}, {identity['prompt']['form']}", numbers))
        for note in identity["benchmark"]["notes"]:
            show(f"Note: {note}", style="yellow")
        print(f"Numbers  {folder.metrics_path}\n")
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
    if metrics["categories"]:
        table.add_section()
        for name, part in metrics["categories"].items():
            table.add_row(f"pass@1, {name}", f"{part['pass_at_1']:.3f}", f"{part['num_problems']} problems")
    return table
