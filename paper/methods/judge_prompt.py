"""The judge's prompt: a template in a file, filled in around the token ids of a response."""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar import ConfigError, ModelError, Prompt
from paper.methods.judge_settings import JudgeSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgePrompt:
    """One row for the judge: `ids` with the response at `[start, start + num_tokens)`.

    Example: JudgePrompt(ids=[5, 9, 7, 33], start=1, num_tokens=2)
    """

    ids: list[int]
    start: int
    num_tokens: int


def read_template(name: str) -> tuple[str, str]:
    """The texts before and after the response, with the field `{problem}`. Trailing white space is removed.

    The model reads the text as it is: no chat template is applied, but a file may contain a model's own markers. Write
    a literal brace twice, `{{`.

    Args:
        name: `default`, `arithmetic`, or the path of a text file in UTF-8.

    Raises:
        ConfigError: There is no such template, it lacks `{problem}` or exactly one `{response}`, or it has a different
            field.
    """
    packaged = Path(__file__).parent / "judges"
    known = sorted(entry.name.removesuffix(".txt") for entry in packaged.iterdir())
    source = packaged / f"{name}.txt" if name in known else Path(name)
    if not source.is_file():
        raise ConfigError(
            f"grad2reward.template: there is no file '{name}', and no packaged template of that name. Packaged: "
            f"{', '.join(known)}."
        )
    text = source.read_text(encoding="utf-8").rstrip()
    try:
        fields = [part[1:] for part in string.Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise ConfigError(f"grad2reward.template '{name}': {error}. Write a literal brace twice.") from error
    plain = {(name, "", None) for name in ("problem", "response")}  # without format and conversion
    if {*fields} != plain or text.count("{response}") != 1:
        raise ConfigError(
            f"grad2reward.template '{name}': expected {{problem}} and exactly one {{response}}, got "
            f"{' '.join(f'{{{name}}}' for name, *_ in fields) or 'no field at all'}. Write a literal brace twice."
        )
    before, _, after = text.partition("{response}")
    return before, after


class JudgePrompts:
    """Writes the judge's prompts, and holds the token ids of its verdicts.

    Args:
        tokenizer: The policy's tokenizer, since responses are given as token ids.
        settings: Template and verdicts.

    Raises:
        ConfigError: As `read_template`.
        ModelError: A verdict has no tokens or an unknown one, or both verdicts begin with the same token.
    """

    def __init__(self, tokenizer: Any, settings: JudgeSettings):
        settings = settings.resolved()
        self._tokenizer = tokenizer
        self._before, self._after = read_template(settings.template)
        first = tokenizer(text="a")["input_ids"][:1]
        self._leading = first if first == [tokenizer.bos_token_id] else []
        self.true_ids = self._verdict_ids(settings.verdict_true or "")
        self.false_ids = self._verdict_ids(settings.verdict_false or "")
        if self.true_ids[0] == self.false_ids[0]:
            raise ModelError(
                f"the judge's verdicts {settings.verdict_true!r} and {settings.verdict_false!r} begin with the same "
                f"token, {tokenizer.convert_ids_to_tokens(self.true_ids[0])!r}, so the judge could not choose between "
                "them there. Set other words in grad2reward.verdict_true and grad2reward.verdict_false."
            )

    def write(self, problem: Prompt, response: Sequence[int]) -> JudgePrompt:
        """Fill in the template. The response's ids are inserted as they are.

        Raises:
            ModelError: The problem is not plain text.
        """
        if not isinstance(problem, str):
            raise ModelError(
                "the judge reads plain text, but a problem is a list of chat messages. Give it the text of the problem."
            )
        before = [*self._leading, *self._encode(self._before.format(problem=problem))]
        after = self._encode(self._after.format(problem=problem))
        return JudgePrompt(ids=[*before, *response, *after], start=len(before), num_tokens=len(response))

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _verdict_ids(self, word: str) -> list[int]:
        ids = self._encode(word)
        if not ids or self._tokenizer.unk_token_id in ids:
            raise ModelError(
                f"the judge cannot write {word!r}: the tokenizer makes it {'an unknown token' if ids else 'no token'}. "
                "Set words that the model knows in grad2reward.verdict_true and grad2reward.verdict_false."
            )
        return ids
