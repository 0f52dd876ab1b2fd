"""`gar score`: score a file of responses against expert solutions."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import tyro

from gar.cli.arguments import parse
from gar.cli.console import announce, show, show_table
from gar.cli.outcomes import DEGENERATE, DONE, degenerate
from gar.models.hub import check_model_name
from gar.scoring.job import ScoreJob
from gar.settings import AdvantageSettings, RewardSettings, SignalSettings, VerifySettings


class _Score(ScoreJob):
    """Score responses against expert solutions with the gradients of a model.

      gar score MODEL FILE.jsonl [--out OUT.jsonl|OUT.parquet] [--SETTING VALUE ...]

    If it is killed, run the same command again to continue.

    FILE has a row per problem: prompt, responses, answer, expert_solution.

    --format is short for --verify.format, and none is for text without tags.

    The exit status is 3 if every response failed in the same way.

    --help-all also lists the settings of verify, signal, reward and advantage.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    verify: tyro.conf.FlagConversionOff[VerifySettings] = VerifySettings()
    signal: tyro.conf.FlagConversionOff[SignalSettings] = SignalSettings()
    reward: tyro.conf.FlagConversionOff[RewardSettings] = RewardSettings()
    advantage: tyro.conf.FlagConversionOff[AdvantageSettings] = AdvantageSettings()


class _Brief(_Score):
    __doc__ = _Score.__doc__

    verify: tyro.conf.Suppress[VerifySettings] = VerifySettings()
    signal: tyro.conf.Suppress[SignalSettings] = SignalSettings()
    reward: tyro.conf.Suppress[RewardSettings] = RewardSettings()
    advantage: tyro.conf.Suppress[AdvantageSettings] = AdvantageSettings()


def main(arguments: list[str]) -> int:
    """Run `gar score`. Arguments are parsed before torch is imported."""
    in_full = [re.sub(r"^--format(?==|$)", "--verify.format", argument) for argument in arguments]
    if "--help-all" in in_full:
        parse(_Score, ["--help"], prog="gar score")
    job = parse(_Brief if {"-h", "--help"} & {*in_full} else _Score, in_full, prog="gar score")
    check_model_name(job.model, job.revision)
    from gar.scoring.io import check_input

    survey = check_input(job)
    announce("loading torch and transformers ...")
    from gar.models.load import quiet_libraries
    from gar.scoring.files import score_file

    quiet_libraries()
    summary = score_file(job, survey, command=["gar", "score", *arguments])
    fault = _print_summary(job, summary)
    return DEGENERATE if fault and not job.allow_degenerate else DONE


def _print_summary(job: ScoreJob, summary: Mapping[str, Any]) -> str:
    """Print the counts, below a sentence about a degenerate result. Return the sentence, "" for an ordinary result."""
    from gar.scoring.io import ScoreFiles

    files = ScoreFiles(job)
    fault = degenerate(
        total=summary["responses"],
        format=job.verify.format,
        well_formatted=summary["well_formatted"],
        statuses=summary["verification"],
        aligned=summary["alignment"]["scored"]["count"],
        unknown_fraction=summary["unknown_token_fraction"],
    )
    if fault:
        show(fault, style="bold red")
    show_table("", _counts(summary))
    quantiles = summary["alignment"]["scored"]["quantiles"]
    headings = ("", "count", "mean", *(f"{float(quantile):.0%}" for quantile in quantiles))
    show_table("Alignment with the expert solution", _alignments(summary["alignment"]), headings)
    if summary["repeated_prompts"]:
        show(
            f"{summary['repeated_prompts']:,} rows repeat the prompt of an earlier row. Only responses of one row are "
            "compared with each other: do they belong in one row?",
            style="yellow",
        )
    if summary["bad_rows"]:
        show(f"Rows left out  {files.errors}")
    show(f"Scores         {files.out}\nRun            {files.run}")
    return fault


def _counts(summary: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    responses = summary["responses"]
    yield "rows read", f"{summary['rows']:,}", ""
    if summary["bad_rows"]:
        yield "rows left out, see below", f"{summary['bad_rows']:,}", f"{summary['bad_rows'] / summary['rows']:.1%}"
    yield "responses", f"{responses:,}", ""
    for part in ("verification", "signal"):
        yield ()
        for status, count in summary[part].items():
            yield f"{part}: {status}", f"{count:,}", f"{count / responses:.1%}"
    yield ()
    yield "eligible for a bonus", f"{summary['eligible']:,}", f"{summary['eligible'] / responses:.1%}"
    yield "mean reward, without and with bonus", f"{summary['outcome_mean']:.3f}", f"{summary['reward_mean']:.3f}"
    zero_std = summary["zero_std_group_fraction"]
    yield "zero-std groups, without and with bonus", f"{zero_std['before']:.1%}", f"{zero_std['after']:.1%}"


def _alignments(alignment: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for label, part in (("scored", "scored"), ("right", "verified"), ("others", "others")):
        values = alignment[part]
        numbers = (values["mean"], *values["quantiles"].values())
        yield label, f"{values['count']:,}", *("-" if number is None else f"{number:.3f}" for number in numbers)
