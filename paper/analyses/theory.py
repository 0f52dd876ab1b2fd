"""The paper's theory on a real model and its rollouts: does each statement hold there, and is it true in general?

    python -m paper.analyses.theory embedded [--problems 40] [--samples 8] [--out FOLDER]

`head_gradients` computes the numbers of a response and its anchor.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from gar import DataError
from gar.analysis import COLORS, INK, MUTED, paper_figure
from paper.analyses.head_gradients import STEP_SIZE, pair_measures, scale_error, token_gradients
from paper.analyses.intervals import mean_interval
from paper.analyses.outputs import Output, add_caption, present
from paper.analyses.policies import Policy, load_policy_of, sampled_groups
from paper.analyses.propositions import Proposition, ScoredGroups, cost_proposition, reward_propositions, tally
from paper.analyses.tangent_kernel import KernelParts, kernel_decomposition

Floats = NDArray[np.float64]

_MIN_RESPONSES = 3
"""Distinct responses that a rank correlation within a problem needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TheoryCheck:
    """All statements, and a row of data for each pair of a response and its anchor."""

    policy: str
    num_problems: int
    num_responses: int
    propositions: Sequence[Proposition]
    data: pa.Table
    notes: Sequence[str]


@torch.no_grad()
def check_theory(policy: Policy, *, num_problems: int = 40, num_samples: int = 8, seed: int = 0) -> TheoryCheck:
    """Check every statement on fresh responses of the policy to its first problems.

    Args:
        policy: Policy of a run, or a model.
        num_problems: Problems with an expert solution.
        num_samples: Responses to each.
        seed: Seed of the sampling.

    Raises:
        DataError: No problem has an expert solution, or nothing can be scored.
    """
    problems = policy.with_anchors()[:num_problems]
    groups = sampled_groups(policy, problems, num_samples=num_samples, seed=seed)
    if not groups:
        raise DataError(f"{policy.name}: none of {len(problems)} problems has responses that can be scored.")
    plain = policy.parts.logit_softcap is None and policy.parts.logit_scale == 1.0
    rows, scale_errors = [], []
    for index, group in enumerate(groups):
        anchor = token_gradients(policy.parts, group.anchor)
        scale_errors.append(scale_error(policy.parts, anchor))
        known: dict[tuple[int, ...], dict[str, float]] = {}  # policies repeat themselves
        for sequence, eligible in zip(group.sequences, group.eligible, strict=True):
            key = tuple(sequence.ids)
            if key not in known:
                response = token_gradients(policy.parts, sequence)
                known[key] = pair_measures(policy.parts, response, anchor, plain_logits=plain)
            rows.append({"problem": index, "eligible": eligible} | known[key])
    data = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    columns = {"eligible": "eligible", "alignment": "alignment", "group_index": "problem"}
    scored = ScoredGroups(**{name: torch.tensor(data[column]) for name, column in columns.items()})
    notes = list(policy.notes)
    if not plain:
        notes.append("The model caps or scales its logits: the loss after a step of the head is not computed.")
    sampled = len(problems) * num_samples
    if len(rows) < sampled:
        notes.append(
            f"{sampled - len(rows)} of {sampled} responses are left out: they are empty, or they or their expert "
            "solution have no token to score."
        )
    if not data["eligible"].any():
        notes.append("No response is correct: statements about correct ones are not tested.")
    return TheoryCheck(
        policy=policy.name,
        num_problems=len(groups),
        num_responses=len(rows),
        propositions=[
            _scale_proposition(scale_errors), _kernel_proposition(data), _decomposition_proposition(data),
            _orthogonality_proposition(data), *([_step_proposition(data)] if plain else []),
            *reward_propositions(scored), cost_proposition(policy.parts),
        ],
        data=pa.table({"problem_id": [groups[i].problem.id for i in data["problem"]]} | data),
        notes=notes,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------------- statements


def _scale_proposition(errors: Sequence[float]) -> Proposition:
    return Proposition(
        name="Proposition 1",
        statement="sum_j s_j = d/d eta L((1 + eta) H) at eta = 0.",
        result=f"{tally(sum(error < 1e-4 for error in errors), len(errors), 'anchors')}: relative difference to "
        f"central differences at most {max(errors):.1e}",
        in_general="true: the chain rule",
    )


def _kernel_proposition(data: dict[str, Floats]) -> Proposition:
    b, kernel = data["alignment"], data["normalized_kernel"]
    num_opposed = int(((b > 0) & (kernel < 0)).sum())
    verdict = (
        f"fails for {num_opposed} of {len(b)} pairs, whatever c_1 > 0: cosine > 0 > kernel"
        if num_opposed
        else "no pair refutes it"
    )
    alignment, opposed = mirrored_pair()
    return Proposition(
        name="Theorem 1",
        statement="c_1 cos(v_y, v_a) is at most the normalized tangent kernel of the output layer, for a c_1 > 0.",
        result=f"{verdict}; {_both_correlations(data, 'normalized_kernel')}",
        in_general="false for every c_1 > 0: counterexample",
        counterexample="V = 3, W = (1, 0), (-1, 0), (0, 1), one token each: hidden state (1, -3) and token 1, anchor "
        f"(-1, -3) and token 0, counted from 0. cos(v_y, v_a) is {alignment:.2f}, the kernel {opposed:.2f}: gradient "
        "and activation change sign together, so that no c_1 > 0 makes the lower bound true.",
    )


def mirrored_pair() -> tuple[float, float]:
    """Alignment and normalized kernel of two one-token sequences that mirror each other in the first dimension."""
    head = torch.tensor([[1, 0], [-1, 0], [0, 1]], dtype=torch.float64)
    hidden = torch.tensor([[1, -3], [-1, -3]], dtype=torch.float64)
    errors = torch.softmax(hidden @ head.T, -1) - torch.eye(3, dtype=torch.float64)[[1, 0]]
    cosine = torch.nn.functional.cosine_similarity
    alignment = cosine(*((errors @ head) * hidden), dim=0)
    return float(alignment), float(cosine(*errors, dim=0) * cosine(*hidden, dim=0))


def _decomposition_proposition(data: dict[str, Floats]) -> Proposition:
    remainder, kernel = np.abs(data["remainder"]), np.abs(data["kernel"])
    printed, largest, corrected = (
        tally(_num_within(remainder, data[name]), len(remainder), "pairs")
        for name in ("printed_bound", "printed_bound_of_largest", "proven_bound")
    )
    share = np.median(remainder / np.maximum(kernel, 1e-30))
    example = two_word_counterexample(4.0)
    return Proposition(
        name="Theorem 2",
        statement="The kernel is (mean d . mean d')(mean h . mean h') up to a remainder of the order "
        "B_h^2 k k' + B_d (k + k') B_h (eq. 8).",
        result=f"constant 1: {printed} (B_h = |mean h|), {largest} (B_h = max |h_t|); B_h^2 in both terms: "
        f"{corrected}. Remainder over kernel: {share:.2f}; smallest bound {data['printed_bound'].min():.1f}, "
        f"largest kernel {kernel.max():.1f}",
        in_general="false for every constant: counterexample. True with B_h^2 in both terms, B_h = max |h_t|",
        counterexample="V = 2, W = 0, hidden states +4 and -4, tokens 0 and 1, an anchor of one token with hidden "
        f"state +4, token 0: the remainder is {float(example.remainder):.1f}, eq. 8 gives "
        f"{float(example.printed_bound):.1f} by either B_h. With c for 4 it is c^2 / 2 against c / 2, so that no "
        "constant helps: the second term lacks a factor B_h, and with it the bound is proven (B_h = max |h_t|).",
    )


def two_word_counterexample(c: float) -> KernelParts:
    """The kernel of a response h = (+c, -c), y = (0, 1) and a one-token anchor h = c, y = 0, with V = 2 and W = 0."""
    errors = torch.tensor([[-0.5, 0.5], [0.5, -0.5]], dtype=torch.float64)
    hidden = torch.tensor([[c], [-c]], dtype=torch.float64)
    return kernel_decomposition(errors, hidden, errors[:1], hidden[:1])


def _orthogonality_proposition(data: dict[str, Floats]) -> Proposition:
    b, bound = np.abs(data["alignment"]), data["orthogonality_bound"]
    num_trivial = int((bound >= 1).sum())
    return Proposition(
        name="Corollary 1",
        statement="|cos(v_y, v_a)| is at most 2 eps d where the eps-effective supports {j : |s_j| > eps max |s|} are "
        "disjoint.",
        result=f"{tally(_num_within(b, bound), len(b), 'pairs')}, each at its smallest eps; for {num_trivial} it says "
        f"nothing, as 2 eps d is at least 1 (smallest: {bound.min():.1f})",
        in_general="true: |s_j s'_j| is at most eps max |s| max |s'| in each of the d dimensions",
    )


def _step_proposition(data: dict[str, Floats]) -> Proposition:
    agreeing = np.mean(np.sign(data["alignment"]) == np.sign(data["anchor_loss_decrease"]))
    return Proposition(
        name="Appendix G.1",
        statement="A step on a response of high alignment improves the prediction of the expert solution.",
        result=f"alignment against the fall of the anchor's loss by a step of the head of length {STEP_SIZE:g}: "
        f"{_both_correlations(data, 'anchor_loss_decrease')}; equal signs for {agreeing:.0%}",
        in_general="no bound to prove",
    )


def _num_within(values: Floats, bounds: Floats) -> int:
    """How many values are within their bound, up to rounding of float64."""
    return int((values <= bounds * (1 + 1e-9)).sum())


def _both_correlations(data: dict[str, Floats], name: str) -> str:
    """Rank correlation of alignment and a column: over all pairs, and the mean within problems."""
    within = mean_interval(_rank_correlations(data, name))
    return f"rank correlation {_spearman(data['alignment'], data[name]):.2f}, within problems {within}"


def _spearman(a: Floats, b: Floats) -> float:
    if not (np.ptp(a) > 0 and np.ptp(b) > 0):
        return np.nan
    return float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1])


