"""Score a file of rollouts, and see which tokens bring a response close to its expert solution.

    python examples/score_a_file.py [FILE.jsonl] [--model MODEL] [--out SCORES.jsonl]

Prints every response's alignment, bonus, reward and advantage, then the response with the largest alignment token by
token: each token's share, in a terminal green if positive and red if negative. The shares add up to the alignment.
Takes a few seconds on a CPU, without a network.

A line of the file holds a problem and all responses to it: id, prompt, responses, answer, expert_solution. The embedded
model wrote the default, `examples/rollouts.jsonl`. MODEL is a folder or a Hub id.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from transformers import AutoModelForCausalLM, AutoTokenizer

from gar import GARScorer, ResponseGroup, ResponseScore
from gar.models import load_embedded
from gar.verify import Verifier

ROLLOUTS = Path(__file__).with_name("rollouts.jsonl")
CELLS_PER_LINE = 8


def load(name: str) -> tuple[Any, Any]:
    return AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)


def read_groups(path: Path) -> list[ResponseGroup]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        ResponseGroup(
            id=row["id"],
            prompt=row["prompt"],
            responses=row["responses"],
            anchors=[row["expert_solution"]],
            answer=row["answer"],
        )
        for row in rows
    ]


def score_table(scores: list[ResponseScore]) -> Table:
    table = Table(title="Scores")
    for heading in ("problem", "verdict", "signal", "alignment", "bonus", "reward", "advantage"):
        table.add_column(heading, justify="left" if heading in ("problem", "verdict", "signal") else "right")
    for score, following in zip(scores, [*scores[1:], None], strict=True):
        table.add_row(
            score.id,
            score.status,
            score.signal,  # the reason, if there is no alignment
            "-" if score.alignment is None else f"{score.alignment:.3f}",
            f"{score.bonus:.3f}",
            f"{score.reward:.3f}",
            f"{score.advantage:+.2f}",
            end_section=following is None or following.group_index != score.group_index,
        )
    return table


def heat_map(tokens: Sequence[str], shares: Sequence[float | None]) -> Text:
    """Tokens above their shares in hundredths. Tokens outside the scored span have none."""
    strongest = max(abs(share) for share in shares if share is not None)
    cells = [
        (f"{token.strip():^9}", " " * 9 if share is None else f"{100 * share:^+9.1f}", _style(share, strongest))
        for token, share in zip(tokens, shares, strict=True)
    ]
    text = Text()
    for start in range(0, len(cells), CELLS_PER_LINE):
        line = cells[start : start + CELLS_PER_LINE]
        for token, _, style in line:
            text.append(token, style)
        text.append("\n")
        for _, share, _ in line:
            text.append(share)
        text.append("\n")
    return text


def _style(share: float | None, strongest: float) -> str:
    if not share:
        return "dim"
    faded = round(255 * (1 - abs(share) / strongest))
    return f"black on rgb({faded},255,{faded})" if share > 0 else f"black on rgb(255,{faded},{faded})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=ROLLOUTS)
    parser.add_argument("--model", default="embedded", help="a folder or a Hub id")
    parser.add_argument("--format", default="think-answer", help="of the responses: think-answer, boxed or none")
    parser.add_argument("--score-all", action="store_true", help="also responses that can earn no bonus")
    parser.add_argument("--out", type=Path, help="write a line of JSON for each response")
    options = parser.parse_args()
    groups = read_groups(options.file)

    policy, tokenizer = load_embedded() if options.model == "embedded" else load(options.model)
    with Verifier(format=options.format) as verifier:
        scorer = GARScorer(policy, tokenizer, verifier=verifier, score_all=options.score_all)
        scores = scorer.score(groups, tokens=True)
    if options.out:
        options.out.write_text("".join(json.dumps(asdict(score)) + "\n" for score in scores))

    console = Console()
    console.print(score_table(scores))
    aligned = [(score.alignment, score) for score in scores if score.alignment is not None]
    if not aligned:
        raise SystemExit("No alignment: a group needs an expert solution and two right, well formatted answers.")
    alignment, best = max(aligned, key=lambda pair: pair[0])
    group = groups[best.group_index]
    assert best.tokens is not None  # asked for above
    assert best.token_shares is not None
    console.print(f"Best aligned: response {best.response_index} to {group.prompt}  (alignment {alignment:.3f})")
    console.print(f"Expert: {group.anchors[0]}", markup=False, soft_wrap=True)
    console.print("Share of each token in the alignment, in hundredths:\n")
    console.print(heat_map(best.tokens, best.token_shares))


if __name__ == "__main__":
    main()
