"""Compare each run before and after training, and method with method. A tie is never a win.

Pairs are seeds if a group has several. With one run, before and after are paired by problem, and the result applies
only to that model. Two methods with one seed each get an interval over problems and no test.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from gar.evaluation.paired import NO_TEST, NOT_SHOWN, Measures, contrasts, problem_counts
from gar.evaluation.text_tables import rows_of
from gar.records import Run
from gar.records.evaluations import EvaluatedSet
from gar.report.groups import RunGroup

_Compared = tuple[str, str, str, EvaluatedSet | None]
"""Label, key of the pair, name of the set, and its evaluation."""


def changes(groups: Sequence[RunGroup], notes: list[str]) -> pd.DataFrame:
    """Compare every group after training with itself before, per set and k, as `contrasts` does.

    What could not be compared, and why, goes to `notes`.
    """
    counts, measured = list[_Compared](), dict[str, set[int]]()
    for group in groups:
        both = [run for run in group.runs if run.evaluations["before"] and run.evaluations["after"]]
        for name, k in _columns(both):
            measured.setdefault(name, set()).add(k)
        for key, run in zip(map(str, range(len(both))), both, strict=True):
            for name, after in run.evaluations["after"].items():
                before = run.evaluations["before"].get(name)
                if not after.num_correct or not before or [*after.num_correct] != [*before.num_correct]:
                    notes.append(
                        f"{run.name}: {name} was not measured on the same problems before and after, problem by "
                        "problem: no test"
                    )
                    continue
                counts += [(group.label, key, name, after), (_before(group), key, name, before)]
    against = {group.label: [_before(group)] for group in groups}
    return _contrasts(counts, against, measured, "seed or problem").assign(against="before")


def contests(groups: Sequence[RunGroup], notes: list[str]) -> pd.DataFrame:
    """Compare every further group with the first, after training, paired by seed. Arguments as in `changes`."""
    counts, measured = list[_Compared](), dict[str, set[int]]()
    first, compared = groups[0], list[RunGroup]()
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
            measured.setdefault(name, set()).add(k)
        for run, other in finished:
            sides = run.evaluations["after"], other.evaluations["after"]
            notes += [
                f"{run.name} and {other.name} are not compared on {name}: they were measured on different problems"
                for name in sides[0].keys() & sides[1].keys()
                if not sides[0][name].num_correct.keys() & sides[1][name].num_correct.keys()
            ]
        compared += [group] if finished else []
    for group in [first, *compared]:
        sets = [(run, name, part) for run in group.runs for name, part in run.evaluations["after"].items()]
        counts += [(group.label, str(run.seed), name, part) for run, name, part in sets]
    return _contrasts(counts, {group.label: [first.label] for group in compared}, measured, "seed")


def headline(
    groups: Sequence[RunGroup], changes: pd.DataFrame, contests: pd.DataFrame, reasons: Sequence[str] = ()
) -> str:
    """The verdict in one sentence, or the first reason why there is none."""
    tested = contests if len(groups) > 1 else changes
    verdicts, by_set = {*tested["verdict"]}, _by_set(changes)
    if not verdicts and len(groups) > 1:
        return f"No verdict: {reasons[0] if reasons else 'these runs have no measurement in common'}."
    if not verdicts:
        return "No verdict: there is no measurement before and after training to compare."
    if verdicts == {NO_TEST}:
        return "No test: with one seed each, nothing can be said of the methods."
    if len(groups) > 1 and verdicts == {NOT_SHOWN}:
        return "No difference between these groups of runs is shown."
    if len(groups) > 1:
        pairs = {group.label: _by_set(contests, group.label) for group in groups[1:]}
        clauses = [f"{label} against {groups[0].label}: {_clauses(sets)}" for label, sets in pairs.items() if sets]
        return f"{'. '.join(clauses)}."
    if all(contrast.verdict == NOT_SHOWN for contrast in by_set.values()):
        return f"No difference between before and after training is shown on {_listed([*by_set])}."
    return f"After training the model is {_clauses(by_set)}."


def scope(groups: Sequence[RunGroup], changes: pd.DataFrame, contests: pd.DataFrame) -> str:
    """What the tests behind the headline are about. Empty without a test."""
    tested = contests if len(groups) > 1 else changes
    if tested.empty:
        return ""
    most = max(tested["num_seeds"])
    if len(groups) == 1 and most == 1:
        return (
            "This is one run: the test is over its problems and compares this one model before and after. Another "
            "seed may give another result, and a method is judged by comparing it with another."
        )
    if len(groups) == 1:
        return (
            f"The pairs of the test are {most} seeds of {groups[0].label}. That training changes a model says nothing "
            "about this method compared with another."
        )
    if most == 1:
        return (
            "One seed each: the interval covers the choice of problems but not that of the seed, which may reverse "
            "the difference. For a test, train several seeds of both (gar compare)."
        )
    return (
        f"Paired by seed, {most} seeds at most. P-values are corrected for all sets and groups of one k (Holm). No "
        "difference shown does not mean that there is none."
    )


def _same_training(run: Run, other: Run) -> bool:
    """Whether two runs saw the same problems in the same order, as far as the records tell."""
    if run.record.get("data_hash") != other.record.get("data_hash"):
        return False
    both = run.num_rows and other.num_rows
    columns = ["step", "problem_id"]
    return not both or run.rollouts(columns).equals(other.rollouts(columns))


def _columns(runs: Sequence[Run]) -> list[tuple[str, int]]:
    """(set, k) of any evaluation after training, sets in their order."""
    results = [run.evaluations["after"] for run in runs]
    names = dict.fromkeys(name for sets in results for name in sets)
    return [
        (name, k)
        for name in names
        for k in sorted({k for sets in results if name in sets for k in sets[name].known_rates})
    ]


def _before(group: RunGroup) -> str:
    return f"{group.label} before"


def _contrasts(
    compared: Sequence[_Compared],
    against: Mapping[str, Sequence[str]],
    measured: Mapping[str, set[int]],
    pair_by: Literal["seed", "seed or problem"],
) -> pd.DataFrame:
    """Every method against its references. Those of one k are corrected together."""
    counts = problem_counts(
        (label, key, name, problem, part.num_samples, num_correct, ())
        for label, key, name, part in compared
        if part
        for problem, num_correct in part.num_correct.items()
    )
    measures: Measures = {name: [("pass", k) for k in sorted(ks)] for name, ks in measured.items()}
    return contrasts(counts, against=against, measures=measures, pair_by=pair_by)


def _by_set(contrasts: pd.DataFrame, label: str | None = None) -> Mapping[str, Any]:
    """The contrast at the smallest k of each set, which decides the verdict. Only those of `label`, if given."""
    smallest: dict[str, Any] = {}
    for contrast in rows_of(contrasts):
        name = contrast.set_name
        if label in (None, contrast.label) and (name not in smallest or contrast.k < smallest[name].k):
            smallest[name] = contrast
    return smallest


def _clauses(by_set: Mapping[str, Any]) -> str:
    """`better on test and harder; on hard no difference is shown`."""
    clauses = []
    for verdict in ("better", "worse", NOT_SHOWN, NO_TEST):
        if names := [name for name, contrast in by_set.items() if contrast.verdict == verdict]:
            where = f"on {_listed(names)}"
            clauses.append(f"{where} no difference is shown" if verdict == NOT_SHOWN else f"{verdict} {where}")
    return "; ".join(clauses)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
