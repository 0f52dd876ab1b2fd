"""The committed results: `results.parquet` has a row for each run of every comparison, in the order of its YAML file.

    results = read_results("main").results      # by row and seed

What is nested and differs from run to run (settings, and what `measured` holds) is JSON in a column of text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gar import RecordError
from gar.comparison import RunResult, check_paired, finished_results, planned_runs, read_comparison
from gar.evaluation import mean_and_sd
from gar.records import EvaluatedSet, ProblemCount

HERE = Path(__file__).parent
FILE = HERE / "results.parquet"
NAMES = sorted({*pq.read_table(FILE, columns=["comparison"])["comparison"].to_pylist()})
_FORMS = {row: "894487d" for row in ("unit", "sum-initial", "sum-initial-separate", "gar-token")}
GONE: Mapping[str, Mapping[str, str]] = {f"signals-{task}": _FORMS for task in ("chain", "which-way", "whose-voice")}
"""Rows with a method or setting that is gone: by comparison and row, the last commit that runs them."""
MARK = "†"
_NUMBERS = pa.list_(pa.float64())
_SETS = pa.struct(
    {
        "num_samples": pa.int64(),
        "problem_ids": pa.list_(pa.string()),
        "num_correct": pa.list_(pa.int64()),
        "problems_hash": pa.string(),
    }
)
_TEXT, _SECONDS = pa.string(), pa.map_(pa.string(), pa.float64())
SCHEMA = pa.schema(
    {
        "comparison": _TEXT,
        "label": _TEXT,
        "seed": pa.int64(),
        "against": pa.list_(_TEXT),
        "settings": _TEXT,
        "settings_hash": _TEXT,
        "versions": pa.map_(_TEXT, _TEXT),
        "platform": _TEXT,
        "cpu_count": pa.int64(),
        "start_time": _TEXT,
        "resumed": pa.bool_(),
        "wall_seconds": pa.float64(),
        "cpu_seconds": pa.float64(),
        "peak_memory_bytes": pa.int64(),
        "data_hash": _TEXT,
        "prompts_hash": _TEXT,
        "steps": pa.int64(),
        "seconds_per_step": _SECONDS,
        "shares_of_step": _SECONDS,
        "sets": pa.map_(_TEXT, _SETS),
        "pass_at": pa.map_(_TEXT, _SECONDS),
        "curves": pa.map_(_TEXT, pa.struct({"step": _NUMBERS, "value": _NUMBERS})),
        "measured": _TEXT,
    }
)
"""A comparison, the fields of `gar.comparison.RunResult`, the rows that a row is tested against, and `measured`."""


@dataclass(frozen=True, kw_only=True)
class Committed:
    """The results of a comparison.

    Attributes:
        name: Its name.
        results: Results by row and seed.
        against: The rows in their order, each with the rows that it is tested against.
        measured: What was counted in the run folders, by run as in `gar-grpo-seed-0`. None where nothing was counted.
    """

    name: str
    results: Mapping[tuple[str, int], RunResult]
    against: Mapping[str, Sequence[str]]
    measured: Mapping[str, Any]

    def of_row(self, label: str) -> dict[int, RunResult]:
        """Results of a row by seed."""
        return {seed: result for (name, seed), result in self.results.items() if name == label}

    def in_order(self) -> list[RunResult]:
        """All results, by row and then by seed."""
        return [self.results[key] for key in sorted(self.results)]


def read_results(name: str) -> Committed:
    """Read the results of a comparison."""
    rows = _table(pc.field("comparison") == name).to_pylist(maps_as_pydicts="strict")
    results = {}
    for row in rows:
        row |= {column: json.loads(row[column]) for column in ("settings", "measured")}
        row["sets"] = {
            set_name: EvaluatedSet(
                pass_at=row["pass_at"][set_name],
                num_samples=counts["num_samples"],
                problems=[ProblemCount(id=id, num_correct=number)
                          for id, number in zip(counts["problem_ids"], counts["num_correct"], strict=True)],
                problems_hash=counts["problems_hash"],
            )
            for set_name, counts in row["sets"].items()
        }  # fmt: skip
        results[row["label"], row["seed"]] = RunResult(**{field.name: row[field.name] for field in fields(RunResult)})
    against = {row["label"]: row["against"] for row in rows}
    return Committed(name=name, results=results, against=against, measured={_run_name(r): r["measured"] for r in rows})


def finished_runs(comparison: str | Path) -> list[RunResult]:
    """The runs of a committed comparison, or those that `gar compare FILE.yaml` has finished.

    Raises:
        RecordError: There is none, or a result cannot be read.
    """
    if comparison in NAMES:
        return read_results(str(comparison)).in_order()
    source = str(comparison)
    results = finished_results(planned_runs(read_comparison(source), source))
    if not results:
        raise RecordError(f"{source}: no finished run of a comparison. `gar compare {source}` makes them.")
    return [results[key] for key in sorted(results)]


def write_results(committed: Committed) -> None:
    """Write the rows of a comparison in place of those that it has."""
    rows = []
    for label in committed.against:
        for result in committed.of_row(label).values():
            row = asdict(result) | {"comparison": committed.name, "against": committed.against[label]}
            row["measured"] = committed.measured.get(_run_name(row))
            row["pass_at"] = {set_name: part.pass_at for set_name, part in result.sets.items()}
            for set_name, part in result.sets.items():
                numbers = {"problem_ids": [*part.num_correct], "num_correct": [*part.num_correct.values()]}
                row["sets"][set_name] |= numbers
            row |= {column: json.dumps(row.get(column)) for column in ("settings", "measured")}
            rows.append(row)
    others = _table(pc.field("comparison") != committed.name)
    table = pa.concat_tables([others, pa.Table.from_pylist(rows, schema=SCHEMA)])
    pq.write_table(table, FILE, compression="zstd", compression_level=19)


def collect(name: str, new: Sequence[RunResult], measured: Mapping[str, Any]) -> None:
    """Put the results of `gar compare` into the committed file. Other runs in it stay.

    Args:
        name: Name of the comparison.
        new: Results of its runs.
        measured: What was counted in the run folders, by run.

    Raises:
        RecordError: The results are not paired with those that are there. The file stays as it was.
    """
    settings = read_comparison(str(HERE / f"{name}.yaml"))
    before = read_results(name) if name in NAMES else Committed(name=name, results={}, against={}, measured={})
    results = dict(before.results) | {(result.label, result.seed): result for result in new}
    check_paired(results)
    order = {row.label: settings.against(row) for row in settings.runs}
    write_results(
        Committed(
            name=name,
            results=dict(sorted(results.items(), key=lambda item: item[0][1])),
            against=dict(before.against) | order,
            measured=dict(before.measured) | dict(measured),
        )
    )


def mean_text(values: Sequence[float]) -> str:
    """The mean over seeds with its standard deviation, if there are several."""
    mean, deviation = mean_and_sd(values)
    return f"{mean:.3f}" if deviation is None else f"{mean:.3f} ± {deviation:.3f}"


def marked(name: str, label: str) -> str:
    """The label of a row as tables show it: with a mark where nothing can run it any more."""
    return f"{label} {MARK}" if label in GONE.get(name, ()) else label


def notes(names: Sequence[str]) -> list[str]:
    """What the mark means, for the tables of some comparisons."""
    commits = sorted({commit for name in names for commit in GONE.get(name, {}).values()})
    return (
        [f"{MARK} Not runnable since a method or setting went; the last commit that runs it is {' or '.join(commits)}."]
        if commits
        else []
    )


def _table(rows: pc.Expression) -> pa.Table:
    return pq.read_table(FILE, filters=rows)


def _run_name(row: Mapping[str, Any]) -> str:
    return f"{row['label']}-seed-{row['seed']}"
