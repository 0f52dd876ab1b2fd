"""Records that several modules share: frozen and keyword-only.

One word per thing (docs/glossary.md): a *problem* has *anchors* (expert solutions). A policy writes *responses*. The
responses to one problem form a *group*. A verifier gives each response a *verdict*. A *signal* is a vector that
summarizes the gradient of one token sequence through the LM head.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from itertools import permutations
from typing import Any, ClassVar, Literal, Protocol, get_args, runtime_checkable

Message = dict[str, str]
Prompt = str | list[Message]
AnswerFormat = Literal["think-answer", "boxed"]
"""Where a response has its answer. A prompt can ask for each by the template of the same name."""
ResponseFormat = Literal[AnswerFormat, "none"]
PromptTemplate = Literal["plain", "chat", AnswerFormat]


def answer_format(name: str) -> AnswerFormat:
    """The format that a template asks for, or that is checked. think-answer if it is none."""
    return name if name in get_args(AnswerFormat) else "think-answer"  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchor:
    """One expert solution as text.

    Example: Anchor(text="<think> 3 + 4 = 7 </think> <answer> 7 </answer>")
    """

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One verifiable problem. Anchors are optional: without one, responses earn no bonus.

    `prompt` is plain text or chat messages (`[{"role": "user", "content": ...}]`). `choices` are the texts of a
    multiple-choice problem, and `answer` is then a letter. `question` is the problem without a template's
    instructions, if `prompt` has some.

    Example: Problem(id="train-17", prompt="3+4*7-2=", answer="7", anchors=(Anchor(text="..."),), source="arithmetic")
    """

    id: str
    prompt: Prompt
    answer: str
    anchors: tuple[Anchor, ...] = ()
    source: str = ""
    choices: tuple[str, ...] = ()
    question: str = ""


def prompt_text(prompt: Prompt) -> str:
    """The text of a prompt. Chat messages are joined by line breaks."""
    return prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in prompt)


def problem_text(problem: Problem) -> str:
    """The text of a problem, without a template's instructions."""
    return problem.question or prompt_text(problem.prompt)


class Status(StrEnum):
    """The outcome of a verification. The answer was judged only if it is OK or WRONG."""

    OK = "ok"
    WRONG = "wrong"
    UNPARSED = "unparsed"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A verifier's judgment of one response.

    `grade` lies in [0, 1] and is 0 unless the status is OK or WRONG. `verified` is a grade of 1.
    `answer` is the text of the final answer, or None if the response has none. `detail` explains a failure.

    Example: Verdict(status=Status.OK, grade=1.0, verified=True, well_formatted=True, answer="7")
    """

    status: Status
    grade: float
    verified: bool
    well_formatted: bool
    answer: str | None = None
    detail: str = ""

    @classmethod
    def decided(cls, right: bool | None) -> "Verdict":
        """The verdict for a bare True, False or None, when no format is checked."""
        status = Status.UNPARSED if right is None else Status.OK if right else Status.WRONG
        return cls(status=status, grade=float(bool(right)), verified=bool(right), well_formatted=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tags:
    """The markers of the response format [GAR paper, C.5].

    Example: Tags(think_open="<|think|>", think_close="<|/think|>") is the released code's variant.
    """

    think_open: str = "<think>"
    """Opens the thinking part, in the response or at the end of the prompt."""
    think_close: str = "</think>"
    """Closes the thinking part."""
    answer_open: str = "<answer>"
    """Opens the answer part."""
    answer_close: str = "</answer>"
    """Closes the answer part."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        """Raise a ValueError if a tag is empty or part of another."""
        if not all(astuple(self)):
            raise ValueError("a tag is empty")
        for tag, other in permutations(astuple(self), 2):
            if tag in other:
                raise ValueError(f"'{tag}' is part of another tag. Choose tags that do not contain each other.")


A_VERIFIER = "something with format, tags and verify, such as gar.Verifier()"


@runtime_checkable
class ResponseVerifier(Protocol):
    """The interface of a verifier for training and evaluation. `gar.verify.Verifier` implements it."""

    format: ResponseFormat
    tags: Tags

    def verify(
        self,
        responses: Sequence[str],
        golds: Sequence[str],
        *,
        prefilled_think: Sequence[bool],
        prompts: Sequence[str] | None = None,
    ) -> list[Verdict]:
        """Give one verdict per response, in order.

        Args:
            responses: Texts without their prompts.
            golds: The right answers.
            prefilled_think: Whether each prompt ends with the opening thinking tag.
            prompts: The problems, as text. None if they are not known.
        """
        ...
