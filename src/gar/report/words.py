"""The verdict in words, from findings. What was not shown is called not shown."""

from collections.abc import Sequence

from gar.report.groups import RunGroup
from gar.report.verdicts import Finding, by_set

_NO_TEST = "no test: one seed"


def headline(groups: Sequence[RunGroup], changes: Sequence[Finding], contests: Sequence[Finding]) -> str:
    """One sentence that a reader may take away."""
    if len(groups) > 1:
        return _contest_headline(groups, contests)
    own = by_set(changes)
    if not own:
        return "No verdict: there is no measurement before and after training to compare."
    if all(finding.verdict == "no difference shown" for finding in own.values()):
        return f"No difference between before and after training is shown on {_listed(list(own))}."
    return f"After training the model is {_clauses(list(own.values()))}."


def sentences(groups: Sequence[RunGroup], changes: Sequence[Finding], contests: Sequence[Finding]) -> list[str]:
    """The numbers behind the headline, and how far they reach."""
    lines = []
    if len(groups) == 1:
        lines += [f"On {_numbers(finding)}" for finding in by_set(changes).values()]
        lines += _reach(groups[0], changes)
    else:
        for group in groups[1:]:
            own = [finding for finding in contests if finding.label == group.label]
            lines += [f"{group.label} against {groups[0].label} on {_numbers(f)}" for f in by_set(own).values()]
        lines += _contest_reach(contests)
    return lines


def _contest_headline(groups: Sequence[RunGroup], contests: Sequence[Finding]) -> str:
    if not contests:
        return "No verdict: these runs have no measurement in common."
    if all(finding.verdict == "no difference shown" for finding in contests):
        return "No difference between these groups of runs is shown."
    if all(finding.verdict == _NO_TEST for finding in contests):
        return "No test: with one seed each, nothing can be said of the methods."
    parts = []
    for group in groups[1:]:
        own = by_set([finding for finding in contests if finding.label == group.label])
        if own:
            parts.append(f"{group.label} against {groups[0].label}: {_clauses(list(own.values()))}")
    return ". ".join(parts) + "."


def _clauses(findings: Sequence[Finding]) -> str:
    """`better on test and harder; on hard no difference is shown`."""
    by_verdict: dict[str, list[str]] = {}
    for finding in findings:
        by_verdict.setdefault(finding.verdict, []).append(finding.set_name)
    order = ("better", "worse", "no difference shown", _NO_TEST)
    clauses = []
    for words in sorted(by_verdict, key=order.index):
        names = _listed(by_verdict[words])
        if words == "no difference shown":
            clauses.append(f"on {names} no difference is shown")
        else:
            clauses.append(f"{words} on {names}")
    return "; ".join(clauses)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _numbers(finding: Finding) -> str:
    interval = (
        "without spread to tell an interval by"
        if finding.low is None or finding.high is None
        else f"95 % interval {signed(finding.low)} to {signed(finding.high)}"
    )
    test = "" if finding.p_value is None else f", p\u00a0{p_text(finding.p_value)}"
    values = (
        f"{finding.reference:.3f} before, {finding.value:.3f} after"
        if finding.against == "before"
        else f"{finding.value:.3f} against {finding.reference:.3f}"
    )
    text = (
        f"{finding.set_name}, pass@{finding.k}: {values}, a difference of {signed(finding.difference)} "
        f"({interval}{test}): {finding.verdict}."
    )
    if finding.verdict == "no difference shown" and finding.detectable is not None:
        text += f" A true difference would have to be {finding.detectable:.2f} to be found four times in five."
    return text


def _reach(group: RunGroup, changes: Sequence[Finding]) -> list[str]:
    if not changes:
        return []
    most = max(finding.num_seeds for finding in changes)
    if most == 1:
        return [
            "This is one run: the test is over its problems and speaks of this one model before and after. Another "
            "seed may end elsewhere, and a method is judged by comparing it with another."
        ]
    return [
        f"The pairs of the test are {most} seeds of {group.label}. That training changes a model says nothing yet of "
        "this method against another."
    ]


def _contest_reach(contests: Sequence[Finding]) -> list[str]:
    if not contests:
        return []
    most = max(finding.num_seeds for finding in contests)
    if most == 1:
        return [
            "One seed each: the interval covers the choice of problems and not that of the seed, which may turn the "
            "difference round. For a test, train several seeds of both (gar compare)."
        ]
    lines = [f"Paired by seed, {most} seeds at most; p-values are corrected for all sets and groups of one k (Holm)."]
    if any(finding.verdict == "no difference shown" for finding in contests):
        lines.append("That no difference is shown does not show that there is none.")
    return lines


def p_text(value: float) -> str:
    """A p-value as it is written, on one line: `= 0.03`, `< 0.001`."""
    text = "< 0.001" if value < 0.001 else f"= {value:.3f}" if value < 0.1 else f"= {value:.2f}"
    return text.replace(" ", "\u00a0")


def signed(value: float) -> str:
    """A difference with its sign, three digits."""
    return f"{value:+.3f}".replace("-", "−")
