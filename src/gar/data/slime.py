"""Write problems as the rows that slime reads: prompt, label, and the expert solutions in the metadata."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gar.data.prepare import write_json_lines
from gar.data.prompts import PromptTemplate, render_prompt
from gar.errors import DataError
from gar.types import Problem, Tags


def slime_row(problem: Problem, template: PromptTemplate, *, chat: bool, tags: Tags | None = None) -> dict[str, Any]:
    """Make one row with `prompt`, `label`, and `metadata` that holds the problem's `id` and its list of `anchors`.

    With `chat` the prompt is chat messages, for slime's --apply-chat-template. Else the policy continues its text.

    Raises:
        DataError: Chat messages without a user message, or without `chat`.
    """
    prompt = render_prompt(problem.prompt, template, chat=chat, tags=tags)
    if chat and isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if not chat and not isinstance(prompt, str):
        raise DataError(
            f"problem {problem.id!r} is chat messages, which only a chat template makes text of: use --chat"
        )
    anchors = [anchor.text for anchor in problem.anchors if anchor.text.strip()]
    return {"prompt": prompt, "label": problem.answer, "metadata": {"id": problem.id, "anchors": anchors}}


def write_slime_rows(
    problems: Sequence[Problem], path: Path, template: PromptTemplate, *, chat: bool, tags: Tags | None = None
) -> None:
    """Write problems as JSONL for slime's --prompt-data, whole or not at all.

    Raises:
        DataError: As `slime_row`.
        RecordError: The file cannot be written.
    """
    rows = [slime_row(problem, template, chat=chat, tags=tags) for problem in problems]
    write_json_lines(rows, path)
