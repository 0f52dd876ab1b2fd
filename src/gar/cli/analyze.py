"""`gar analyze`: what a run or a model does, as data, a figure and a short table."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from gar.cli.parser import Parser, not_negative, positive
from gar.data.prompts import PromptTemplate
from gar.types import ResponseFormat

if TYPE_CHECKING:
    from gar.analysis.outputs import Output
    from gar.analysis.policies import Policy

_DESCRIPTION = """Analyse a run folder or a model:
  gar analyze NAME RUN_OR_MODEL [--out FOLDER] [options of NAME]

Writes NAME.parquet and NAME.svg, NAME.png (tokens: NAME.html), and prints a
short table. gar analyze NAME --help shows the options of NAME.
"""


def main(arguments: list[str]) -> int:
    """Run one analysis: write its files, print its table and notes."""
    options = _parser().parse_args(arguments)
    if "policy" in options:
        from gar.models.load import quiet_libraries

        quiet_libraries()
    from gar.analysis.outputs import present

    output: Output = options.run(options)
    beside = Path(options.subject) if Path(options.subject).is_dir() else Path()
    present(output, options.out or beside / "analysis" / output.name)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="gar analyze", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = parser.add_subparsers(metavar="NAME", required=True)
    for name, (subject, help, add_options, run) in _ANALYSES.items():
        analysis = names.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        analysis.add_argument("subject", metavar=subject)
        analysis.add_argument("--out", metavar="FOLDER", help="where the files go (default: SUBJECT/analysis/NAME)")
        analysis.set_defaults(run=run)
        add_options(analysis)
    return parser


def _add_policy(
    parser: argparse.ArgumentParser,
    num_samples: int | None = None,
    help: str = "",
    count: Callable[[str], int] = positive,
) -> None:
    """Add the options of every analysis that needs a model. For a run, the model is its final one."""
    parser.add_argument(
        "--data", metavar="SOURCE", help="problems (default: the run's; for a model: arithmetic, or its own task)"
    )
    parser.add_argument("--split", help="split of the data (default: the run's; for a model: test of a generated task, "
                        "else train)")  # fmt: skip
    parser.add_argument("--template", choices=get_args(PromptTemplate), help="prompt template (default: the run's; for "
                        "a model: that of the format)")  # fmt: skip
    parser.add_argument("--format", choices=get_args(ResponseFormat), help="response format (default: the run's; for a "
                        "model: think-answer)")  # fmt: skip
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="longest fresh response (default: the run's; "
                        "for a model: 64)")  # fmt: skip
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="dtype of the weights (default: the "
                        "checkpoint's)")  # fmt: skip
    parser.set_defaults(policy=True)
    if num_samples is not None:
        parser.add_argument("--samples", type=count, default=num_samples, help=help)
        parser.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: %(default)s)")


def _policy(options: argparse.Namespace) -> "Policy":
    from gar.analysis.policies import load_policy_of

    return load_policy_of(options.subject, data=options.data, split=options.split, settings=_settings(options))


def _settings(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The settings given as options of a policy, by section."""
    given = {
        "data": {"template": options.template},
        "verify": {"format": options.format},
        "trl": {"max_completion_length": options.max_tokens},
        "model": {"dtype": options.dtype},
    }
    chosen = {section: {k: v for k, v in values.items() if v is not None} for section, values in given.items()}
    return {section: values for section, values in chosen.items() if values}


# ------------------------------------------------------------------------------- options and output of each analysis


def _add_signals(parser: argparse.ArgumentParser) -> None:
    _add_policy(parser, 16, "fresh responses to each sampled problem (default: %(default)s)")
    parser.add_argument("--solutions", metavar="FILE.jsonl", help="labelled solutions (prompt, solution, method, and "
                        "where known wording and id), or rated ones (question, ground_truth, and columns with solution "
                        "and is_correct)")  # fmt: skip
    parser.add_argument("--expert", metavar="METHOD", help="the method of anchors among labelled solutions")
    parser.add_argument(
        "--problems", type=not_negative, default=60, metavar="N", help="how many (default: %(default)s)"
    )
    parser.add_argument("--skip", type=not_negative, default=0, metavar="N", help="problems to leave out before those")
    parser.add_argument(
        "--sampled-problems", type=not_negative, default=60, metavar="N",
        help="problems that the policy answers itself; 0: none (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--initial", metavar="MODEL", help="the policy that the model started from (default: the "
                        "run's; for a model: none)")  # fmt: skip


def _signals(options: argparse.Namespace) -> "Output":
    from gar.analysis.policies import load_policy_of
    from gar.analysis.signals.study import Scope, signal_study, signals_output
    from gar.data.arithmetic import load_task
    from gar.settings import EMBEDDED_TASKS

    policy = _policy(options)
    source = policy.config.data.source
    if options.split is None and policy.run is not None and source in EMBEDDED_TASKS:
        policy = replace(policy, problems=load_task(source, "test"))  # not those that the run was trained on
    start = options.initial or (policy.config.model.path if policy.run else None)
    initial = load_policy_of(start, settings=_settings(options)) if start and start != policy.source else None
    scope = Scope(
        solutions=options.solutions,
        expert=options.expert,
        num_problems=options.problems,
        skip=options.skip,
        sampled_problems=options.sampled_problems,
        num_samples=options.samples,
        seed=options.seed,
    )
    return signals_output(signal_study(policy, scope, initial))


_ANALYSES = {
    "signals": ("RUN_OR_MODEL", "which similarity recognises method, problem and a wrong step, in any wording",
                _add_signals, _signals),
}  # fmt: skip
"""Name -> subject, help, function that adds its options, function that makes its output."""
