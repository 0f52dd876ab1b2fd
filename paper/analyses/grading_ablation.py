"""What each rule of the verifier buys: verdicts on unseen answers with one rule switched off at a time.

    python -m paper.analyses.grading_ablation FOLDER [--near-misses 12] [--only NAME]

FOLDER has the data of `GAR_TEST_DATA`. A rule is a pattern, a word list, a rewriting or a function of `gar.verify`. A
pattern that is switched off matches nothing, a list is empty, a function returns what stands in `FUNCTIONS`. Prints for
each rule how many verdicts change, and for judged pairs how many right answers are lost, how many wrong ones pass, and
the reverse of both. A rule that changes none does not earn its lines.
"""

import argparse
import functools
import gc
import importlib
import pkgutil
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gar.evaluation import print_tables
from gar.verify import grade_answer, parse_response
from paper.analyses.unseen_answers import Pair, by_hand, labeled, near_misses, solutions

NEVER = re.compile("(?!)" + 9 * "()")  # with groups that replacements name
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "answers.choice_text": lambda _: "",
    "answers.compare_notations": lambda *_: None,
    "answers.is_copy": lambda *_, **__: False,
    "answers.undone": lambda *_: set(),
    "answers.without_lead": lambda text: text,
    "boxes._in_context": lambda text, box: text[box[1] : box[2]],
    "boxes.is_changed": lambda _: False,
    "boxes.is_open": lambda *_: False,
    "free._announced": lambda *_, **__: None,
    "free._last_sentence": lambda text: text,
    "free.is_open": lambda *_: False,
    "free.is_taken_back": lambda *_: False,
    "free.last_tagged": lambda *_, **__: None,
    "free.sentence_value": lambda *_: None,
    "grammar._rewritten": lambda text: text,
    "notations._capitals": lambda text: text,
    "notations._ratio": lambda _: [],
    "notations._residues": lambda _: (),
    "quantities._is_plural": lambda *_: False,
    "quantities._unit_after": lambda *_, **__: {},
    "quantities._words_after": lambda _: ({}, []),
    "quantities._without_words_before": lambda text, *_, **__: (text, ""),
    "quantities.read_unit": lambda _, start: ({}, start),
    "quantities.unit_start": lambda value, **_: len(value),
    "regions._set_of": lambda node: node,
    "sentences._chain_value": lambda *_: None,
    "sentences._is_stated": lambda *_: True,
    "sentences._only_value": lambda *_: None,
    "sentences.sentence_value": lambda *_, **__: None,
    "undone._is_bare": lambda *_: False,
    "undone._is_power_of_ten": lambda *_: False,
    "undone._is_same": lambda answer, part: answer == part,
    "values._column": lambda answer, gold: (answer, gold),
    "values._is_multiple": lambda *_: False,
    "values._named_values": lambda *_: {},
    "values._names_a_graph": lambda *_: False,
    "values._scaled": lambda node: node,
    "values.stated_value": lambda node, **_: node,
    "values._with_parameters_of": lambda answer, _: answer,
    "values.is_region": lambda *_: False,
}
"""Functions, and what they return when they are switched off."""


def modules() -> list[ModuleType]:
    """All modules of `gar.verify`."""
    names = [module.name for module in pkgutil.iter_modules(importlib.import_module("gar.verify").__path__)]
    return [importlib.import_module(f"gar.verify.{name}") for name in names]