def _rank_correlations(data: dict[str, Floats], name: str) -> list[float]:
    """Rank correlation within each problem, over its different responses. Problems with too few are left out."""
    correlations = []
    for problem in np.unique(data["problem"]):
        rows = data["problem"] == problem
        pairs = np.unique(np.stack([data["alignment"][rows], data[name][rows]], 1).round(9), axis=0)
        if len(pairs) >= _MIN_RESPONSES:
            correlations.append(_spearman(*pairs.T))
    return correlations


# ------------------------------------------------------------------------------------------------------------- figure


def theory_figure(check: TheoryCheck) -> Figure:
    """Alignment against the kernel, the kernel against its mean field, the remainder against eq. 8."""
    data = {name: check.data[name].to_numpy() for name in check.data.column_names if name != "problem_id"}
    with paper_figure(2.4) as figure:
        panels = figure.subplots(1, 3)
        _scatter(panels[0], data["normalized_kernel"], data["alignment"], data["eligible"])
        panels[0].set(title="Theorem 1", xlabel="normalized output-layer kernel", ylabel="alignment")
        _scatter(panels[1], data["kernel"], data["mean_field"], data["eligible"])
        panels[1].set(title="Theorem 2: mean field", xlabel="kernel, exact", ylabel="product of means")
        _draw_bounds(panels[2], data)
        panels[0].legend(loc="upper left", frameon=False, handletextpad=0.1, borderpad=0.1)
        add_caption(
            figure,
            f"{check.policy}: n = {check.num_responses:,} responses to {check.num_problems:,} problems, each with its "
            "anchor. Lines: equality. Upper left of the first panel: against theorem 1.",
        )
    return figure


