"""The prompt forms of evaluation, and where the answer to each is read.

| form         | what                                                              | answer read from          |
|--------------|-------------------------------------------------------------------|---------------------------|
| think-answer | the GAR paper's strict form: a thinking part, then an answer part  | the answer part           |
| boxed        | MathArena's: `Put your final answer within \\boxed{}.`             | the last box              |
| as-is        | the problem's text unchanged                                       | the answer part           |

Multiple choice adds the lettered choices, and asks for the letter. The wording of `think-answer` is ours, as the paper
prints none. The other wordings are those of the benchmarks' authors.
"""

from collections.abc import Sequence

from gar.data.prompts import format_instruction, render_prompt
from gar.errors import ConfigError
from gar.evaluation.benchmarks.registry import Benchmark
from gar.evaluation.job import PromptForm
from gar.types import Problem, Prompt, ResponseFormat
from gar.verify.choices import LETTERS

_LETTER = "The final answer is the letter of the right choice alone."


def response_format(form: PromptForm) -> ResponseFormat:
    """How responses to a form are read."""
    return "boxed" if form == "boxed" else "think-answer"


def benchmark_prompt(problem: Problem, form: PromptForm, benchmark: Benchmark) -> Prompt:
    """The prompt of a problem, before a chat template.

    Raises:
        ConfigError: The form does not fit the problem.
    """
    question = _with_choices(problem)
    if form == "as-is":
        return question
    if form == "think-answer":
        hint = [_LETTER] if problem.choices else []
        return _with_instruction(question, [*hint, format_instruction("think-answer")], before=False)
    hint = [_LETTER] if problem.choices else [benchmark.answer_hint] if benchmark.answer_hint else []
    return _with_instruction(question, ["Put your final answer within \\boxed{}.", *hint], before=True)


def policy_prompt(prompt: Prompt, form: PromptForm, *, chat: bool) -> Prompt:
    """The prompt as `encode_prompt` takes it: a user message if the tokenizer has a chat template."""
    if isinstance(prompt, str) and form != "as-is":
        return [{"role": "user", "content": prompt}] if chat else f"{prompt}\n\n"
    return render_prompt(prompt, "plain", chat=chat)


def _with_instruction(question: Prompt, lines: Sequence[str], *, before: bool) -> Prompt:
    instruction = "\n".join(lines)

    def joined(text: str) -> str:
        return f"{instruction}\n\n{text}" if before else f"{text}\n\n{instruction}"

    if isinstance(question, str):
        return joined(question.strip())  # as `render_prompt` does in training
    *earlier, last = question
    if last["role"] != "user":
        raise ConfigError(
            f"chat messages that end in the role {last['role']!r} have no place for an instruction: --prompt as-is."
        )
    return [*earlier, {"role": "user", "content": joined(last["content"])}]


def _with_choices(problem: Problem) -> Prompt:
    if not problem.choices:
        return problem.prompt
    lines = [f"{letter}. {choice}" for letter, choice in zip(LETTERS, problem.choices, strict=False)]
    return "\n".join([f"{problem.prompt}\n", *lines])
