"""Problems as slime reads them: lines of JSON, with the expert solutions under `metadata`."""

from typing import Any

from gar.data.prompts import PromptTemplate, as_messages, render_prompt
from gar.errors import DataError
from gar.types import Problem, Tags, problem_text


def slime_row(problem: Problem, template: PromptTemplate, *, chat: bool, tags: Tags | None = None) -> dict[str, Any]:
    """A line for slime's --prompt-data: `prompt`, `label`, and `metadata` with the problem's `id`, its text alone
    (`problem`, for the verifier) and its `anchors`.

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
    anchors = [anchor.text for anchor in problem.anchors if anchor.text.strip()]
    metadata = {"id": problem.id, "problem": problem_text(problem), "anchors": anchors}
    return {"prompt": prompt, "label": problem.answer, "metadata": metadata}