def _scatter(axes: Axes, x: Floats, y: Floats, eligible: NDArray[np.bool_]) -> None:
    for label, mask, color, marker in (
        ("correct", eligible, COLORS[0], "o"), ("not correct", ~eligible, COLORS[1], "x"),
    ):  # fmt: skip
        if mask.any():
            axes.scatter(x[mask], y[mask], s=9, color=color, marker=marker, linewidths=0.8, alpha=0.75, label=label)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    axes.plot(ends, ends, color=INK, linewidth=0.8)


def _draw_bounds(axes: Axes, data: dict[str, Floats]) -> None:
    remainder = np.maximum(np.abs(data["remainder"]), 1e-12)
    for label, name, color, marker in (
        ("B_h = |mean h|", "printed_bound", COLORS[4], "s"),
        ("B_h = max |h_t|", "printed_bound_of_largest", MUTED, "^"),
    ):  # fmt: skip
        axes.scatter(np.maximum(data[name], 1e-12), remainder, s=8, color=color, marker=marker, linewidths=0,
                     alpha=0.6, label=label)  # fmt: skip
    ends = [remainder.min(), data["printed_bound_of_largest"].max()]
    axes.plot(ends, ends, color=INK, linewidth=0.8)
    axes.set(xscale="log", yscale="log", title="Theorem 2: remainder")
    axes.set(xlabel="eq. 8, constant 1", ylabel="size of the remainder")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend(loc="upper left", frameon=False, handletextpad=0.1, borderpad=0.1)


def theory_output(check: TheoryCheck) -> Output:
    """The table, data, figure and text of the command."""
    lines = [f"# Theory on {check.policy}", ""]
    for p in check.propositions:
        lines += [
            f"**{p.name}.** {p.statement}",
            "",
            f"- on these rollouts: {p.result}",
            f"- in general: {p.in_general}",
        ]
        lines += [f"- counterexample: {p.counterexample}", ""] if p.counterexample else [""]
    return Output(
        name="theory",
        title=f"Theory on {check.policy}: n = {check.num_responses:,} responses to {check.num_problems:,} problems",
        headings=("statement", "on these rollouts", "in general"),
        rows=[(f"{p.name}: {p.statement}", p.result, p.in_general) for p in check.propositions],
        data=check.data,
        figure=theory_figure(check),
        text="\n".join(lines),
        notes=[*check.notes, *(f"{p.name}: {p.counterexample}" for p in check.propositions if p.counterexample)],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the analysis."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", metavar="RUN_OR_MODEL")
    parser.add_argument("--problems", type=int, default=40, help="how many (%(default)s)")
    parser.add_argument("--samples", type=int, default=8, help="responses to a problem (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="runs/analysis", metavar="FOLDER", help="(%(default)s)")
    options = parser.parse_args(arguments)
    policy = load_policy_of(options.subject)
    check = check_theory(policy, num_problems=options.problems, num_samples=options.samples, seed=options.seed)
    present(theory_output(check), options.out)


if __name__ == "__main__":
    main()
