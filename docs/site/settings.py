"""Prints docs/configuration.md, every setting with its default: python docs/site/settings.py > docs/configuration.md"""

import ast
import inspect
import itertools
import re
import types
from dataclasses import asdict
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gar.config import RunConfig
from gar.settings import Settings
from gar.types import Tags

INTRODUCTION = """\
# Configuration

Set a value by its name, on the command line or in a file:

    gar train --reward.bonus_weight 0.3 --trl.learning_rate 1e-6

```yaml
reward: {bonus_weight: 0.3}
trl: {learning_rate: 1.0e-6}
```

A flag overrides a file or preset. Give one of the two. An unknown name raises an error with the nearest one.
`gar --help` lists the commands, `gar train --help` the common settings, `--help-all` all of them. The files of
slime and verl have the same sections under `gar`. [What does not go together](rules.md) lists the combinations
that raise an error.
"""
TYPES = {str: "text", int: "integer", float: "number", bool: "true, false", dict: "names and values"}


def page() -> str:
    """The page as Markdown."""
    sections = {name: value for name, value in RunConfig() if isinstance(value, Settings)}
    parts = [INTRODUCTION, "## A run\n", table(RunConfig(), "")]
    for name, section in sections.items():
        parts += [f"## {name}\n", f"{first_line(type(section))}\n", table(section, f"{name}.")]
    return "\n".join(parts)


def table(section: Settings | Tags, prefix: str) -> str:
    """One row for each setting of a section and of its inner sections."""
    kind, rows = type(section), []
    texts, hints = attribute_docstrings(kind), get_type_hints(kind, include_extras=True)
    for name in asdict(section) if isinstance(section, Tags) else kind.model_fields:
        value = getattr(section, name)
        if isinstance(value, (Settings, Tags)):
            rows += table(value, f"{prefix}{name}.").splitlines()[2:] if prefix else []
            continue
        rows.append(f"| `{prefix}{name}` | {values(hints[name])} | {shown(value)} | {texts.get(name, '')} |")
    return "\n".join(["| setting | values | default | what |", "| --- | --- | --- | --- |", *rows]) + "\n"


def values(annotation: Any) -> str:
    """What a setting takes, in words."""
    if hasattr(annotation, "__value__"):
        return values(annotation.__value__)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(annotation))
    if get_origin(annotation) in (types.UnionType, Union, tuple):
        kinds = [values(each) for each in get_args(annotation) if each not in (type(None), ...)]
        return ("list of " if get_origin(annotation) is tuple else "") + " or ".join(dict.fromkeys(kinds))
    if hasattr(annotation, "__metadata__"):
        return values(annotation.__origin__)
    return TYPES.get(get_origin(annotation) or annotation, "text")


def shown(default: Any) -> str:
    """A default as the command line writes it."""
    if default is None or default in ((), {}):
        return ""
    return f"`{' '.join(map(str, default)) if isinstance(default, tuple) else default}`"


def first_line(section: type[Settings]) -> str:
    """The first sentence of a section's docstring."""
    return (inspect.getdoc(section) or "").partition("\n\n")[0].replace("\n", " ")


def attribute_docstrings(section: type) -> dict[str, str]:
    """The text below each field of a class and of its parents, on one line."""
    found: dict[str, str] = {}
    for parent in reversed([each for each in section.__mro__ if issubclass(each, (Settings, Tags))]):
        body = ast.parse(inspect.getsource(parent)).body[0].body
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                line = re.sub(r"\s+", " ", str(text.value.value)).replace("|", r"\|")
                found[field.target.id] = re.sub(r"(?<!`)(\\boxed\{\})", r"`\1`", line)
    return found


if __name__ == "__main__":
    print(page(), end="")
