"""Tables of a comparison as GitHub Markdown, and for a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gar.evaluation.text_tables import NONE, aligned, difference_cells, markdown_text, number_text, p_text, rows_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Seconds and memory of a method. Ratios are to the first row of the same seed: median, smallest, largest."""

    label: str
    num_seeds: int
    seconds_per_step: Mapping[str, float]
    step_ratio: tuple[float, float, float] | None
    peak_memory_bytes: float
    memory_ratio: tuple[float, float, float] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonNumbers:
    """Everything the tables show.

    Attributes:
        name: Name of the comparison.
        num_seeds: Planned seeds.
        num_finished: By label, in the order of the rows. 0 is "not run".
        columns: (set, k) in the order of the columns.
        num_tests: Comparisons of one set and k that Holm's correction counts, those not run included.
        scores: As `gar.evaluation.paired.scores`.
        differences: As `gar.evaluation.paired.contrasts`.
        notes: Sentences below the tables.
    """

    name: str
    num_seeds: int
    num_finished: Mapping[str, int]
    columns: Sequence[tuple[str, int]]
    num_tests: int
    scores: pd.DataFrame
    differences: pd.DataFrame
    costs: Sequence[Cost]
    notes: Sequence[str]


def markdown(numbers: ComparisonNumbers) -> str:
    """All tables as GitHub Markdown, with the notes below."""
    return markdown_text(_tables(numbers), numbers.notes, heading=(f"# {numbers.name}", ""))


def on_screen(numbers: ComparisonNumbers) -> str:
    """Scores and tests, a table for each set and k, narrow enough for a terminal; the notes below."""
    texts = [aligned(*_screen_table(numbers, *column)) for column in numbers.columns]
    if len(numbers.differences):
        texts.append(
            "difference: from the reference row, paired by seed, with its 95% bootstrap interval\n"
            f"p: paired t-test over seeds, Holm-corrected over {numbers.num_tests} comparisons of one set and k"
        )
    return "\n\n".join([*texts, "\n".join(numbers.notes)]).strip()


# ------------------------------------------------------------------------------------------------------------- tables


def _tables(numbers: ComparisonNumbers) -> dict[str, pd.DataFrame]:
    """By title."""
    tables = [_score_table(numbers)]
    if len(numbers.differences):
        tables.append(_difference_table(numbers))
    if numbers.costs:
        tables.append(_cost_table(numbers))
    return dict(tables)


def _screen_table(numbers: ComparisonNumbers, set_name: str, k: int) -> tuple[str, pd.DataFrame]:
    scores, rows = _by_key(numbers.scores), []
    for label, count in numbers.num_finished.items():
        score = scores.get((label, set_name, k), [])
        name = [label, f"{count}/{numbers.num_seeds}", number_text(score[0].mean if score else None)]
        tests = _by_key(numbers.differences).get((label, set_name, k), [])
        for test in tests:
            difference, interval, p, _, verdict = difference_cells(test)
            rows.append([*name, test.against, difference, interval, p, verdict])
        if not tests:
            rows.append([*name, *[NONE] * 5])
    headings = ["row", "seeds", "mean", "against", "difference", "95%", "p", "verdict"]
    table = pd.DataFrame(rows, columns=headings)
    first = next(iter(numbers.num_finished))
    if set(table["against"]) <= {first, NONE}:  # then the title says it
        return f"{set_name} pass@{k}, against {first}", table.drop(columns="against")
    return f"{set_name} pass@{k}", table


def _score_table(numbers: ComparisonNumbers) -> tuple[str, pd.DataFrame]:
    scores, tests, rows = _by_key(numbers.scores), _by_key(numbers.differences), []
    for label, count in numbers.num_finished.items():
        keys = [(label, set_name, k) for set_name, k in numbers.columns]
        seeds = f"{count} of {numbers.num_seeds}" if count else "not run"
        rows.append([label, seeds, *(_score(scores.get(key, ()), tests.get(key, ())) for key in keys)])
    title = (
        "pass@k after training: mean ± standard deviation over seeds; in brackets the difference to the method "
        "that it stands against, relative to that."
    )
    headings = ["method", "seeds", *(f"{set_name} pass@{k}" for set_name, k in numbers.columns)]
    return title, pd.DataFrame(rows, columns=headings)


def _difference_table(numbers: ComparisonNumbers) -> tuple[str, pd.DataFrame]:
    rows = []
    for row in sorted(rows_of(numbers.differences), key=lambda row: numbers.columns.index((row.set_name, row.k))):
        difference, interval, holm, effect, verdict = difference_cells(row)
        name = [f"{row.set_name} pass@{row.k}", row.label, row.against, row.num_seeds]
        others = [p_text(row.p_t), p_text(row.p_permutation)]
        rows.append([*name, difference, interval, _relative(row), *others, holm, effect, verdict])
    title = (
        "Differences, paired by seed: 95% bootstrap interval over seeds and problems, not corrected; two-sided "
        "paired t-test; sign-flip permutation test; Holm's correction of the t-test over all comparisons of one set "
        f"and k ({numbers.num_tests}); the difference that is detected with 80% power. The verdict is by Holm's "
        "p < 0.05."
    )
    headings = [
        "on", "method", "against", "seeds", "difference", "95% interval", "relative", "t-test p", "permutation p",
        "Holm p", "detectable", "verdict",
    ]  # fmt: skip
    return title, pd.DataFrame(rows, columns=headings)


def _cost_table(numbers: ComparisonNumbers) -> tuple[str, pd.DataFrame]:
    first = next(iter(numbers.num_finished))
    parts = _parts(numbers.costs)
    rows = [
        [
            cost.label,
            cost.num_seeds,
            *(number_text(cost.seconds_per_step.get(part)) for part in parts),
            _ratio(cost.step_ratio),
            f"{cost.peak_memory_bytes / 2**20:.0f} MiB",
            _ratio(cost.memory_ratio),
        ]
        for cost in numbers.costs
    ]
    title = (
        "Cost: seconds per optimizer step and by part, medians over generations and then over seeds; largest "
        f"resident memory; ratios to {first} of the same seed, median (smallest to largest)."
    )
    headings = ["method", "seeds", *parts, f"step against {first}", "peak memory", f"memory against {first}"]
    return title, pd.DataFrame(rows, columns=headings)


def _parts(costs: Iterable[Cost]) -> list[str]:
    """Parts of a step that any method has, the whole first."""
    parts = {part for cost in costs for part in cost.seconds_per_step}
    return sorted(parts, key=lambda part: (part != "step", part))


# -------------------------------------------------------------------------------------------------------------- cells


def _by_key(table: pd.DataFrame) -> dict[tuple[str, str, int], list[Any]]:
    """Rows by label, set and k."""
    by_key: dict[tuple[str, str, int], list[Any]] = {}
    for row in rows_of(table):
        by_key.setdefault((row.label, row.set_name, row.k), []).append(row)
    return by_key


def _score(scores: Sequence[Any], tests: Sequence[Any]) -> str:
    if not scores:
        return NONE
    mean, sd = scores[0].mean, number_text(scores[0].sd)
    relative = "" if not tests else f" ({_relative(tests[0])})"
    return f"{mean:.3f}{'' if sd == NONE else f' ± {sd}'}" + ("" if relative == f" ({NONE})" else relative)


def _relative(row: Any) -> str:
    """Difference of the means over the reference's mean."""
    return f"{100 * row.difference / row.reference:+.1f}%" if row.reference else NONE


def _ratio(ratio: tuple[float, float, float] | None) -> str:
    if ratio is None:
        return NONE
    middle, low, high = ratio
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
