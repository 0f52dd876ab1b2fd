"""Compare each run before and after training, and method with method. A tie is never a win.

Pairs are seeds if a group has several. With one run, before and after are paired by problem, and the result applies
only to that model. Two methods with one seed each get an interval over problems and no test.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from gar.analysis.summary import NONE
from gar.evaluation.paired import NO_TEST, Measures, contrasts, problem_counts
from gar.evaluation.text_tables import difference_cells, measure_name, rows_of
from gar.records import Run
from gar.report.runs import Groups

_SCOPES = {
    ("group", "seed"): "This is one run: the test is over its problems and compares this one model before and after. "
    "Another seed may give a different result, and a method is judged by comparing it with another.",
    ("group", "seeds"): "The test pairs the seeds of one method, before and after training. It does not "
    "compare this method with another.",
    ("groups", "seed"): "One seed each: the interval covers the choice of problems but not of the seed, which may "
    "reverse the difference. For a test, train several seeds of both (gar compare).",
    ("groups", "seeds"): "Paired by seed. P-values are corrected for all sets and groups of one k (Holm). No "
    "difference shown does not mean that there is none.",
}


def changes(groups: Groups) -> pd.DataFrame:
    """Compare every group after training with itself before, per set and k, as `contrasts` does."""
    against = {label: [_before(label)] for label in groups}
    return contrasts(_counts(groups), against=against, measures=_measures(groups))


def contests(groups: Groups, notes: list[str]) -> pd.DataFrame:
    """Compare every further group with the first, after training, paired by seed.

    What could not be compared, and why, goes to `notes`.
    """
    # Runs pair only if they saw and were asked the same problems: else a difference may be one of the data.
    (first, references), *others = groups.items()
    against: dict[str, list[str]] = {}
    for label, runs in others:
        pairs = [(run, other) for run in runs for other in references if run.seed == other.seed]
        unlike = [run.seed for run, other in pairs if not _same_training(run, other)]
        if unlike:
            notes.append(
                f"{label} and {first} were not trained on the same problems in the same order (seed {unlike[0]}), so "
                "that the methods cannot be compared"
            )
        elif other := next(filter(None, (_asked_otherwise(*pair) for pair in pairs)), None):
            notes.append(f"{label} and {first} were asked different problems or prompts under the ids of {other}")
        else:
            against[label] = [first]
    table = contrasts(_counts(groups), against=against, measures=_measures(groups), pair_by="seed")
    unmeasured = [label for label in against if label not in set(table["label"])]
    notes += [f"{label} and {first} have no seed and problem in common after training" for label in unmeasured]
    return table


def headline(tested: pd.DataFrame, reasons: Sequence[str]) -> str:
    """The verdict of `changes` or `contests` in one sentence, or the first reason why there is none."""
    if tested.empty:
        return f"No verdict: {[*reasons, 'these runs have no measurement in common'][0]}."
    if {*tested["verdict"]} == {NO_TEST}:
        return "No test: with one seed each, nothing can be said of the methods."
    deciding: Any = tested.sort_values("k", kind="stable").drop_duplicates(["label", "set_name"])
    sentences = []
    for label, reference in dict.fromkeys(zip(tested["label"], tested["against"], strict=True)):
        sets: dict[str, list[str]] = {}
        for contrast in rows_of(deciding[deciding["label"] == label]):
            sets.setdefault(contrast.verdict, []).append(contrast.set_name)
        clauses = [f"{verdict} on {' and '.join(names)}" for verdict, names in sorted(sets.items())]
        who = "After training" if reference == _before(label) else f"{label} against {reference}"
        sentences.append(f"{who}: {'; '.join(clauses)}.")
    return " ".join(sentences)


def scope(tested: pd.DataFrame, num_groups: int) -> str:
    """What the tests behind the headline are about. Empty without a test."""
    if tested.empty:
        return ""
    several = max(tested["num_seeds"]) > 1
    return _SCOPES["groups" if num_groups > 1 else "group", "seeds" if several else "seed"]


def contrast_table(contrasts: pd.DataFrame, sides: Sequence[str]) -> pd.DataFrame:
    """The contrasts as tested, as texts. `sides` names the columns of the two means, the reference first."""
    rows = []
    for row in rows_of(contrasts):
        difference, interval, p, detectable, verdict = difference_cells(row)
        rates = [f"{row.reference:.3f}", f"{row.score:.3f}"]
        tested = [difference, NONE if row.all_equal else interval, p, detectable, row.num_seeds, row.num_problems]
        rows.append([row.label, measure_name(row), verdict, *rates, *map(str, tested)])
    numbers = ["difference", "95% interval", "p", "detectable", "seeds", "problems"]
    return pd.DataFrame(rows, columns=["runs", "on", "verdict", *sides, *numbers])


def _measures(groups: Groups) -> Measures:
    """Every k of pass@k that a run was measured with, by set, in their order."""
    known: dict[str, set[int]] = {}
    for run in (run for runs in groups.values() for run in runs):
        for sets in run.evaluations.values():
            for name, part in sets.items():
                known.setdefault(name, set()).update(part.known_rates)
    return {name: [("pass", k) for k in sorted(ks)] for name, ks in known.items()}


def _counts(groups: Groups) -> pd.DataFrame:
    """The counts of all groups, before and after training."""
    return problem_counts(
        (label if moment == "after" else _before(label), str(run.seed), name, part)
        for label, runs in groups.items()
        for run in runs
        for moment, sets in run.evaluations.items()
        for name, part in sets.items()
    )


def _before(label: str) -> str:
    return f"{label} before"


def _same_training(run: Run, other: Run) -> bool:
    """Whether two runs saw the same problems in the same order, as far as the records show."""
    if (run.record and run.record.data_hash) != (other.record and other.record.data_hash):
        return False
    both: Any = run.num_rows and other.num_rows
    columns = ["step", "problem_id"]
    return not both or run.rollouts(columns).equals(other.rollouts(columns))


def _asked_otherwise(run: Run, other: Run) -> str | None:
    """A set that both were measured on, with another prompt or gold answer under the same id."""
    for name, part in run.evaluations["after"].items():
        hashes = part.problems_hash, other.evaluations["after"].get(name, part).problems_hash
        if None in hashes or hashes[0] == hashes[1]:
            continue
        # Hashes also differ if one set is a part of the other.
        asked, others = (_asked(each, name) for each in (run, other))
        if any(asked[id] != others[id] for id in asked.keys() & others.keys()):
            return name
    return None


def _asked(run: Run, set_name: str) -> dict[str, tuple[str, str]]:
    """Prompt and gold answer of each problem of a set."""
    rows = run.samples("after").select(["set_name", "problem_id", "prompt", "gold"]).to_pylist()
    return {row["problem_id"]: (row["prompt"], row["gold"]) for row in rows if row["set_name"] == set_name}
