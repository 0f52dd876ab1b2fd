"""Find problems of a benchmark in a training set: exact copies and shared runs of 13 words.

    python -m paper.analyses.overlaps numina.jsonl gsm8k_test.jsonl

The training set is streamed. Runs of 13 words follow Brown et al. 2020, appendix C. Words are runs of letters, digits
and underscores in lower case, so that LaTeX, spaces and punctuation do not hide a copy. Stock phrases match by chance,
so read the examples.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gar.data import load_problems, prompt_text

GRAM_WORDS = 13

_WORD = re.compile(r"\w+")


def find_overlaps(rows: Iterable[tuple[str, str]], problems: Mapping[str, str]) -> dict[str, tuple[float, str]]:
    """Look for every problem in every row of a training set, in one pass.

    `rows` are places and texts, `problems` texts by id. A problem with fewer than 13 words counts only as a copy, apart
    from case and white space.

    Returns:
        By the id of each problem that was found: the largest share of its runs of words in a single row, 1 if a row
        contains all of it, and the first such row.
    """
    runs = {name: _runs(text) for name, text in problems.items()}
    holders: dict[str, list[str]] = {}
    for name, run in ((name, run) for name, parts in runs.items() for run in parts):
        holders.setdefault(run, []).append(name)
    overlaps: dict[str, tuple[float, str]] = {}
    for place, text in rows:
        shared = Counter(name for run in _runs(text) for name in holders.get(run, ()))
        for name, count in shared.items():
            fraction = count / len(runs[name])
            if fraction > overlaps.get(name, (0, ""))[0]:
                overlaps[name] = (fraction, place)
    return overlaps


def _runs(text: str) -> set[str]:
    """Runs of 13 words. A shorter text is one run of its words, with white space in place of other characters."""
    words = _WORD.findall(text.casefold())
    if len(words) < GRAM_WORDS:
        return {" ".join(text.casefold().split())}
    return {" ".join(words[i : i + GRAM_WORDS]) for i in range(len(words) - GRAM_WORDS + 1)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Count the problems of the benchmark that the training set holds, and show those with the largest overlap."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a training set, as gar train reads it")
    parser.add_argument("benchmark", help="its problems, as gar train reads them")
    options = parser.parse_args(arguments)
    problems = {problem.id: prompt_text(problem.prompt) for problem in load_problems(options.benchmark)}
    rows = ((problem.id, prompt_text(problem.prompt)) for problem in load_problems(options.source))
    overlaps = find_overlaps(rows, problems)
    whole = sum(fraction == 1 for fraction, _ in overlaps.values())
    print(f"Of {len(problems):,} problems {whole:,} are whole in one row, {len(overlaps):,} whole or with 13 words.")
    for name in sorted(overlaps, key=lambda name: -overlaps[name][0])[:5]:
        fraction, place = overlaps[name]
        print(f"  {name}: {fraction:.0%} in {place}")


if __name__ == "__main__":
    main()
