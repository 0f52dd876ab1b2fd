"""What the parts of `scripts/test_gpu.py` have written, and the rows of its table."""

import json
import statistics
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Row = tuple[str, str]
"""What was tried, and what was found."""


def read_json(path: Path) -> Any:
    """What a file holds, or an empty dictionary before it is there."""
    return json.loads(path.read_text()) if path.exists() else {}


def json_lines(path: Path) -> Iterator[Any]:
    """The whole lines of a file that somebody may still have been writing."""
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError):
            yield json.loads(line)


def tests_in(path: Path, file: str) -> list[Any]:
    """The tests of one file, as `tests/gpu/conftest.py` notes them."""
    return [row for row in json_lines(path) if row["file"].endswith(file)]


def test_rows(tests: list[Any]) -> list[Row]:
    """How each test ended, and what it measured."""
    rows = []
    for test in tests:
        measured = "".join(f", {name}: {shown(value)}" for name, value in test["measured"].items())
        rows.append((test["test"], f"{test['status']} in {test['seconds']} s{measured}"))
    return rows


def shown(value: Any) -> str:
    """A number in three digits, or `name number` of each, in brackets if they are nested."""
    if isinstance(value, dict):
        return ", ".join(
            f"{name} ({shown(each)})" if isinstance(each, dict) else f"{name} {shown(each)}"
            for name, each in value.items()
        )
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def head_rows(result: Any) -> list[Row]:
    """Of `benchmarks/head.py`."""
    rows = []
    for head in result.get("results", []):
        for way, seconds in head["seconds"].items():
            ratio, memory = head["time_of_two_products_over_its_own"][way]["median"], head["peak_bytes"][way]
            text = f"{1e3 * seconds:.3g} ms, speed {ratio:.2f}, {memory / 1e6:.0f} MB beside the arguments"
            error = head["one_minus_cosine"].get(way)
            rows.append((f"{head['shape']}, {head['dtype']}, {head['tokens']} tokens: {way}",
                         text + ("" if error is None else f", 1 - cos {error:.0e}")))  # fmt: skip
    return rows


def step_rows(result: Any) -> list[Row]:
    """Of `benchmarks/step.py`."""
    if not result:
        return []
    plain = f"{result['plain_step_seconds']:.3g} s, peak {(result['peak_bytes'] or 0) / 1e9:.2f} GB, counted "
    rows = [(f"{result['model']}, {result['dtype']}: plain step", f"{plain}{result['counted_bytes'] / 1e9:.2f} GB")]
    for way, share in result["share_of_the_step"].items():
        counted = result["predicted_share"][way]
        rows.append((f"{result['model']}: {way}", f"{share['median']:.2%} of a step, counted {counted:.2%}"))
    return rows


def scale_rows(result: Any) -> list[Row]:
    """Of `benchmarks/scale.py`."""
    return [
        (name, f"R² {fit['r_squared']:.3f}, proportional part {fit['proportional_part_at_the_largest']:.2f}")
        for name, fit in result.get("varied", {}).items()
    ]


def training_rows(steps: list[Any]) -> list[Row]:
    """Medians of the steps after the first, which compiles and allocates."""
    if not steps:
        return []
    later = steps[1:] or steps
    times = {key: [step[key] for step in later if step.get(key) is not None] for key in sorted(steps[0])}
    seconds = {key: statistics.median(values) for key, values in times.items() if key.startswith("time/") and values}
    rows = [("steps", str(len(steps))), *((key, f"{value:.3g} s") for key, value in seconds.items())]
    share = sum(times.get("time/gar_seconds", [])) / sum(times["time/step_seconds"])
    rows.append(("GAR's share of a step", f"{share:.1%}"))
    for key in ("gar/verified_fraction", "gar/alignment_mean", "gar/bonus_mean", "reward"):
        ends = [step.get(key) for step in (steps[0], steps[-1])]
        rows.append((key, " to ".join("none" if value is None else f"{value:.3f}" for value in ends)))
    return rows
