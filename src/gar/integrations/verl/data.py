"""Problems as verl reads them: a Parquet file with its columns, and the problem's text and the expert solutions under
`extra_info`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from gar.data.prompts import PromptTemplate, render_prompt
from gar.errors import ConfigError
from gar.records.files import write_parquet
from gar.types import Problem, Tags, problem_text

_MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
_SCHEMA = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": _MESSAGES,
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": pa.struct(
            {"index": pa.int64(), "id": pa.string(), "problem": pa.string(), "anchors": pa.list_(pa.string())}
        ),
    }
)


def write_verl_problems(
    problems: Sequence[Problem], path: Path, *, template: PromptTemplate = "think-answer", tags: Tags | None = None
) -> None:
    """Write problems for verl's `data.train_files` or `data.val_files`, a `.parquet` file.

    Prompts become chat messages with the template's instruction, which verl renders with the model's own chat
    template. Expert solutions stay as they are.
    """
    if path.suffix != ".parquet":
        raise ConfigError(f"{path}: expected a name that ends in .parquet, which is what verl reads.")
    rows = [verl_row(i, problem, template, tags) for i, problem in enumerate(problems)]
    write_parquet(path, pa.Table.from_pylist(rows, schema=_SCHEMA))


def verl_row(index: int, problem: Problem, template: PromptTemplate, tags: Tags | None) -> dict[str, Any]:
    """A row with verl's columns."""
    prompt = render_prompt(problem.prompt, template, chat=True, tags=tags)
    return {
        "data_source": problem.source,
        "prompt": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt,
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {
            "index": index,
            "id": problem.id,
            "problem": problem_text(problem),
            "anchors": [anchor.text for anchor in problem.anchors],
        },
    }
