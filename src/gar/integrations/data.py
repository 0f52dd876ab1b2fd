"""Problems as slime and verl read them: with the id, the text and the expert solutions of each, for `gar.reader`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from gar.data.prompts import PromptTemplate, as_messages, render_prompt
from gar.errors import DataError
from gar.records.files import write_parquet
from gar.types import Problem, Tags, problem_text

_MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
_VERL_SCHEMA = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": _MESSAGES,
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": pa.struct(
            {"index": pa.int64(), "id": pa.string(), "problem": pa.string(), "anchors": pa.list_(pa.string())}
        ),
    }
)


def slime_row(problem: Problem, template: PromptTemplate, *, chat: bool, tags: Tags | None = None) -> dict[str, Any]:
    """A line for slime's --prompt-data: `prompt`, `label`, and `metadata` for GAR.

    With `chat` the prompt is chat messages, for slime's --apply-chat-template. Else the policy continues its text.

    Raises:
        DataError: Chat messages without a user message, or without `chat`.
    """
    prompt = render_prompt(problem.prompt, template, chat=chat, tags=tags)
    if chat:
        prompt = as_messages(prompt)
    elif not isinstance(prompt, str):
        raise DataError(
            f"problem {problem.id!r} is chat messages, which only a chat template makes text of: use --chat"
        )
    return {"prompt": prompt, "label": problem.answer, "metadata": _carried(problem)}


def write_verl_problems(
    problems: Sequence[Problem], path: Path, *, template: PromptTemplate = "think-answer", tags: Tags | None = None
) -> None:
    """Write problems for verl's `data.train_files` or `data.val_files`, a `.parquet` file.

    Prompts become chat messages with the template's instruction, which verl renders with the model's own chat
    template. Expert solutions stay as they are.
    """
    rows = [verl_row(i, problem, template, tags) for i, problem in enumerate(problems)]
    write_parquet(path, pa.Table.from_pylist(rows, schema=_VERL_SCHEMA))


def verl_row(index: int, problem: Problem, template: PromptTemplate, tags: Tags | None) -> dict[str, Any]:
    """A row with verl's columns."""
    return {
        "data_source": problem.source,
        "prompt": as_messages(render_prompt(problem.prompt, template, chat=True, tags=tags)),
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {"index": index, **_carried(problem)},
    }


def _carried(problem: Problem) -> dict[str, Any]:
    """What `Reader.problem` and the engines' readers of expert solutions look for."""
    anchors = [anchor.text for anchor in problem.anchors if anchor.text.strip()]
    return {"id": problem.id, "problem": problem_text(problem), "anchors": anchors}
