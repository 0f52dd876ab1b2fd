"""Prints docs/rules.md, the page of `gar.rules`: python docs/site/rules.py > docs/rules.md"""

import re

from gar.integrations.slime.settings import SLIME
from gar.integrations.verl.settings import VERL
from gar.rules import RULES, Condition, Rule, in_words

INTRODUCTION = """\
# What does not go together

Every engine checks this table before anything runs. One error names all faults of a run: what was found, what was
expected, and why. A warning names the settings that nothing reads. `no value` means: leave it at its default.
`method.…` is what the [method](methods.md) declares. It also lists the fields of TRL that belong to a method.
`docs/site/rules.py` prints this page from `gar.rules` and each engine's `settings.py`.
"""

TABLES = (
    ("On every engine", "", "error"),
    ("gar train", "gar train", "error"),
    ("TRL", "TRL", "error"),
    (SLIME.name, SLIME.name, "error"),
    (VERL.name, VERL.name, "error"),
    ("What nothing reads", "", "unread"),
    ("What makes a resumed run differ from an uninterrupted one", "TRL", "resume"),
)


def page() -> str:
    """The page as Markdown."""
    parts, own = [INTRODUCTION], {engine.name: engine.rules for engine in (SLIME, VERL)}
    for title, where, level in TABLES:
        rules = own.get(where) or [rule for rule in RULES if (rule.where, rule.level) == (where, level)]
        rows = list(map(row, rules))
        names = ["setting or flag", "expected", "why", "when"]
        kept = [i for i in range(4) if any(found[i] for found in rows) and (level != "unread" or i in (0, 3))]
        table = [[found[i] for i in kept] for found in (names, ["---"] * 4, *rows)]
        parts += [f"## {title}\n", "".join(f"| {' | '.join(cells)} |\n" for cells in table)]
    return "\n".join(parts)


def row(rule: Rule) -> list[str]:
    """Names, allowed values, reason and condition of a rule."""
    allowed = rule.allowed.words if isinstance(rule.allowed, Condition) else rule.allowed
    allowed = allowed if isinstance(allowed, str) else in_words(allowed)
    names = ", ".join(f"`{name}`" for name in rule.names.split())
    when = ", ".join(f"`{name}` is {in_words(values)}" for name, values in rule.when.items())
    return [names, *(re.sub(r"\{([^}]*)\}", r"`\1`", text) for text in (allowed, rule.why)), when]


if __name__ == "__main__":
    print(page(), end="")
