"""Write the problems of a task as JSON lines, one file for each split, which gar reads like any other data.

python -m paper.tasks which-way                            # runs/tasks/which-way/{train,test,harder}.jsonl
python -m paper.tasks word-problems --expert reduction     # runs/tasks/word-problems-reduction/...
"""

import argparse
import json
from pathlib import Path

from gar import Problem
from gar.data import arithmetic
from paper.tasks.chains import TASKS, load_task
from paper.tasks.word_problems import WORD_PROBLEMS, load_word_problems


def write_task(name: str, folder: Path, expert: str | None = None) -> list[Path]:
    """Write every split of a task.

    Args:
        name: A chain task, or word-problems.
        folder: Where the files go.
        expert: The method of all expert solutions; None: the task's own.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for split in arithmetic.NUM_PROBLEMS:
        problems = load_word_problems(split, expert) if name == WORD_PROBLEMS else load_task(name, split, expert)
        paths.append(folder / f"{split}.jsonl")
        paths[-1].write_text("".join(json.dumps(_row(problem)) + "\n" for problem in problems))
    return paths


def _row(problem: Problem) -> dict[str, object]:
    return {
        "id": problem.id,
        "prompt": problem.prompt,
        "answer": problem.answer,
        "expert_solution": problem.anchors[0].text,
        "source": problem.source,
    }


def main() -> None:
    """Write, and print the paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=[*TASKS, WORD_PROBLEMS])
    parser.add_argument("--expert", help="the method of all expert solutions (default: the task's own)")
    parser.add_argument("--out", type=Path, help="folder (default: runs/tasks/TASK, or TASK-EXPERT)")
    options = parser.parse_args()
    name = f"{options.task}-{options.expert}" if options.expert else options.task
    for path in write_task(options.task, options.out or Path("runs/tasks") / name, options.expert):
        print(path)


if __name__ == "__main__":
    main()
