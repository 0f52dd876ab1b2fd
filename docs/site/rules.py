"""Prints docs/rules.md, the page of all rules: python docs/site/rules.py > docs/rules.md"""

import re

from gar.integrations.slime.settings import SLIME
from gar.integrations.trl.rules import RESUME_RULES
from gar.integrations.trl.rules import RULES as TRL_RULES
from gar.integrations.verl.settings import VERL
from gar.methods.rules import METHOD_RULES, UNREAD_RULES
from gar.rules import Condition, Rule, in_words
from gar.train.rules import RULES as TRAIN_RULES

INTRODUCTION = """\
# What does not go together

Every engine checks this table before anything runs. One error names all faults of a run: what was found, what was
expected, and why. A warning names the settings that nothing reads. `no value` means: leave it at its default.
`method.…` is what the [method](methods.md) declares. It also lists the fields of TRL that belong to a method.
The page leaves out ranges and choices of single values. `docs/site/rules.py` prints it from the tables in `src/gar`.
"""

TABLES = {
    "On every engine": METHOD_RULES,
    "gar train": TRAIN_RULES,
    "TRL": TRL_RULES,
    "slime": SLIME.rules,
    "verl": VERL.rules,
    "What nothing reads": UNREAD_RULES,
    "What makes a resumed run differ from an uninterrupted one": RESUME_RULES,
}


def page() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION]
    for title, rules in TABLES.items():
        rows = [row(rule) for rule in rules if rule.why or rule.when]
        names = ["setting or flag", "expected", "why", "when"]
        kept = [i for i in range(4) if any(found[i] for found in rows) and (rules is not UNREAD_RULES or i in (0, 3))]
        table = [[found[i] for i in kept] for found in (names, ["---"] * 4, *rows)]
        parts += [f"## {title}\n", "".join(f"| {' | '.join(cells)} |\n" for cells in table)]
    return "\n".join(parts)


def row(rule: Rule) -> list[str]:
    """Names, allowed values, reason and condition of a rule."""
    allowed = rule.allowed.words if isinstance(rule.allowed, Condition) else in_words(rule.allowed)
    names = ", ".join(f"`{name}`" for name in rule.names.split())
    when = ", ".join(when.words for when in rule.when)
    return [names, *(re.sub(r"\{([^}]*)\}", r"`\1`", text) for text in (allowed, rule.why)), when]


if __name__ == "__main__":
    print(page(), end="")
