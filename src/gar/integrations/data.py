"""Problems as slime and verl read them: with the id, the text and the expert solutions of each, for `gar.reader`."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gar.data.prompts import as_messages, render_prompt
from gar.errors import DataError
from gar.methods.gar import shuffled_partners
from gar.records.files import write_parquet
from gar.types import Problem, Prompt, PromptTemplate, Tags, problem_text

_MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
_EXTRA_INFO = {"index": pa.int64(), "id": pa.string(), "problem": pa.string(), "anchors": pa.list_(pa.string())}
_SHUFFLED = {"anchor_prompt": _MESSAGES}
"""With a seed to shuffle by also this."""


def slime_rows(
    problems: Sequence[Problem],
    template: PromptTemplate,
    *,
    chat: bool,
    tags: Tags | None = None,
    shuffle_seed: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Lines for slime's --prompt-data: `prompt`, `label`, and `metadata` for GAR.

    With `chat` the prompts are chat messages, for slime's --apply-chat-template. Else the policy continues their text.
    `shuffle_seed`: see `_partners`.

    Raises:
        DataError: Chat messages without a user message, or without `chat`.
    """

    def prompt_of(problem: Problem) -> Prompt:
        prompt = render_prompt(problem.prompt, template, chat=chat, tags=tags)
        if chat:
            return as_messages(prompt)
        if not isinstance(prompt, str):
            raise DataError(
                f"problem {problem.id!r} is chat messages, which only a chat template makes text of: use --chat"
            )
        return prompt

    for problem, partner in _partners(problems, shuffle_seed):
        carried = _carried(problem, partner, prompt_of)
        yield {"prompt": prompt_of(problem), "label": problem.answer, "metadata": carried}


def write_verl_problems(
    problems: Sequence[Problem],
    path: Path,
    *,
    template: PromptTemplate = "think-answer",
    tags: Tags | None = None,
    shuffle_seed: int | None = None,
) -> None:
    """Write problems for verl's `data.train_files` or `data.val_files`, a `.parquet` file (`verl_rows`)."""
    rows = list(verl_rows(problems, template, tags=tags, shuffle_seed=shuffle_seed))
    columns = {
        "data_source": pa.string(),
        "prompt": _MESSAGES,
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": pa.struct(_EXTRA_INFO if shuffle_seed is None else _EXTRA_INFO | _SHUFFLED),
    }
    write_parquet(path, pa.Table.from_pylist(rows, schema=pa.schema(columns)))


def verl_rows(
    problems: Sequence[Problem],
    template: PromptTemplate,
    *,
    tags: Tags | None = None,
    shuffle_seed: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows with verl's columns. `shuffle_seed`: see `_partners`.

    Prompts become chat messages with the template's instruction, which verl renders with the model's own chat
    template. Expert solutions stay as they are.
    """

    def prompt_of(problem: Problem) -> Prompt:
        return as_messages(render_prompt(problem.prompt, template, chat=True, tags=tags))

    for index, (problem, partner) in enumerate(_partners(problems, shuffle_seed)):
        yield {
            "data_source": problem.source,
            "prompt": prompt_of(problem),
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {"index": index, **_carried(problem, partner, prompt_of)},
        }


def _partners(problems: Sequence[Problem], shuffle_seed: int | None) -> Iterator[tuple[Problem, Problem | None]]:
    """Each problem, and with a seed the one whose expert solutions it gets, as under `gar train` with this seed."""
    if shuffle_seed is None:
        yield from ((problem, None) for problem in problems)
    else:
        has_anchor = np.array([any(anchor.text.strip() for anchor in problem.anchors) for problem in problems])
        partners = shuffled_partners(has_anchor, seed=shuffle_seed)
        yield from zip(problems, (problems[int(number)] for number in partners), strict=True)


def _carried(problem: Problem, partner: Problem | None, prompt_of: Callable[[Problem], Prompt]) -> dict[str, Any]:
    """What `Reader.problem` and `Reader.carried_anchors` look for."""
    anchors = [anchor.text for anchor in (partner or problem).anchors if anchor.text.strip()]
    carried = {"id": problem.id, "problem": problem_text(problem), "anchors": anchors}
    return carried if partner is None else carried | {"anchor_prompt": prompt_of(partner)}
