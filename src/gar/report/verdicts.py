"""What may be said of the runs: before against after, and method against method. A tie is never a win.

Pairs are seeds where a group has several. With one run the pairs of before and after are problems, and the result
speaks of that one model; two methods with one seed each get an interval over problems and no test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gar.evaluation.statistics import bootstrap_interval, holm_adjusted, paired_test, verdict
from gar.report.groups import RunGroup
from gar.report.read import ReadRun, SetResult

Rates = NDArray[np.float64]
"""pass@k, [seeds, problems]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One difference on one set at one k.

    Attributes:
        label: The group whose difference it is.
        against: The other group; "before" for the same runs before training.
        set_name: Evaluation set.
        k: Of pass@k.
        num_seeds: Paired seeds.
        num_problems: Paired problems.
        reference: Mean of the other.
        value: Mean of the group.
        low: Of the 95 % bootstrap interval of the difference; None without spread to tell it by.
        high: The same.
        p_value: Corrected (Holm) for all sets and groups of this k; None where there is no test.
        detectable: The difference that this design finds four times in five; None where it cannot be said.
        verdict: In words.
    """

    label: str
    against: str
    set_name: str
    k: int
    num_seeds: int
    num_problems: int
    reference: float
    value: float
    low: float | None
    high: float | None
    p_value: float | None
    detectable: float | None
    verdict: str

    @property
    def difference(self) -> float:
        """Value minus reference."""
        return self.value - self.reference


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    label: str
    against: str
    set_name: str
    k: int
    own: Rates
    other: Rates


def changes(groups: Sequence[RunGroup], notes: list[str]) -> list[Finding]:
    """Every group after training against itself before, per set and k.

    Args:
        groups: The groups.
        notes: Receives what could not be compared, and why.
    """
    pairs = []
    for group in groups:
        both = [run for run in group.runs if run.evaluations["before"] and run.evaluations["after"]]
        for name, k in _columns(both):
            rates = [_before_and_after(run, name, k, notes) for run in both]
            pairs += _stacked(group.label, "before", name, k, [pair for pair in rates if pair is not None], notes)
    return _findings(pairs, problems_are_pairs=True)


def contests(groups: Sequence[RunGroup], notes: list[str]) -> list[Finding]:
    """Every further group against the first, after training, paired by seed. Arguments as in `changes`."""
    pairs = []
    first = groups[0]
    for group in groups[1:]:
        matched = [(own, other) for own in group.runs for other in first.runs if own.seed == other.seed]
        unlike = [own for own, other in matched if not _same_training(own, other)]
        if unlike:
            notes.append(
                f"{group.label} and {first.label} were not trained on the same problems in the same order (seed "
                f"{unlike[0].seed}), so their difference is not one of the methods: not compared"
            )
            continue
        finished = [(own, other) for own, other in matched if own.evaluations["after"] and other.evaluations["after"]]
        if not finished:
            notes.append(f"{group.label} and {first.label} have no seed that both have finished: nothing to compare")
        for name, k in _columns([run for pair in finished for run in pair]):
            rates = [
                _pair(own.evaluations["after"].get(name), other.evaluations["after"].get(name), k)
                for own, other in finished
            ]
            pairs += _stacked(group.label, first.label, name, k, [pair for pair in rates if pair is not None], notes)
    return _findings(pairs, problems_are_pairs=False)


def _same_training(own: ReadRun, other: ReadRun) -> bool:
    """Whether nothing shows that two runs saw other problems, or in another order."""
    if own.record.get("data_hash") != other.record.get("data_hash"):
        return False
    both = own.num_rows and other.num_rows
    return not both or own.problem_ids() == other.problem_ids()


def _columns(runs: Sequence[ReadRun]) -> list[tuple[str, int]]:
    """(set, k) of any evaluation after training, sets in their order."""
    results = [run.evaluations["after"] for run in runs]
    names = dict.fromkeys(name for sets in results for name in sets)
    return [
        (name, k) for name in names for k in sorted({k for sets in results if name in sets for k in sets[name].pass_at})
    ]


def _before_and_after(run: ReadRun, name: str, k: int, notes: list[str]) -> tuple[Rates, Rates] | None:
    after, before = (run.evaluations[moment].get(name) for moment in ("after", "before"))
    pair = _pair(after, before, k)
    if pair is None:
        note = f"{run.name}: {name} was not measured on the same problems before and after, problem by problem: no test"
        notes += [note] if note not in notes else []
    return pair


def _pair(own: SetResult | None, other: SetResult | None, k: int) -> tuple[Rates, Rates] | None:
    """pass@k of the same problems under both, or None where they are not the same."""
    if own is None or other is None or not own.num_correct or not other.num_correct:
        return None
    if list(own.num_correct) != list(other.num_correct) or k > min(own.num_samples, other.num_samples):
        return None
    return np.array(own.rates(k)), np.array(other.rates(k))


def _stacked(
    label: str, against: str, name: str, k: int, rates: Sequence[tuple[Rates, Rates]], notes: list[str]
) -> list[_Pair]:
    if not rates:
        return []
    if len({len(own) for own, _ in rates}) > 1:
        note = f"{label}: the seeds were measured on different problems of {name}: not compared"
        notes += [note] if note not in notes else []
        return []
    own, other = (np.stack([pair[side] for pair in rates]) for side in (0, 1))
    return [_Pair(label=label, against=against, set_name=name, k=k, own=own, other=other)]


def _findings(pairs: Sequence[_Pair], *, problems_are_pairs: bool) -> list[Finding]:
    """Tests of all pairs; those of one k are corrected together."""
    tests, p_values = [], []
    for pair in pairs:
        differences = pair.own - pair.other
        alone = len(differences) == 1
        usable = not alone or (problems_are_pairs and differences.size > 1)
        test = paired_test(differences[0] if alone else differences.mean(axis=1)) if usable else None
        tests.append(test)
        # As `gar eval compare`: by permutation over problems, by the t-test over seeds.
        p_values.append(None if test is None else test.permutation_p_value if alone else test.p_value)
    corrected: dict[int, float] = {}
    for k in {pair.k for pair in pairs}:
        rows = [row for row, pair in enumerate(pairs) if pair.k == k and p_values[row] is not None]
        corrected |= zip(rows, holm_adjusted([p for row in rows if (p := p_values[row]) is not None]), strict=True)
    return [_finding(pair, test, corrected.get(row)) for row, (pair, test) in enumerate(zip(pairs, tests, strict=True))]


def _finding(pair: _Pair, test: object, p_value: float | None) -> Finding:
    differences = pair.own - pair.other
    spread = bool(np.ptp(differences))
    low, high = bootstrap_interval(differences) if spread else (None, None)
    return Finding(
        label=pair.label,
        against=pair.against,
        set_name=pair.set_name,
        k=pair.k,
        num_seeds=len(differences),
        num_problems=differences.shape[1],
        reference=float(pair.other.mean()),
        value=float(pair.own.mean()),
        low=low,
        high=high,
        p_value=p_value,
        detectable=getattr(test, "minimum_detectable_effect", None),
        verdict=verdict(float(differences.mean()), p_value),
    )


def by_set(findings: Sequence[Finding]) -> Mapping[str, Finding]:
    """The finding at the smallest k of each set: what the verdict speaks of."""
    smallest: dict[str, Finding] = {}
    for finding in findings:
        if finding.set_name not in smallest or finding.k < smallest[finding.set_name].k:
            smallest[finding.set_name] = finding
    return smallest
