"""The bench on one policy, as a table, a figure, a page and JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gar import ConfigError, DataError
from gar.analysis import INK, paper_figure
from gar.evaluation import markdown_text
from paper.analyses.outputs import Output, add_caption
from paper.analyses.policies import Policy
from paper.analyses.similarities.bench import Bench, Share, run_bench
from paper.analyses.similarities.forms import CONTROLS, all_similarities
from paper.analyses.similarities.questions import QUESTIONS
from paper.analyses.similarities.sources import Scope, for_text, questions_for, sample_questions
from paper.analyses.similarities.tokens import read_solutions_as


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalStudy:
    """A bench, with the policy and the problems that it was run on."""

    policy: str
    initial: str | None
    num_problems: int
    bench: Bench
    notes: Sequence[str]


def signal_study(policy: Policy, scope: Scope, initial: Policy | None = None) -> SignalStudy:
    """Ask every similarity every question that the policy's data allow.

    Args:
        policy: The policy that gives gradients, problems and samples.
        scope: The questions.
        initial: The policy that the run started from, to try the similarities with its vectors. None: none.

    Raises:
        ConfigError: The two policies have different tokenizers.
        DataError: There is nothing to ask.
    """
    if initial is not None and initial.tokenizer.get_vocab() != policy.tokenizer.get_vocab():
        raise ConfigError(
            f"{initial.name} and {policy.name} have different tokenizers. Name the model that the run started from "
            "with --initial."
        )
    policy = for_text(policy, scope.solutions)
    questions = questions_for(policy, scope)
    notes = list(policy.notes)
    # With solutions from a file and no source of problems, the chain task is only the default: leave it out.
    if scope.sampled_problems and (scope.solutions is None or policy.task is None):
        notes.append(sample_questions(questions, policy, scope))
    if not questions.triples:
        raise DataError(
            f"{policy.name}: there is no question to ask: no two solutions share an anchor. " + " ".join(notes)
        )
    anchors = {pair[1] for triple in questions.triples for pair in (triple.better, triple.worse)}
    tokens = read_solutions_as(policy, questions.solutions, anchors, initial)
    bench = run_bench(questions.triples, tokens, all_similarities(with_start=initial is not None))
    return SignalStudy(
        policy=policy.name,
        initial=initial and initial.name,
        num_problems=len({triple.problem_id for triple in questions.triples}),
        bench=bench,
        notes=notes,
    )


def signals_output(study: SignalStudy) -> Output:
    """The table, data, figure, page and numbers of the command."""
    bench = study.bench
    columns = list(next(iter(bench.shares.values())))
    rows = [
        (name, *(_number(shares[column].share) for column in columns), _number(_least(shares)))
        for name, shares in bench.shares.items()
    ]
    absent = [question for question in QUESTIONS if not any(column.startswith(f"{question}:") for column in columns)]
    notes = [*study.notes, "least: the smallest share of the row. Intervals: the JSON, the page and the figure."]
    if absent:
        notes.append(f"not asked, since there is no data for it: {', '.join(absent)}.")
    return Output(
        name="signals",
        title=f"Share of pairs ranked correctly, {study.policy}: {study.num_problems:,} problems",
        headings=("", *columns, "least"),
        rows=rows,
        data=bench.data,
        figure=signals_figure(study),
        notes=notes,
        text=_page(study),
        numbers=_numbers(study),
    )


def _least(shares: Mapping[str, Share]) -> float:
    return min((share.share for share in shares.values() if share.num_triples), default=math.nan)


def _number(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.2f}"


def _numbers(study: SignalStudy) -> dict[str, Any]:
    """Shares with four digits. A question without triples is left out."""

    def plain(tables: Mapping[str, Mapping[str, Share]]) -> dict[str, Any]:
        return {
            name: {
                column: {key: round(value, 4) for key, value in asdict(share).items()}
                for column, share in shares.items()
                if share.num_triples
            }
            for name, shares in tables.items()
        }

    return {
        "policy": study.policy,
        "initial": study.initial,
        "num_problems": study.num_problems,
        "notes": list(study.notes),
        "shares": plain(study.bench.shares),
        "equal_lengths": plain(study.bench.equal_lengths),
    }


def _page(study: SignalStudy) -> str:
    """Shares with intervals, and the mean similarities behind them, in Markdown."""
    bench = study.bench
    tables = [
        ("Share of pairs ranked correctly", bench.shares, _interval),
        ("The same, pairs of equal length (within 5%)", bench.equal_lengths, _interval),
        ("Mean similarity of the better and the worse pairs", bench.shares, _means),
    ]
    heading = [f"# {study.policy}: signals", "", "Intervals: 95%, by bootstrap over problems.", ""]
    shown: dict[str, pd.DataFrame] = {}
    for title, shares, cell in tables:
        first = next(iter(shares.values()))
        columns = [column for column, share in first.items() if share.num_triples]
        if columns:
            rows = [["pairs / problems", *(f"{first[c].num_triples} / {first[c].num_problems}" for c in columns)]]
            rows += [[name, *(cell(row[c]) for c in columns)] for name, row in shares.items()]
            shown[f"## {title}"] = pd.DataFrame(rows, columns=["", *columns])
    return markdown_text(shown, [], heading)


def _interval(share: Share) -> str:
    return f"{share.share:.2f} [{share.low:.2f}, {share.high:.2f}]" if share.num_triples else "-"


def _means(share: Share) -> str:
    return f"{share.mean_better:.3f} / {share.mean_worse:.3f}" if share.num_triples else "-"


def signals_figure(study: SignalStudy) -> Figure:
    """Similarities by questions: each cell has a share and its interval. Purple is right, orange is wrong."""
    shares = study.bench.shares
    columns = list(next(iter(shares.values())))
    values = np.array([[row[column].share for column in columns] for row in shares.values()])
    with paper_figure(1.1 + 0.26 * len(shares)) as figure:
        axes = figure.subplots()
        axes.grid(visible=False)
        axes.imshow(values, cmap="PuOr", vmin=-0.7, vmax=1.7, aspect="auto")
        for y, row in enumerate(shares.values()):
            for x, share in enumerate(row.values()):
                if share.num_triples:
                    bold = "bold" if share.low >= 0.9 else "normal"
                    axes.text(x, y - 0.14, f"{share.share:.2f}", ha="center", va="center", size=6.5, weight=bold)
                    axes.text(x, y + 0.27, f"{share.low:.2f}-{share.high:.2f}", ha="center", va="center", size=4)
        axes.set_xticks(range(len(columns)), [c.replace(": ", ":\n") for c in columns], rotation=40, ha="left", size=6)
        axes.set_yticks(range(len(shares)), list(shares))
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.axhline(len(shares) - len(CONTROLS) - 0.5, color=INK, linewidth=0.8)
        for spine in axes.spines.values():
            spine.set_visible(False)
        add_caption(
            figure,
            f"{study.policy}: share of pairs ranked correctly, 95% intervals over {study.num_problems} problems. "
            "Bold: at least 0.9 in the whole interval. Below the line: controls.",
        )
    return figure
