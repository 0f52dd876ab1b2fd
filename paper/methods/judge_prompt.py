"""The judge's prompt: a template in a file, filled in around the token ids of a response."""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar import ConfigError, ModelError, Prompt
from paper.methods.judge_settings import JudgeSettings

_FIELDS = ("problem", "response", "criterion")


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgePrompt:
    """One row for the judge: `ids` with the response at `[start, start + num_tokens)`.

    Example: JudgePrompt(ids=[5, 9, 7, 33], start=1, num_tokens=2)
    """

    ids: list[int]
    start: int
    num_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeTemplate:
    """Texts and fields in order: `before` precedes the response, `after` follows it.

    Each entry is a literal text and the field after it, None for no field.
    """

    before: tuple[tuple[str, str | None], ...]
    after: tuple[tuple[str, str | None], ...]

    @property
    def fields(self) -> set[str | None]:
        """The fields it uses, except the response."""
        return {field for _, field in (*self.before, *self.after)}


def read_template(name: str) -> JudgeTemplate:
    """Read a packaged template by its name, or one from a text file in UTF-8. Trailing white space is removed.

    The model reads the text as it is: no chat template is applied, but a file may contain a model's own markers. Write
    a literal brace twice, `{{`.

    Args:
        name: `default`, `arithmetic`, or the path of a file.

    Raises:
        ConfigError: There is no such template, it lacks `{problem}` or exactly one `{response}`, or it has a field
            other than these and `{criterion}`.
    """
    packaged = Path(__file__).parent / "judges"
    known = sorted(entry.name.removesuffix(".txt") for entry in packaged.iterdir())
    source = packaged / f"{name}.txt" if name in known else Path(name)
    if not source.is_file():
        raise ConfigError(
            f"grad2reward.template: there is no file '{name}', and no packaged template of that name; these are "
            f"{', '.join(known)}."
        )
    return _parse_template(source.read_text(encoding="utf-8").rstrip(), name)


def _parse_template(text: str, name: str) -> JudgeTemplate:
    parts: list[tuple[str, str | None]] = []
    try:
        for literal, field, form, conversion in string.Formatter().parse(text):
            odd = (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            parts.append((literal, None if field is None else field + odd))
    except ValueError as error:
        raise ConfigError(f"grad2reward.template '{name}': {error}. Write a literal brace twice.") from error
    fields = [field for _, field in parts if field is not None]
    for field in fields:
        if field not in _FIELDS:
            raise ConfigError(
                f"grad2reward.template '{name}': unknown field {{{field}}}, expected {{problem}}, {{response}} or "
                "{criterion}. Write a literal brace twice."
            )
    if fields.count("response") != 1 or "problem" not in fields:
        raise ConfigError(
            f"grad2reward.template '{name}': expected {{problem}} and exactly one {{response}}, got "
            f"{' '.join(f'{{{field}}}' for field in fields) or 'no field at all'}."
        )
    middle = next(i for i, (_, field) in enumerate(parts) if field == "response")
    return JudgeTemplate(before=(*parts[:middle], (parts[middle][0], None)), after=tuple(parts[middle + 1 :]))


class JudgePrompts:
    """Writes the judge's prompts, and holds the token ids of its verdicts.

    Args:
        tokenizer: The policy's tokenizer, since responses are given as token ids.
        settings: Template, verdicts and criteria.

    Raises:
        ConfigError: As `read_template`; or there are several criteria and no `{criterion}` in the template.
        ModelError: A verdict has no tokens or an unknown one, or both verdicts begin with the same token.
    """

    def __init__(self, tokenizer: Any, settings: JudgeSettings):
        settings = settings.resolved()
        self._tokenizer = tokenizer
        self._template = read_template(settings.template)
        if len(settings.criteria) > 1 and "criterion" not in self._template.fields:
            raise ConfigError(
                f"grad2reward.criteria has {len(settings.criteria)} criteria, but template '{settings.template}' has "
                "no {criterion}: the judge could not tell them apart."
            )
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

    def write(self, problem: Prompt, response: Sequence[int], criterion: str) -> JudgePrompt:
        """Fill in the template. The response's ids are inserted as they are.

        Raises:
            ModelError: The problem is not plain text.
        """
        if not isinstance(problem, str):
            raise ModelError(
                "the judge reads plain text, but a problem is a list of chat messages. Give it the text of the problem."
            )
        values = {"problem": problem, "criterion": criterion}
        before = [*self._leading, *self._encode(_fill(self._template.before, values))]
        after = self._encode(_fill(self._template.after, values))
        return JudgePrompt(ids=[*before, *response, *after], start=len(before), num_tokens=len(response))

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _verdict_ids(self, word: str) -> list[int]:
        ids = self._encode(word)
        if not ids or self._tokenizer.unk_token_id in ids:
            raise ModelError(
                f"the judge cannot say {word!r}: the tokenizer makes it {'an unknown token' if ids else 'no token'}. "
                "Set words that the model knows in grad2reward.verdict_true and grad2reward.verdict_false."
            )
        return ids


def _fill(parts: Sequence[tuple[str, str | None]], values: dict[str, str]) -> str:
    return "".join(literal + (values[field] if field else "") for literal, field in parts)
