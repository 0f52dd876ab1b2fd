"""`gar analyze signals`: which similarity of a response and an anchor sees what."""

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gar.cli.parser import not_negative

if TYPE_CHECKING:
    from gar.analysis.outputs import Output
    from gar.analysis.policies import Policy

HELP = "which similarity sees method, wording, the own problem and a wrong step"


def with_todays_name(arguments: list[str]) -> list[str]:
    """`signals` took over `method-study`, all of whose options it has; it says so on stderr."""
    if arguments[:1] != ["method-study"]:
        return arguments
    print("method-study is part of: gar analyze signals", file=sys.stderr)
    return ["signals", *arguments[1:]]


def add_signals_arguments(parser: argparse.ArgumentParser) -> None:
    """The options beside those of every analysis that needs a model."""
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
                        "run's; of a model: none)")  # fmt: skip


def signals(options: argparse.Namespace) -> "Output":
    """Run the bench."""
    from gar.analysis.policies import load_policy_of
    from gar.analysis.signals.study import Scope, signal_study, signals_output

    policy = _policy(options)
    start = options.initial or (policy.config.model.path if policy.run else None)
    initial = load_policy_of(start, settings=asked_settings(options)) if start and start != policy.source else None
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


def _policy(options: argparse.Namespace) -> "Policy":
    """A run of an embedded task is asked about its test problems, not about those that it was trained on."""
    from gar.analysis.policies import load_policy_of
    from gar.data.arithmetic import load_task
    from gar.settings import EMBEDDED_TASKS

    policy = load_policy_of(options.subject, data=options.data, split=options.split, settings=asked_settings(options))
    source = policy.config.data.source
    if options.split is None and policy.run is not None and source in EMBEDDED_TASKS:
        return replace(policy, problems=load_task(source, "test"))
    return policy


def asked_settings(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The settings that the options of a policy name, by section."""
    asked = {
        "data": {"template": options.template},
        "verify": {"format": options.format},
        "trl": {"max_completion_length": options.max_tokens},
        "model": {"dtype": options.dtype},
    }
    chosen = {section: {k: v for k, v in values.items() if v is not None} for section, values in asked.items()}
    return {section: values for section, values in chosen.items() if values}
