"""Tables of a comparison as GitHub Markdown, and for a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gar.evaluation.paired import Contrast, PairedComparison, p_text, result_cells
from gar.evaluation.text_tables import NONE, TextTable, aligned, markdown_text


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
        num_finished: By label, in the order of the rows; 0 is "not run".
        columns: (set, k) in the order of the columns.
        num_tests: Comparisons of one set and k that Holm's correction counts, those not run included.
        scores: Mean and standard deviation of pass@k over seeds, by (label, set, k); None for one seed.
        notes: Sentences below the tables.
    """

    name: str
    num_seeds: int
    num_finished: Mapping[str, int]
    columns: Sequence[tuple[str, int]]
    num_tests: int
    scores: Mapping[tuple[str, str, int], tuple[float, float | None]]
    differences: Sequence[Contrast]
    costs: Sequence[Cost]
    notes: Sequence[str]


def markdown(numbers: ComparisonNumbers) -> str:
    """All tables as GitHub Markdown, with the notes below."""
    return markdown_text(_tables(numbers), numbers.notes, heading=(f"# {numbers.name}", ""))


def on_screen(numbers: ComparisonNumbers) -> str:
    """Scores and tests, a table for each set and k, narrow enough for a terminal; the notes below."""
    texts = [aligned(_screen_table(numbers, *column)) for column in numbers.columns]
    if numbers.differences:
        texts.append(
            "difference: from the reference row, paired by seed, with its 95 % bootstrap interval\n"
            f"p: paired t-test over seeds, Holm-corrected over {numbers.num_tests} comparisons of one set and k"
        )
    return "\n\n".join([*texts, "\n".join(numbers.notes)]).strip()


# ------------------------------------------------------------------------------------------------------------- tables


def _tables(numbers: ComparisonNumbers) -> list[TextTable]:
    tables = [_score_table(numbers)]
    if numbers.differences:
        tables.append(_difference_table(numbers))
    if numbers.costs:
        tables.append(_cost_table(numbers))
    return tables


def _screen_table(numbers: ComparisonNumbers, set_name: str, k: int) -> TextTable:
    rows = []
    for label, count in numbers.num_finished.items():
        score = numbers.scores.get((label, set_name, k))
        seeds = f"{count}/{numbers.num_seeds}"
        name = [label, seeds, NONE if score is None else f"{score[0]:.3f}"]
        tests = [d for d in numbers.differences if (d.label, d.set_name, d.k) == (label, set_name, k)]
        for test in tests:
            difference, interval, p, _, verdict = result_cells(test.result)
            rows.append([*name, test.against, difference, interval, p, verdict])
        if not tests:
            rows.append([*name, *[NONE] * 5])
    headings = ["row", "seeds", "mean", "against", "difference", "95 %", "p", "verdict"]
    first = next(iter(numbers.num_finished))
    if {row[3] for row in rows} <= {first, NONE}:  # then the title says it
        headings, rows = [h for h in headings if h != "against"], [[*row[:3], *row[4:]] for row in rows]
        against = f", against {first}"
    else:
        against = ""
    return TextTable(title=f"{set_name} pass@{k}{against}", headings=headings, rows=rows)


def _score_table(numbers: ComparisonNumbers) -> TextTable:
    relatives = {(d.label, d.set_name, d.k): _relative(d.result) for d in reversed(numbers.differences)}
    rows = []
    for label, count in numbers.num_finished.items():
        seeds = f"{count} of {numbers.num_seeds}" if count else "not run"
        keys = [(label, set_name, k) for set_name, k in numbers.columns]
        rows.append([label, seeds, *(_score(numbers.scores.get(key), relatives.get(key)) for key in keys)])
    return TextTable(
        title="pass@k after training: mean ± standard deviation over seeds; in brackets the difference to the method "
        "that it stands against, relative to that.",
        headings=["method", "seeds", *(f"{set_name} pass@{k}" for set_name, k in numbers.columns)],
        rows=rows,
    )


def _difference_table(numbers: ComparisonNumbers) -> TextTable:
    rows = []
    for d in sorted(numbers.differences, key=lambda d: numbers.columns.index((d.set_name, d.k))):
        difference, interval, holm, effect, verdict = result_cells(d.result)
        name = [f"{d.set_name} pass@{d.k}", d.label, d.against, str(d.result.num_seeds)]
        others = [p_text(d.result.t_p_value), p_text(d.result.permutation_p_value)]
        rows.append([*name, difference, interval, _percent(_relative(d.result)), *others, holm, effect, verdict])
    return TextTable(
        title="Differences, paired by seed: 95 % bootstrap interval over seeds and problems, not corrected; two-sided "
        "paired t-test; sign-flip permutation test; Holm's correction of the t-test over all comparisons of one set "
        f"and k ({numbers.num_tests}); the difference that is detected with 80% power. The verdict is by Holm's "
        "p < 0.05.",
        headings=[
            "on", "method", "against", "seeds", "difference", "95 % interval", "relative", "t-test p", "permutation p",
            "Holm p", "detectable", "verdict",
        ],
        rows=rows,
    )  # fmt: skip


def _cost_table(numbers: ComparisonNumbers) -> TextTable:
    first = next(iter(numbers.num_finished))
    parts = _parts(numbers.costs)
    rows = [
        [
            cost.label,
            str(cost.num_seeds),
            *(_number(cost.seconds_per_step.get(part)) for part in parts),
            _ratio(cost.step_ratio),
            f"{cost.peak_memory_bytes / 2**20:.0f} MiB",
            _ratio(cost.memory_ratio),
        ]
        for cost in numbers.costs
    ]
    return TextTable(
        title="Cost: seconds per optimizer step and by part, medians over generations and then over seeds; largest "
        f"resident memory; ratios to {first} of the same seed, median (smallest to largest).",
        headings=["method", "seeds", *parts, f"step against {first}", "peak memory", f"memory against {first}"],
        rows=rows,
    )


def _parts(costs: Iterable[Cost]) -> list[str]:
    """Parts of a step that any method has, the whole first."""
    parts = {part for cost in costs for part in cost.seconds_per_step}
    return sorted(parts, key=lambda part: (part != "step", part))


# -------------------------------------------------------------------------------------------------------------- cells


def _score(score: tuple[float, float | None] | None, relative: float | None) -> str:
    if score is None:
        return NONE
    mean, sd = score
    spread = "" if sd is None else f" ± {sd:.3f}"
    return f"{mean:.3f}{spread}" + ("" if relative is None else f" ({_percent(relative)})")


def _relative(result: PairedComparison) -> float | None:
    """Difference of the means over the reference's mean; None where that is 0."""
    return result.difference / result.reference if result.reference else None


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:+.1f} %"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _ratio(ratio: tuple[float, float, float] | None) -> str:
    if ratio is None:
        return NONE
    middle, low, high = ratio
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
