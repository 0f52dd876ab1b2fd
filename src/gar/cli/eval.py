"""`gar eval`: measure models on benchmarks, in three stages that resume where they were stopped."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from gar.cli.arguments import parse
from gar.cli.console import announce
from gar.cli.outcomes import DEGENERATE, DONE, degenerate
from gar.errors import ConfigError, UsageError, did_you_mean
from gar.evaluation.job import GenerateJob, ScoreSettings
from gar.models.hub import check_model_name
from gar.settings import Settings

if TYPE_CHECKING:
    from gar.evaluation.folder import EvaluationFolder

_USAGE = """usage: gar eval STAGE [ARGUMENTS]

Measure models on benchmarks. A killed stage continues where it stopped.

  generate MODEL --benchmark NAME[,NAME]  responses into an append-only file
  score FOLDER [FOLDER ...]               a verdict on every response, numbers
  table A [B ...]                         one table: benchmarks, models, tests
  run MODEL --benchmark NAME[,NAME]       generate, score, print the numbers
  list                                    the known benchmarks

gar eval STAGE --help says more.
Start with: gar eval run embedded --benchmark arithmetic
"""
_GENERATE = """Sample responses to every problem of some benchmarks:
  gar eval generate MODEL --benchmark NAME[,NAME] [--SETTING VALUE ...]

If it is killed, run the same command again to continue.
  MODEL      a Hub id, a local folder, a PEFT adapter, or "embedded"
  NAME       a name from `gar eval list`; NAME@REVISION of the Hub;
             NAME=FILE with the published columns; or a file of problems
  results    evals/MODEL/BENCHMARK/responses.jsonl
"""
_RUN = _GENERATE.replace("Sample responses to", "Sample and score responses to").replace("eval generate", "eval run")


class _GenerateArguments(GenerateJob):
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]


class _RunArguments(_GenerateArguments):
    score: tyro.conf.OmitArgPrefixes[ScoreSettings] = ScoreSettings()


class _ScoreArguments(ScoreSettings):
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER [FOLDER ...]")]
    """Evaluations of a model, or one of them, as `gar eval generate` writes them."""


def main(arguments: list[str]) -> int:
    """Run one stage. Arguments are parsed first. Torch is imported only where a model answers."""
    stages = {
        "generate": (_generate, _GenerateArguments, _GENERATE),
        "score": (_score, _ScoreArguments, "Grade responses: samples.parquet and metrics.json."),
        "run": (_run, _RunArguments, _RUN),
        "list": (_list, Settings, "The known benchmarks."),
    }
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name, *rest = arguments
    if name == "table":
        from gar.cli.eval_table import main as table

        return table(rest)
    if name not in stages:
        known = [*stages, "table"]
        raise UsageError(f"unknown stage '{name}', expected one of {', '.join(known)}.{did_you_mean(name, known)}")
    stage, kind, description = stages[name]
    try:
        return stage(parse(kind, rest, prog=f"gar eval {name}", description=description)) or DONE
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; run the same command again to continue.") from None


def _generate(job: GenerateJob) -> None:
    for folder in _generated(job):
        print(f"Responses  {folder.responses.path}")


def _run(job: _RunArguments) -> int:
    _check_ks(job)
    return _score_folders(_generated(job), job.score)


def _check_ks(job: _RunArguments) -> None:
    """Compare --pass-at-k with the samples of each benchmark, where their number is known before it is read."""
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


def _list(_: Settings) -> None:
    from gar.evaluation.benchmarks import BENCHMARKS

    table = Table(box=None)
    for heading in ("name", "problems", "from"):
        table.add_column(heading, justify="right" if heading == "problems" else "left", no_wrap=True)
    for benchmark in BENCHMARKS.values():
        source = benchmark.hub_id or ("the package" if benchmark.columns is None else "a file, see the docs")
        table.add_row(benchmark.name, f"{benchmark.num_problems:,}", source + (", gated" if benchmark.gated else ""))
    Console(highlight=False).print(table)


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

    console = Console(highlight=False)
    faults = []
    for folder in folders:
        numbers, identity = score(folder, settings), folder.identity()
        if fault := _fault(numbers):
            faults.append(fault)
            console.print(fault, style="bold red", markup=False, soft_wrap=True)
        console.print(_metrics_table(f"{identity['benchmark']['name']}, {identity['prompt']['form']}", numbers))
        for note in identity["benchmark"]["notes"]:
            console.print(f"Note: {note}", style="yellow", soft_wrap=True)
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
