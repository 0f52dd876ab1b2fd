"""The paper's theory on a real model and its rollouts: each statement, what was computed, and whether it holds.

The numbers of a response and its anchor are made in `gar.analysis.head_gradients`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import pyarrow as pa
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from gar.analysis.head_gradients import SCALE, STEP_SIZE, pair_measures, scale_error, token_gradients
from gar.analysis.intervals import clustered_mean
from gar.analysis.outputs import Output
from gar.analysis.policies import Policy, read_sequences, sampled_groups
from gar.analysis.propositions import Proposition, ScoredGroups, cost_proposition, reward_propositions
from gar.analysis.style import COLOURS, INK, MUTED, PAGE_WIDTH, PAPER, add_caption
from gar.core.tangent_kernel import KernelParts, kernel_decomposition
from gar.errors import DataError

Floats = NDArray[np.float64]

_MIN_RESPONSES = 3
"""A rank correlation within a problem needs so many different responses."""


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
    """Every statement, on fresh responses of the policy to its first problems.

    Args:
        policy: A run's or a model.
        num_problems: Problems with an expert solution.
        num_samples: Responses to each.
        seed: Of the sampling.

    Raises:
        DataError: No problem has an expert solution, or nothing can be scored.
    """
    problems = policy.with_anchors()[:num_problems]
    groups = read_sequences(policy, sampled_groups(policy, problems, num_samples=num_samples, seed=seed))
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
                known[key] = pair_measures(policy.parts, response, anchor, moves_logits=plain)
            rows.append({"problem": index, "eligible": eligible} | known[key])
    data = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    notes = list(policy.notes)
    if not plain:
        notes.append("The model bends or scales its logits: corollary 1 is not computed.")
    if not data["eligible"].any():
        notes.append("No response is correct: what is said of correct ones is said of none.")
    return TheoryCheck(
        policy=policy.name,
        num_problems=len(groups),
        num_responses=len(rows),
        propositions=[
            _scale_proposition(scale_errors), _kernel_proposition(data), *([_step_proposition(data)] if plain else []),
            _decomposition_proposition(data), *reward_propositions(_scored(data)), cost_proposition(policy.parts),
        ],
        data=pa.table({"problem_id": [groups[i].problem.id for i in data["problem"]]} | data),
        notes=notes,
    )  # fmt: skip


def _scored(data: dict[str, Floats]) -> ScoredGroups:
    return ScoredGroups(
        eligible=torch.tensor(data["eligible"]),
        alignment=torch.tensor(data["alignment"]),
        group_index=torch.tensor(data["problem"]),
    )


# --------------------------------------------------------------------------------------------------------- statements


def _scale_proposition(errors: Sequence[float]) -> Proposition:
    worst = max(errors)
    return Proposition(
        name="Proposition 1",
        statement="sum_j s_j = d/d eta L((1 + eta) H) at eta = 0.",
        computed=f"{len(errors)} anchors: relative difference to central differences of the loss, step {SCALE:g}",
        number=f"at most {worst:.1e}",
        outcome="holds" if worst < 1e-4 else "fails",
    )


def _kernel_proposition(data: dict[str, Floats]) -> Proposition:
    b, kernel = data["alignment"], data["normalised_kernel"]
    ratio = np.median(b[kernel > 0.05] / kernel[kernel > 0.05]) if (kernel > 0.05).any() else np.nan
    within = _rank_correlations(data, "normalised_kernel")
    return Proposition(
        name="Theorem 1",
        statement="The alignment cos(v_y, v_a) stands for the normalised tangent kernel of the output layer.",
        computed=f"{len(b)} pairs of a response and its anchor: rank correlation over all, mean of those within "
        "problems, median ratio where the kernel is above 0.05",
        number=f"{_spearman(b, kernel):.2f}; {clustered_mean(within, np.arange(len(within)))}; ratio {ratio:.2f}",
        outcome="measured",
    )


def _step_proposition(data: dict[str, Floats]) -> Proposition:
    b, decrease = data["alignment"], data["anchor_loss_decrease"]
    within = _rank_correlations(data, "anchor_loss_decrease")
    return Proposition(
        name="Corollary 1",
        statement="As read here: the higher its alignment, the more a step on a response lowers the loss of the expert "
        "solution.",
        computed=f"exact loss of the anchor after a step of length {STEP_SIZE:g} of the head on the response: rank "
        "correlation with alignment over all, mean of those within problems, share with the same sign",
        number=f"{_spearman(b, decrease):.2f}; {clustered_mean(within, np.arange(len(within)))}; "
        f"{np.mean(np.sign(b) == np.sign(decrease)):.0%}",
        outcome="measured",
    )


def _decomposition_proposition(data: dict[str, Floats]) -> Proposition:
    remainder = np.abs(data["remainder"])
    inside = int((remainder <= data["printed_bound"] * (1 + 1e-9)).sum())
    ours = int((remainder <= data["bound"] * (1 + 1e-9)).sum())
    share = np.median(remainder / np.maximum(np.abs(data["kernel"]), 1e-30))
    example = two_word_counterexample(4.0)
    return Proposition(
        name="Theorem 2",
        statement="The kernel is (mean d . mean d')(mean h . mean h') up to a remainder of at most "
        "kappa B_h B_delta (constant 1).",
        computed=f"{len(remainder)} pairs: median size of the remainder over the kernel; pairs within the printed "
        "bound; pairs within ours",
        number=f"{share:.2f}; {inside} of {len(remainder)}; {ours} of {len(remainder)}",
        outcome="fails",
        counterexample=f"V = 2, W = 0, hidden states +4 and -4, tokens 0 and 1, an anchor of one token: the remainder "
        f"is {float(example.remainder):.1f}, the bound {float(example.printed_bound):.1f}. In general c^2 / 2 against "
        "c / 2: one factor of the size of h is missing.",
    )


def two_word_counterexample(c: float) -> KernelParts:
    """The kernel of a response h = (+c, -c), y = (0, 1) and a one-token anchor h = c, y = 0, with V = 2 and W = 0."""
    errors = torch.tensor([[-0.5, 0.5], [0.5, -0.5]], dtype=torch.float64)
    hidden = torch.tensor([[c], [-c]], dtype=torch.float64)
    return kernel_decomposition(errors, hidden, errors[:1], hidden[:1])


def _spearman(a: Floats, b: Floats) -> float:
    if not (np.ptp(a) > 0 and np.ptp(b) > 0):
        return np.nan
    return float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1])


def _rank_correlations(data: dict[str, Floats], name: str) -> list[float]:
    """Of alignment and a column within each problem, over different responses; problems with too few are left out."""
    found = []
    for problem in np.unique(data["problem"]):
        mine = data["problem"] == problem
        pairs = np.unique(np.stack([data["alignment"][mine], data[name][mine]], 1).round(9), axis=0)
        if len(pairs) >= _MIN_RESPONSES:
            found.append(_spearman(*pairs.T))
    return found


# ------------------------------------------------------------------------------------------------------------- figure


def theory_figure(check: TheoryCheck) -> Figure:
    """Alignment against the kernel, the kernel against its mean field, the remainder against both bounds."""
    data = {name: check.data[name].to_numpy() for name in check.data.column_names if name != "problem_id"}
    with matplotlib.rc_context(PAPER):
        figure = Figure(figsize=(PAGE_WIDTH, 2.4))
        figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.05)
        panels = figure.subplots(1, 3)
        _scatter(panels[0], data["normalised_kernel"], data["alignment"], data["eligible"])
        panels[0].set(title="Theorem 1", xlabel="normalised output-layer kernel", ylabel="alignment")
        _scatter(panels[1], data["kernel"], data["mean_field"], data["eligible"])
        panels[1].set(title="Theorem 2: mean field", xlabel="kernel, exact", ylabel="product of means")
        _draw_bounds(panels[2], data)
        panels[0].legend(loc="upper left", frameon=False, handletextpad=0.1, borderpad=0.1)
        add_caption(
            figure,
            f"{check.policy}: n = {check.num_responses:,} responses to {check.num_problems:,} problems, each with its "
            "anchor. Lines: equality.",
        )
    return figure


def _scatter(axes: Axes, x: Floats, y: Floats, eligible: NDArray[np.bool_]) -> None:
    for label, mask, colour, marker in (
        ("correct", eligible, COLOURS[0], "o"), ("not correct", ~eligible, COLOURS[1], "x"),
    ):  # fmt: skip
        if mask.any():
            axes.scatter(x[mask], y[mask], s=9, color=colour, marker=marker, linewidths=0.8, alpha=0.75, label=label)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    axes.plot(ends, ends, color=INK, linewidth=0.8)


def _draw_bounds(axes: Axes, data: dict[str, Floats]) -> None:
    remainder = np.maximum(np.abs(data["remainder"]), 1e-12)
    for label, name, colour, marker in (
        ("printed bound", "printed_bound", COLOURS[4], "s"), ("our bound", "bound", MUTED, "^"),
    ):  # fmt: skip
        axes.scatter(np.maximum(data[name], 1e-12), remainder, s=8, color=colour, marker=marker, linewidths=0,
                     alpha=0.6, label=label)  # fmt: skip
    ends = [remainder.min(), data["bound"].max()]
    axes.plot(ends, ends, color=INK, linewidth=0.8)
    axes.set(xscale="log", yscale="log", title="Theorem 2: remainder", xlabel="bound", ylabel="size of the remainder")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend(loc="upper left", frameon=False, handletextpad=0.1, borderpad=0.1)


def theory_output(check: TheoryCheck) -> Output:
    """What the command writes and shows."""
    lines = [f"# Theory on {check.policy}", ""]
    for p in check.propositions:
        lines += [f"**{p.name}: {p.outcome}.** {p.statement}", "", f"- computed: {p.computed}", f"- number: {p.number}"]
        lines += [f"- counterexample: {p.counterexample}"] if p.counterexample else []
        lines.append("")
    return Output(
        name="theory",
        title=f"Theory on {check.policy}: n = {check.num_responses:,} responses to {check.num_problems:,} problems",
        headings=("statement", "number", "outcome"),
        rows=[(f"{p.name}: {p.statement}", p.number, p.outcome) for p in check.propositions],
        data=check.data,
        figure=theory_figure(check),
        text="\n".join(lines),
        notes=[*check.notes, *(f"{p.name}: {p.counterexample}" for p in check.propositions if p.counterexample)],
    )
