"""`gar analyze`: what a run or a model does, as data, a figure and a short table."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gar.cli.analyze_signals import HELP, add_signals_arguments, signals
from gar.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction as _SubParsers

    from gar.analysis.outputs import Output
    from gar.analysis.policies import Policy

_MOVED = ("ablation", "sensitivity")
_DESCRIPTION = """Analyse a run folder or a model:
  gar analyze NAME RUN_OR_MODEL [--out FOLDER] [options of NAME]

Writes NAME.parquet and NAME.svg, NAME.png (tokens: NAME.html), and prints a short table. gar analyze NAME --help says
what it takes. Of a run:
"""


def main(arguments: list[str]) -> int:
    """Run one analysis.

    Returns:
        0; what could not be shown is said.

    Raises:
        GarError: There is nothing to analyse; its text is for the user.
    """
    if arguments and arguments[0] in _MOVED:
        raise ConfigError(
            f"{arguments[0]} is no longer part of the package. In a clone of its repository: "
            f"python -m studies.{arguments[0]} RESULTS"
        )
    options = _parser().parse_args(arguments)
    from gar.analysis.outputs import present

    output: Output = _quietly(options.run, options)
    present(output, options.out or _beside(options.subject, output.name))
    return 0


def _beside(subject: str, name: str) -> Path:
    """`RUN/analysis/NAME`; of what is no folder, `analysis/NAME` here."""
    return (Path(subject) if Path(subject).is_dir() else Path()) / "analysis" / name


def _quietly(run: "Callable[[argparse.Namespace], Output]", options: argparse.Namespace) -> "Output":
    """Loading bars of transformers are noise."""
    if "policy" not in options:
        return run(options)
    import transformers

    transformers.utils.logging.disable_progress_bar()
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gar analyze", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = parser.add_subparsers(metavar="NAME", required=True)
    _add_alignment(names)
    _add_silent_groups(names)
    _add_gradient_space(names)
    _add_tokens(names)
    _add_method_study(names)
    _add_signals(names)
    _add_theory(names)
    _add_cost(names)
    return parser


def _add(names: "_SubParsers", name: str, subject: str, help: str, run: Callable) -> argparse.ArgumentParser:
    parser = names.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    parser.add_argument("subject", metavar=subject)
    parser.add_argument("--out", metavar="FOLDER", help="where the files go (default: SUBJECT/analysis/NAME)")
    parser.set_defaults(run=run)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


# ---------------------------------------------------------------------------------------------- one after the other


def _add_alignment(names: "_SubParsers") -> None:
    parser = _add(names, "alignment", "RUN", "alignment of correct responses over training, as histograms", _alignment)
    parser.add_argument("--steps", type=_positive, nargs="+", help="where histograms begin (default: four, evenly)")
    parser.add_argument("--window", type=_positive, help="recorded steps in a histogram (default: a tenth of the run)")


def _alignment(options: argparse.Namespace) -> "Output":
    from gar.analysis.alignment import alignment_course, alignment_output

    return alignment_output(alignment_course(options.subject, at_steps=options.steps, window_steps=options.window))


def _add_silent_groups(names: "_SubParsers") -> None:
    _add(names, "silent-groups", "RUN", "groups without a signal, those that GAR rescues, and their advantages",
         _silent_groups)  # fmt: skip


def _silent_groups(options: argparse.Namespace) -> "Output":
    from gar.analysis.silent_groups import silent_groups, silent_groups_output

    return silent_groups_output(silent_groups(options.subject))


def _add_policy(parser: argparse.ArgumentParser, num_samples: int | None = None, help: str = "") -> None:
    """What every analysis takes that needs a model. Of a run it is the final model."""
    parser.add_argument("--data", metavar="SOURCE", help="problems (default: the run's; of a model: arithmetic)")
    parser.add_argument("--split", help="of the data (default: the run's; of a model: test of arithmetic, else train)")
    parser.set_defaults(policy=True)
    if num_samples is not None:
        parser.add_argument("--samples", type=int, default=num_samples, help=help)
        parser.add_argument("--seed", type=int, default=0, help="of the sampling (default: %(default)s)")


def _policy(options: argparse.Namespace) -> "Policy":
    from gar.analysis.policies import load_policy_of

    return load_policy_of(options.subject, data=options.data, split=options.split)


def _add_gradient_space(names: "_SubParsers") -> None:
    parser = _add(names, "gradient-space", "RUN_OR_MODEL", "responses and anchor of one problem in two dimensions",
                  _gradient_space)  # fmt: skip
    _add_policy(parser, 64, "fresh responses; 0: the recorded rollouts (default: %(default)s)")
    parser.add_argument(
        "--problem", metavar="ID", help="default: of a few, the one with most different correct responses"
    )
    parser.add_argument("--step", type=_positive, help="of the recorded rollouts (default: the last)")


def _gradient_space(options: argparse.Namespace) -> "Output":
    from gar.analysis.gradient_space import gradient_space, gradient_space_output

    space = gradient_space(
        _policy(options), problem_id=options.problem, num_samples=options.samples, step=options.step, seed=options.seed
    )
    return gradient_space_output(space)


def _add_tokens(names: "_SubParsers") -> None:
    parser = _add(names, "tokens", "RUN_OR_MODEL", "share of each token in the alignment, as an HTML heat map", _tokens)
    _add_policy(parser, 0, "fresh responses; 0: the recorded rollouts, of a model 8 (default: %(default)s)")
    parser.add_argument("--problem", metavar="ID", help="default: that with most different correct responses")
    parser.add_argument("--response", type=int, metavar="INDEX", help="only this response of the group, from 0")
    parser.add_argument("--step", type=_positive, help="of the recorded rollouts (default: the last)")
    parser.add_argument("--show", type=_positive, default=8, help="most responses to show (default: %(default)s)")


def _tokens(options: argparse.Namespace) -> "Output":
    from gar.analysis.tokens import token_shares_of, tokens_output

    page = token_shares_of(
        _policy(options),
        problem_id=options.problem,
        response_index=options.response,
        step=options.step,
        num_samples=options.samples,
        max_responses=options.show,
        seed=options.seed,
    )
    return tokens_output(page)


def _add_method_study(names: "_SubParsers") -> None:
    parser = _add(names, "method-study", "RUN_OR_MODEL", "does alignment follow a solution's method or its wording",
                  _method_study)  # fmt: skip
    _add_policy(parser)
    parser.add_argument("--problems", type=_positive, default=200, help="of the embedded task (default: %(default)s)")
    parser.add_argument("--solutions", metavar="FILE.jsonl", help="right solutions instead: prompt, solution, method, "
                        "and where known wording and id")  # fmt: skip
    parser.add_argument("--expert", metavar="METHOD", help="only pairs with a solution by this method (embedded task: "
                        "stepwise; file: all pairs)")  # fmt: skip


def _method_study(options: argparse.Namespace) -> "Output":
    from gar.analysis.method_study import embedded_solutions, method_study, method_study_output, read_solutions

    policy = _policy(options)
    if options.solutions:
        study = method_study(policy, read_solutions(options.solutions), expert=options.expert)
    else:
        solutions = embedded_solutions(policy, options.problems)
        study = method_study(policy, solutions, expert=options.expert or "stepwise")
    return method_study_output(study)


def _add_signals(names: "_SubParsers") -> None:
    parser = _add(names, "signals", "RUN_OR_MODEL", HELP, signals)
    _add_policy(parser, 16, "fresh responses to each sampled problem (default: %(default)s)")
    add_signals_arguments(parser)


def _add_theory(names: "_SubParsers") -> None:
    parser = _add(names, "theory", "RUN_OR_MODEL", "the paper's statements, each computed on real rollouts", _theory)
    _add_policy(parser, 8, "fresh responses to each problem (default: %(default)s)")
    parser.add_argument("--problems", type=_positive, default=40, help="how many (default: %(default)s)")


def _theory(options: argparse.Namespace) -> "Output":
    from gar.analysis.theory import check_theory, theory_output

    check = check_theory(
        _policy(options), num_problems=options.problems, num_samples=options.samples, seed=options.seed
    )
    return theory_output(check)


def _add_cost(names: "_SubParsers") -> None:
    parser = _add(
        names, "cost", "RUN_OR_RESULTS", "seconds per step by method and part, beside the counted cost", _cost
    )
    parser.add_argument("others", metavar="RUN_OR_RESULTS", nargs="*", help="more folders")


def _cost(options: argparse.Namespace) -> "Output":
    from gar.analysis.cost import cost_output, measured_cost

    return cost_output(measured_cost([options.subject, *options.others]))
