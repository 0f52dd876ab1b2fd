"""Write the problems of a task as JSON lines, one file for each split, which gar reads like any other data.

python -m paper.tasks which-way                            # runs/tasks/which-way/{train,test,harder}.jsonl
python -m paper.tasks which-way --form shorthand           # runs/tasks/which-way-shorthand/..., and validation.jsonl
python -m paper.tasks word-problems --expert reduction     # runs/tasks/word-problems-reduction/...
"""

import argparse
from pathlib import Path

from gar.data import arithmetic, write_problems
from paper.tasks.chains import TASKS, load_task
from paper.tasks.long_chains import LONG_CHAINS, long_chains
from paper.tasks.shorthand import FORMS, Form, validation_problems, with_form
from paper.tasks.word_problems import NUM_PROBLEMS, WORD_PROBLEMS, load_word_problems


def write_task(name: str, folder: Path, expert: str | None = None, form: Form | None = None) -> list[Path]:
    """Write every split of a task.

    Args:
        name: A chain task, word-problems or long-chains.
        folder: Where the files go.
        expert: The method of all expert solutions. None: the task's own.
        form: The form of the expert solutions of a chain task, which also has a validation split then.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if name == LONG_CHAINS:
        splits = long_chains()
    elif name == WORD_PROBLEMS:
        splits = {split: load_word_problems(split, expert) for split in NUM_PROBLEMS}
    else:
        splits = {str(split): load_task(name, split, expert) for split in arithmetic.NUM_PROBLEMS}
    if form:
        splits["validation"] = validation_problems(name)
        splits = {split: with_form(problems, form) for split, problems in splits.items()}
    for split, problems in splits.items():
        write_problems(problems, folder / f"{split}.jsonl")
    return [folder / f"{split}.jsonl" for split in splits]


def main() -> None:
    """Write, and print the paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=[*TASKS, WORD_PROBLEMS, LONG_CHAINS])
    parser.add_argument("--expert", help="the method of all expert solutions (default: the task's own)")
    parser.add_argument("--form", choices=FORMS, help="what the expert solutions of a chain task leave out")
    parser.add_argument("--out", type=Path, help="folder (default: runs/tasks/TASK, or TASK-EXPERT, or TASK-FORM)")
    options = parser.parse_args()
    if options.form and (options.expert or options.task not in TASKS):
        parser.error("--form is for the own expert of a chain task")
    if options.expert and options.task == LONG_CHAINS:
        parser.error("--expert is for chain tasks and word problems")
    name = "-".join(filter(None, (options.task, options.expert, options.form)))
    for path in write_task(options.task, options.out or Path("runs/tasks") / name, options.expert, options.form):
        print(path)


if __name__ == "__main__":
    main()
