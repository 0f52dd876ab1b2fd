"""Conclusions about the runs: before against after, and method against method. A tie is never a win.

Pairs are seeds if a group has several. With one run, before and after are paired by problem, and the result applies
only to that model. Two methods with one seed each get an interval over problems and no test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gar.evaluation.paired import Contrast, PairedComparison, Rates, compare_paired, p_text
from gar.report.groups import RunGroup
from gar.report.read import ReadRun, RecordedSet

_NOT_SHOWN, _NO_TEST = "no difference shown", "no test: one seed"


class _Pair(NamedTuple):
    label: str
    against: str
    set_name: str
    k: int
    rates: Rates
    reference: Rates


def changes(groups: Sequence[RunGroup], notes: list[str]) -> list[Contrast]:
    """Compare every group after training with itself before, per set and k.

    Args:
        groups: The groups.
        notes: Receives what could not be compared, and why.
    """
    pairs = []
    for group in groups:
        both = [run for run in group.runs if run.evaluations["before"] and run.evaluations["after"]]
        for name, k in _columns(both):
            rates = [_before_and_after(run, name, k, notes) for run in both]
            pairs += _stacked(group.label, "before", name, k, rates, notes)
    return _contrasts(pairs, test_problems=True)


def contests(groups: Sequence[RunGroup], notes: list[str]) -> list[Contrast]:
    """Compare every further group with the first, after training, paired by seed. Arguments as in `changes`."""
    pairs = []
    first = groups[0]
    for group in groups[1:]:
        matched = [(run, other) for run in group.runs for other in first.runs if run.seed == other.seed]
        unlike = [run for run, other in matched if not _same_training(run, other)]
        if unlike:
            notes.append(
                f"{group.label} and {first.label} were not trained on the same problems in the same order (seed "
                f"{unlike[0].seed}), so that the methods cannot be compared"
            )
            continue
        finished = [(run, other) for run, other in matched if run.evaluations["after"] and other.evaluations["after"]]
        if not finished:
            notes.append(f"{group.label} and {first.label} have no seed that both have finished: nothing to compare")
        for name, k in _columns([run for pair in finished for run in pair]):
            rates = [_shared_rates(run, other, name, k, notes) for run, other in finished]
            pairs += _stacked(group.label, first.label, name, k, rates, notes)
    return _contrasts(pairs, test_problems=False)


def headline(
    groups: Sequence[RunGroup], changes: Sequence[Contrast], contests: Sequence[Contrast], reasons: Sequence[str] = ()
) -> str:
    """The verdict in one sentence, or the first reason why there is none."""
    if len(groups) > 1:
        return _contest_headline(groups, contests, reasons)
    by_set = _by_set(changes)
    if not by_set:
        return "No verdict: there is no measurement before and after training to compare."
    if all(contrast.result.verdict == _NOT_SHOWN for contrast in by_set.values()):
        return f"No difference between before and after training is shown on {_listed(list(by_set))}."
    return f"After training the model is {_clauses(by_set)}."


def sentences(groups: Sequence[RunGroup], changes: Sequence[Contrast], contests: Sequence[Contrast]) -> list[str]:
    """The numbers behind the headline, and their scope."""
    if len(groups) == 1:
        return [f"On {_numbers(contrast)}" for contrast in _by_set(changes).values()] + _reach(groups[0], changes)
    lines = [
        f"{group.label} against {groups[0].label} on {_numbers(contrast)}"
        for group in groups[1:]
        for contrast in _by_set(contests, group.label).values()
    ]
    return lines + _contest_reach(contests)


def p_sentence(value: float) -> str:
    """A p-value within a sentence, on one line: `p = 0.031`, `p < 0.001`."""
    text = p_text(value)
    return f"p\u00a0<\u00a0{text[1:]}" if text.startswith("<") else f"p\u00a0=\u00a0{text}"


def signed(value: float) -> str:
    """A difference with its sign and three digits."""
    return f"{value:+.3f}".replace("-", "−")


def _same_training(run: ReadRun, other: ReadRun) -> bool:
    """Whether two runs saw the same problems in the same order, as far as the records tell."""
    if run.record.get("data_hash") != other.record.get("data_hash"):
        return False
    both = run.num_rows and other.num_rows
    return not both or run.problem_ids() == other.problem_ids()


def _columns(runs: Sequence[ReadRun]) -> list[tuple[str, int]]:
    """(set, k) of any evaluation after training, sets in their order."""
    results = [run.evaluations["after"] for run in runs]
    names = dict.fromkeys(name for sets in results for name in sets)
    return [
        (name, k) for name in names for k in sorted({k for sets in results if name in sets for k in sets[name].pass_at})
    ]


def _before_and_after(run: ReadRun, name: str, k: int, notes: list[str]) -> tuple[Rates, Rates] | None:
    after, before = (run.evaluations[moment].get(name) for moment in ("after", "before"))
    rates = _rates(after, before, k)
    if rates is None:
        note = f"{run.name}: {name} was not measured on the same problems before and after, problem by problem: no test"
        notes += [note] if note not in notes else []
    return rates


def _rates(result: RecordedSet | None, reference: RecordedSet | None, k: int) -> tuple[Rates, Rates] | None:
    """pass@k of each problem under both; None if the problems are not the same."""
    if result is None or reference is None or not result.num_correct or not reference.num_correct:
        return None
    if list(result.num_correct) != list(reference.num_correct) or k > min(result.num_samples, reference.num_samples):
        return None
    return np.array(result.rates(k)), np.array(reference.rates(k))


def _shared_rates(run: ReadRun, other: ReadRun, name: str, k: int, notes: list[str]) -> tuple[Rates, Rates] | None:
    """pass@k of the problems that both runs were measured on; None, with a note, where they cannot be compared."""
    sides = [(side.name, side.evaluations["after"].get(name)) for side in (run, other)]
    pair, counts = f"{run.name} and {other.name}", [(part and part.num_correct) or {} for _, part in sides]
    shared = [key for key in counts[0] if key in counts[1]]
    few = [f"{side} has {part.num_samples}" for side, part in sides if part and part.num_samples < k]
    if not shared:
        lacking = [side for (side, _), count in zip(sides, counts, strict=True) if not count]
        why = f"{lacking[0]} has no counts by problem" if lacking else "they were measured on different problems"
        note = f"{pair} are not compared on {name}: {why}"
    elif few:
        note = f"{pair} are not compared on {name} by pass@{k}, which takes {k} samples of each problem: {few[0]}"
    else:
        note = f"{pair} are compared on the {len(shared)} problems of {name} that both were measured on"
    if (few or len(shared) < max(map(len, counts))) and note not in notes:
        notes.append(note)
    if not shared or few:
        return None
    restricted = [
        replace(part, num_correct={key: count[key] for key in shared})
        for (_, part), count in zip(sides, counts, strict=True)
        if part
    ]
    return _rates(restricted[0], restricted[1], k)


def _stacked(
    label: str, against: str, name: str, k: int, rates: Sequence[tuple[Rates, Rates] | None], notes: list[str]
) -> list[_Pair]:
    """The rates of all seeds as one pair; empty if the seeds have different problems."""
    known = [pair for pair in rates if pair is not None]
    if not known:
        return []
    if len({len(values) for values, _ in known}) > 1:
        note = f"{label}: the seeds were measured on different problems of {name}: not compared"
        notes += [note] if note not in notes else []
        return []
    return [_Pair(label, against, name, k, *(np.stack([pair[side] for pair in known]) for side in (0, 1)))]


def _contrasts(pairs: Sequence[_Pair], *, test_problems: bool) -> list[Contrast]:
    """Compare all pairs; those of one k are corrected together."""
    results: dict[int, PairedComparison] = {}
    for k in {pair.k for pair in pairs}:
        places = [place for place, pair in enumerate(pairs) if pair.k == k]
        rates = [(pairs[place].rates, pairs[place].reference) for place in places]
        results |= zip(places, compare_paired(rates, test_problems=test_problems), strict=True)
    return [
        Contrast(label=pair.label, against=pair.against, set_name=pair.set_name, k=pair.k, result=results[place])
        for place, pair in enumerate(pairs)
    ]


def _by_set(contrasts: Sequence[Contrast], label: str | None = None) -> Mapping[str, Contrast]:
    """The contrast at the smallest k of each set, which decides the verdict; only those of `label`, if given."""
    smallest: dict[str, Contrast] = {}
    for contrast in contrasts:
        name = contrast.set_name
        if label in (None, contrast.label) and (name not in smallest or contrast.k < smallest[name].k):
            smallest[name] = contrast
    return smallest


def _contest_headline(groups: Sequence[RunGroup], contests: Sequence[Contrast], reasons: Sequence[str]) -> str:
    verdicts = {contrast.result.verdict for contrast in contests}
    if not contests:
        return f"No verdict: {reasons[0] if reasons else 'these runs have no measurement in common'}."
    if verdicts == {_NOT_SHOWN}:
        return "No difference between these groups of runs is shown."
    if verdicts == {_NO_TEST}:
        return "No test: with one seed each, nothing can be said of the methods."
    return ". ".join(
        f"{group.label} against {groups[0].label}: {_clauses(by_set)}"
        for group in groups[1:]
        if (by_set := _by_set(contests, group.label))
    ) + "."  # fmt: skip


def _clauses(by_set: Mapping[str, Contrast]) -> str:
    """`better on test and harder; on hard no difference is shown`."""
    clauses = []
    for verdict in ("better", "worse", _NOT_SHOWN, _NO_TEST):
        if names := [name for name, contrast in by_set.items() if contrast.result.verdict == verdict]:
            where = f"on {_listed(names)}"
            clauses.append(f"{where} no difference is shown" if verdict == _NOT_SHOWN else f"{verdict} {where}")
    return "; ".join(clauses)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _numbers(contrast: Contrast) -> str:
    result = contrast.result
    interval = (
        "no interval: all differences are equal"
        if result.all_equal
        else f"95 % interval {signed(result.low)} to {signed(result.high)}"
    )
    test = "" if result.holm_p_value is None else f", {p_sentence(result.holm_p_value)}"
    values = (
        f"{result.reference:.3f} before, {result.score:.3f} after"
        if contrast.against == "before"
        else f"{result.score:.3f} against {result.reference:.3f}"
    )
    text = (
        f"{contrast.set_name}, pass@{contrast.k}: {values}, a difference of {signed(result.difference)} "
        f"({interval}{test}): {result.verdict}."
    )
    if result.verdict == _NOT_SHOWN and result.minimum_detectable_effect is not None:
        least = result.minimum_detectable_effect
        text += (
            f" A true difference of {least:.2f} would be detected with 80% power."
            if least <= 1
            else " Too few pairs: even a difference of 1.0 is below 80% power."
        )
    return text


def _reach(group: RunGroup, changes: Sequence[Contrast]) -> list[str]:
    if not changes:
        return []
    most = max(contrast.result.num_seeds for contrast in changes)
    if most == 1:
        return [
            "This is one run: the test is over its problems and compares this one model before and after. Another "
            "seed may give another result, and a method is judged by comparing it with another."
        ]
    return [
        f"The pairs of the test are {most} seeds of {group.label}. That training changes a model says nothing about "
        "this method compared with another."
    ]


def _contest_reach(contests: Sequence[Contrast]) -> list[str]:
    if not contests:
        return []
    most = max(contrast.result.num_seeds for contrast in contests)
    if most == 1:
        return [
            "One seed each: the interval covers the choice of problems but not that of the seed, which may reverse "
            "the difference. For a test, train several seeds of both (gar compare)."
        ]
    lines = [f"Paired by seed, {most} seeds at most; p-values are corrected for all sets and groups of one k (Holm)."]
    if any(contrast.result.verdict == _NOT_SHOWN for contrast in contests):
        lines.append("No difference shown does not mean that there is none.")
    return lines
