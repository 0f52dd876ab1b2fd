"""Write paper/analyses/conformance.md: rewards and advantages of the same rollouts in TRL, slime and verl.

    python -m paper.analyses.conformance_table

It reads results/conformance/*.json, which the conformance tests write if GAR_RECORD_CONFORMANCE is set. A test fails
if the page and these files disagree.
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "paper" / "analyses" / "conformance.md"
ENGINES = {"trl": "TRL", "slime": "slime", "verl": "verl"}

_HEAD = """\
# The same rollouts through TRL, slime and verl

<!-- Written by paper/analyses/conformance_table.py from results/conformance. -->

Seven groups of four responses of the embedded model, one group of every kind that a reward may meet, go through each
engine: the same token ids, the same weights. The rewards are the same: those of `gar.core` on one process, where the
model in float64 sees one sequence at a time. The advantages differ by each library's own rule for a group's spread, and
by nothing else.

## Rewards and advantages
"""

_RULES = """\
## Rules

An advantage is (reward - mean of the group) / (standard deviation of the group + eps). "Error" is the largest over the
28 responses; that of advantages is multiplied by what the group was divided by, which makes it one of rewards. The
tests allow {tolerance:.0e}.
"""

_NOTES = """\
* **The rule `paper`** is what `gar train` sets, and the plugin for slime unless told otherwise: ddof 0, which equation
  12 of the paper implies, and eps 1e-6, which is ours, as the paper gives no number. The columns of the engines are
  their own rules: a bare `GARTrainer`, slime with `gar.advantage.ddof` and `eps` null, verl always.
* **A response that is alone in its group** gets 0 from GAR, and its own reward from verl's `grpo`; a test holds verl to
  it. No group here is of that kind.
* **Tool output** is neither graded nor scored: `called` has a tool's tags and answer amid its thought, `echoed` a wrong
  answer, and after it the right one from a tool. TRL's tool mask, slime's loss mask and verl's response mask say
  which tokens the policy wrote.
* **Zero-std groups**: where all rewards are equal, the advantages are exactly 0 in every engine.

## What ran

| engine | what ran |
|---|---|
| TRL | `GARTrainer` for one step; sampling alone is replaced |
| slime | `convert_samples`, then `postprocess` on two ranks, on Megatron's GPTModel; slime's side is a stand-in |
| verl | `GarRewardManager`, then a step of `gar_sync` with Ray, TransferQueue, an FSDP2 worker and padding rows |

Rollouts, expectation and comparison stand in `tests/conformance`. To record anew:

    export GAR_RECORD_CONFORMANCE=1 OMP_NUM_THREADS=1
    .venv/bin/pytest tests/conformance
    PYTHONPATH=.venv-megatron .venv/bin/pytest tests/engines/megatron/test_slime_conformance.py
    .venv-verl/bin/python -m pytest tests/engines/verl/test_verl_conformance.py
    python -m paper.analyses.conformance_table
"""


def page(results: Path = ROOT / "results" / "conformance") -> str:
    """The text of the page."""
    expected = _read(results, "expectation")
    actual = {engine: _read(results, engine) for engine in ENGINES}
    rules = _RULES.format(tolerance=expected["tolerance"])
    return "\n".join([_HEAD, _responses(expected, actual), rules, _engines(expected, actual), _NOTES])


def _responses(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    advantages = {"paper": expected["advantages"]["paper"], **{name: actual[name]["advantages"] for name in ENGINES}}
    rows = [["group", "response", "reward", "advantage: paper", *ENGINES.values()], ["---", "---", *["---:"] * 5]]
    for i, (group, kind) in enumerate(expected["responses"]):
        values = [expected["rewards"][i], *(column[i] for column in advantages.values())]
        rows.append([group, kind, *(_number(value) for value in values)])
    return _table(rows)


def _engines(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    rows = [["", "version", "ddof", "eps", "error of rewards", "error of advantages"], ["---"] * 6]
    rule = expected["rules"]["paper"]
    rows.append(["paper", "", str(rule["ddof"]), f"{rule['eps']:.0e}", "", ""])
    for engine, name in ENGINES.items():
        rule, recorded = expected["rules"][engine], actual[engine]
        reward_errors = _errors(recorded["rewards"], expected["rewards"])
        errors = _errors(recorded["advantages"], expected["advantages"][engine])
        scaled = [error * divisor for error, divisor in zip(errors, expected["divisors"][engine], strict=True)]
        largest = [f"{max(errors):.0e}" for errors in (reward_errors, scaled)]
        rows.append([name, recorded["version"], str(rule["ddof"]), f"{rule['eps']:.0e}", *largest])
    return _table(rows)


def _errors(values: list[float], expected: list[float]) -> list[float]:
    return [abs(a - b) for a, b in zip(values, expected, strict=True)]


def _number(value: float) -> str:
    return f"{value + 0.0:.4f}"


def _table(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _read(results: Path, name: str) -> dict[str, Any]:
    return json.loads((results / f"{name}.json").read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE.relative_to(ROOT))
