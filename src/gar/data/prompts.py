"""From a problem to the prompt that the policy sees: the instruction on the response format.

Only prompts pass through a chat template. An expert solution never does: templates strip or rewrite thinking parts.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from gar.errors import DataError, ModelError
from gar.types import Message, Problem, Prompt, PromptTemplate, Tags, problem_text
from gar.verify.formats import DEFAULT_TAGS, FORMATS


def render_prompt(prompt: Prompt, template: PromptTemplate, *, chat: bool, tags: Tags | None = None) -> Prompt:
    """The prompt that the policy sees: itself under "plain" and "chat", otherwise followed by the instruction.

    `chat`: the tokenizer has a chat template. Then text becomes a user message. In chat messages the instruction ends
    the last user message. (Several chat templates reject system messages.) Without one they are a `DataError`.
    """
    if template == "plain":
        return prompt
    if template == "chat":
        return as_messages(prompt) if chat else prompt
    instruction = FORMATS[template].instruction(tags or DEFAULT_TAGS)
    if isinstance(prompt, str):
        text = f"{prompt.strip()}\n\n{instruction}"
        return as_messages(text) if chat else f"{text}\n\n"
    return edited(prompt, lambda text: f"{text}\n\n{instruction}")


def as_messages(prompt: Prompt) -> list[Message]:
    """Chat messages. Text becomes one user message."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def edited(prompt: Prompt, edit: Callable[[str], str]) -> Prompt:
    """A prompt with its text edited. In chat messages, `edit` changes the text of the last user message."""
    if isinstance(prompt, str):
        return edit(prompt)
    users = [index for index, message in enumerate(prompt) if message["role"] == "user"]
    if not users:
        raise DataError(f"chat messages without a user message: roles {[message['role'] for message in prompt]}.")
    before, last, after = prompt[: users[-1]], prompt[users[-1]], prompt[users[-1] + 1 :]
    return [*before, {**last, "content": edit(last["content"])}, *after]


@dataclass(frozen=True, kw_only=True)
class Renderer:
    """Replaces the prompt of a problem by the one that the policy sees.

    Attributes:
        template: The instruction.
        chat: Whether the tokenizer has a chat template.
        all_messages: Whether text becomes chat messages even without an instruction. If some prompts of a data set are
            messages, all must be: engines look only at the first prompt.
        tags: The markers of the instruction.
    """

    template: PromptTemplate
    chat: bool
    all_messages: bool = False
    tags: Tags | None = None

    @classmethod
    def of(cls, template: PromptTemplate, tokenizer: Any, tags: Tags | None, *, with_messages: str | None) -> Self:
        """The renderer of a data set. `with_messages` is the id of a problem with chat messages, None if none has them.

        A `ModelError` if the tokenizer cannot render those, or has no template for the template chat.
        """
        check_chat(template, tokenizer)
        if with_messages is not None and not tokenizer.chat_template:
            raise ModelError(
                f"the prompt of problem {with_messages!r} is given as chat messages, and the tokenizer has no chat "
                "template. Give it as text, or use the tokenizer of an instruction-tuned model."
            )
        chat = bool(tokenizer.chat_template)
        return cls(template=template, chat=chat, all_messages=with_messages is not None, tags=tags)

    def __call__(self, problem: Problem) -> Problem:
        """The problem as the policy sees it. A `DataError` for chat messages without a user message."""
        try:
            prompt = self.prompt(problem.prompt)
        except DataError as error:
            raise DataError(f"problem {problem.id!r}: {error}") from error
        question = problem.question if self.template in ("plain", "chat") else problem_text(problem)
        return dataclasses.replace(problem, prompt=prompt, question=question)

    def prompt(self, prompt: Prompt) -> Prompt:
        """The prompt as the policy sees it."""
        prompt = render_prompt(prompt, self.template, chat=self.chat, tags=self.tags)
        return as_messages(prompt) if self.all_messages else prompt


def render_problems(
    problems: Sequence[Problem], template: PromptTemplate, tokenizer: Any, tags: Tags | None = None
) -> list[Problem]:
    """Replace the prompt of every problem by the one that the policy sees.

    If some prompts are chat messages, all become chat messages: engines look only at the first prompt.

    Raises:
        DataError: Chat messages without a user message, with the problem's id.
        ModelError: Prompts are chat messages, or become chat messages, and the tokenizer has no chat template.
    """
    with_messages = next((problem.id for problem in problems if not isinstance(problem.prompt, str)), None)
    return list(map(Renderer.of(template, tokenizer, tags, with_messages=with_messages), problems))


def check_chat(template: PromptTemplate, tokenizer: Any) -> None:
    """Raise a `ModelError` if the template is chat and the tokenizer has none."""
    if template == "chat" and not tokenizer.chat_template:
        raise ModelError(
            "the template chat needs a tokenizer with a chat template, and this one has none. Take plain, or an "
            "instruction-tuned model.",
            code="no-chat-template",
        )
