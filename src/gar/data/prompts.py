"""From a problem to the prompt that the policy sees: the instruction on the response format, and a limit on length.

Only prompts pass through a chat template. An expert solution never does: templates strip or rewrite thinking parts.
"""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Literal

from tqdm import tqdm

from gar.errors import DataError, ModelError
from gar.reader import encode_prompt
from gar.types import Message, Problem, Prompt, Tags, problem_text

PromptTemplate = Literal["plain", "chat", "think-answer", "boxed"]


def format_instruction(template: PromptTemplate, tags: Tags | None = None) -> str:
    """The sentence that asks for a response format. "" for plain and chat. The wording is ours, the paper prints none.

    "think-answer" is the strict format of the GAR paper (appendix C.5): one thinking part, then one answer part,
    nothing else. "boxed" asks for a last `\\boxed{}`.
    """
    tags = tags or Tags()
    if template == "think-answer":
        return (
            f"First work the problem out between {tags.think_open} and {tags.think_close}. Then give the final answer "
            f"alone between {tags.answer_open} and {tags.answer_close}. Write nothing else:\n"
            f"{tags.think_open} your working {tags.think_close} "
            f"{tags.answer_open} final answer {tags.answer_close}"
        )
    return "Show your working, then give the final answer inside \\boxed{}." if template == "boxed" else ""


def render_prompt(prompt: Prompt, template: PromptTemplate, *, chat: bool, tags: Tags | None = None) -> Prompt:
    """The prompt that the policy sees: itself under "plain" and "chat", otherwise followed by the instruction.

    `chat`: the tokenizer has a chat template. Then text becomes a user message. In chat messages the instruction ends
    the last user message. (Several chat templates reject system messages.) Without one they are a `DataError`.
    """
    if template == "plain":
        return prompt
    if template == "chat":
        return as_messages(prompt) if chat else prompt
    instruction = format_instruction(template, tags)
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


def render_problems(
    problems: Sequence[Problem], template: PromptTemplate, tokenizer: Any, tags: Tags | None = None
) -> list[Problem]:
    """Replace the prompt of every problem by the one that the policy sees.

    If some prompts are chat messages, all become chat messages: engines look only at the first prompt.

    Raises:
        DataError: Chat messages without a user message, with the problem's id.
        ModelError: The problems hold chat messages, or become such, and the tokenizer has no chat template.
    """
    check_chat(template, tokenizer)
    with_messages = [problem.id for problem in problems if not isinstance(problem.prompt, str)]
    if with_messages and not tokenizer.chat_template:
        raise ModelError(
            f"the prompt of problem {with_messages[0]!r} is given as chat messages, and the tokenizer has no chat "
            "template. Give it as text, or use the tokenizer of an instruction-tuned model."
        )
    rendered = []
    for problem in problems:
        try:
            prompt = render_prompt(problem.prompt, template, chat=bool(tokenizer.chat_template), tags=tags)
        except DataError as error:
            raise DataError(f"problem {problem.id!r}: {error}") from error
        prompt = as_messages(prompt) if with_messages else prompt
        question = problem.question if template in ("plain", "chat") else problem_text(problem)
        rendered.append(dataclasses.replace(problem, prompt=prompt, question=question))
    return rendered


def check_chat(template: PromptTemplate, tokenizer: Any) -> None:
    """Raise a `ModelError` if the template is chat and the tokenizer has none."""
    if template == "chat" and not tokenizer.chat_template:
        raise ModelError(
            "the template chat needs a tokenizer with a chat template, and this one has none. Take plain, or an "
            "instruction-tuned model.",
            code="no-chat-template",
        )


def drop_long_prompts(problems: Sequence[Problem], tokenizer: Any, max_prompt_tokens: int) -> tuple[list[Problem], int]:
    """The problems with a rendered prompt of at most `max_prompt_tokens` tokens, and the number of the others.

    Counts what an engine would encode: chat template and special tokens too. A `DataError` if none fits.
    """
    shown = tqdm(problems, desc="measuring prompts", unit=" prompts", delay=2, disable=None)
    lengths = [len(encode_prompt(tokenizer, problem.prompt)) for problem in shown]
    kept = [problem for problem, length in zip(problems, lengths, strict=True) if length <= max_prompt_tokens]
    if not kept:
        raise DataError(
            f"no prompt fits into max_prompt_tokens = {max_prompt_tokens}: the shortest of {len(problems)} has "
            f"{min(lengths, default=0)}, the median {statistics.median(lengths or [0]):.0f}, the instruction and the "
            "chat template included. Raise the limit. If the numbers look too large, is it the model's own tokenizer?"
        )
    return kept, len(problems) - len(kept)