def rules() -> Iterator[tuple[str, list[tuple[Any, Any, Any]]]]:
    """Each rule's name, and what switches it off: holders, keys and new values."""
    every = modules()
    seen: set[int] = set()
    for module in every:
        short = module.__name__.rpartition(".")[2]
        held: dict[str, Any] = vars(module)
        for name, value in held.items():
            if name in ("_RULES", "_UNICODE", "_REWRITES", "_WHOLE", "_AROUND") and isinstance(value, tuple):
                for place, (pattern, spelling) in enumerate(value):
                    rest = value[:place] + value[place + 1 :]
                    yield f"{short}.{name} {pattern.pattern[:50]!r} to {spelling!r}", [(module, name, rest)]
            elif isinstance(value, re.Pattern) and id(value) not in seen:
                seen.add(id(value))
                yield f"{short}.{name}", _everywhere(every, value, NEVER)
    words = importlib.import_module("gar.verify.words")
    for name, value in words.WORDS.items():
        yield f"words {name}", [(words.WORDS, name, frozenset()), *_everywhere(every, value, frozenset())]
    for name, stub in FUNCTIONS.items():
        short, _, function = name.partition(".")
        yield name, [(importlib.import_module(f"gar.verify.{short}"), function, stub)]


def _everywhere(every: Sequence[ModuleType], value: Any, other: Any) -> list[tuple[Any, Any, Any]]:
    return [(module, name, other) for module in every for name, held in vars(module).items() if held is value]


@contextmanager
def switched_off(changes: list[tuple[Any, Any, Any]]) -> Iterator[None]:
    """Put other values in place, and the old ones back."""
    spaces = [holder if isinstance(holder, dict) else vars(holder) for holder, _, _ in changes]
    before = [space[key] for space, (_, key, _) in zip(spaces, changes, strict=True)]
    for space, (_, key, value) in zip(spaces, changes, strict=True):
        space[key] = value
    try:
        yield
    finally:
        for space, (_, key, _), value in zip(spaces, changes, before, strict=True):
            space[key] = value


def passes(pairs: Sequence[Pair]) -> list[bool | None]:
    """Whether each pair passes. None where the verifier failed."""
    for cached in gc.get_objects():
        if isinstance(cached, functools._lru_cache_wrapper) and cached.__module__.startswith("gar."):
            cached.cache_clear()
    return [_passes(pair) for pair in pairs]


def _passes(pair: Pair) -> bool | None:
    try:
        answer = parse_response(pair.response, format=pair.format).answer  # pyright: ignore[reportArgumentType]
        return bool(answer) and grade_answer(answer, pair.gold, pair.problem).grade == 1
    except Exception:  # a rule that another one needs
        return None


def row(pairs: Sequence[Pair], before: Sequence[bool | None], after: Sequence[bool | None]) -> list[int]:
    """Verdicts that change: all, right ones lost and won, wrong ones that pass and no longer pass, failures."""
    changed = [(pair.right, new) for pair, old, new in zip(pairs, before, after, strict=True) if old != new]
    kinds = ((True, False), (True, True), (False, True), (False, False))
    return [len(changed), *(changed.count(kind) for kind in kinds), sum(new is None for _, new in changed)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--near-misses", type=int, default=12, help="of each gold answer")
    parser.add_argument("--pairs", type=int, default=10**6, help="at most, drawn by chance")
    parser.add_argument("--only", default="", help="a pattern of names of rules")
    arguments = parser.parse_args()
    folder = arguments.folder
    pairs = [*by_hand(), *labeled(folder), *solutions(folder), *near_misses(folder, arguments.near_misses)]
    if arguments.pairs < len(pairs):
        pairs = random.Random(0).sample(pairs, arguments.pairs)
    before = passes(pairs)
    table: dict[str, list[Any]] = {}
    for name, changes in rules():
        if re.search(arguments.only, name):
            with switched_off(changes):
                table[name] = [name, *row(pairs, before, passes(pairs))]
                print(*table[name], sep="\t", file=sys.stderr, flush=True)
    import pandas as pd

    columns = ["rule", "changed", "right lost", "right won", "wrong passes", "wrong stopped", "failed"]
    frame = pd.DataFrame(sorted(table.values(), key=lambda cells: cells[1]), columns=columns)
    print_tables({f"{len(pairs)} pairs": frame}, [])


if __name__ == "__main__":
    main()
