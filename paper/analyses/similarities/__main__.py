"""How often each similarity of a response and an expert solution ranks a pair correctly (paper/analyses/signals.md).

    python -m paper.analyses.similarities embedded                          # its task's first 60 test problems
    python -m paper.analyses.similarities paper/tasks/models/which-way-qwen3
    python -m paper.analyses.similarities runs/demo                         # also with the initial policy's vectors
    python -m paper.analyses.similarities MODEL --solutions labeled.jsonl  # prompt, solution, method, wording, id

Writes signals.parquet, .json, .md, .svg and .png, and prints the table.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from gar.models import quiet_libraries
from paper.analyses.outputs import present
from paper.analyses.policies import load_policy_of
from paper.analyses.similarities.study import Scope, signal_study, signals_output
from paper.tasks.chains import load_task


def main(arguments: list[str] | None = None) -> None:
    """Run the bench on one policy: write its files, print its table and notes."""
    options = _parser().parse_args(arguments)
    quiet_libraries()
    settings = {"model": {"dtype": options.dtype}} if options.dtype else {}
    policy = load_policy_of(options.subject, data=options.data, split=options.split, settings=settings)
    if options.data is None and policy.run is not None and policy.task:  # not those that the run was trained on
        policy = replace(policy, problems=load_task(policy.task, options.split or "test"))
    start = options.initial or (policy.config.model.path if policy.run else None)
    initial = load_policy_of(start, settings=settings) if start and start != policy.source else None
    scope = Scope(
        solutions=options.solutions,
        expert=options.expert,
        num_problems=options.problems,
        skip=options.skip,
        sampled_problems=options.sampled_problems,
        num_samples=options.samples,
        seed=options.seed,
    )
    subject = Path(options.subject)
    present(
        signals_output(signal_study(policy, scope, initial)),
        options.out or (subject if subject.is_dir() else Path()) / "analysis" / "signals",
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paper.analyses.similarities",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subject", metavar="RUN_OR_MODEL")
    parser.add_argument("--out", metavar="FOLDER", help="folder for the files (default: SUBJECT/analysis/signals)")
    parser.add_argument("--data", metavar="SOURCE", help="a chain task, or a file of problems (default: the "
                        "run's; for a model: the task that its folder names, else arithmetic)")  # fmt: skip
    parser.add_argument("--split", help="split of the data (default: test of a chain task, else train)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="dtype of the weights")
    parser.add_argument("--samples", type=int, default=16, help="fresh responses to each sampled problem")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solutions", metavar="FILE.jsonl", help="labeled solutions (prompt, solution, method), or "
                        "rated ones (question, ground_truth, and columns with solution and is_correct)")  # fmt: skip
    parser.add_argument("--expert", metavar="METHOD", help="the method of anchors among labeled solutions")
    parser.add_argument("--problems", type=int, default=60, metavar="N", help="most problems")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="problems to leave out before those")
    parser.add_argument("--sampled-problems", type=int, default=60, metavar="N",
                        help="problems that the policy answers itself; 0: none")  # fmt: skip
    parser.add_argument("--initial", metavar="MODEL", help="policy that the model started from (default: the run's)")
    return parser


if __name__ == "__main__":
    main()
