"""What `gar score` reads and writes. Importing this imports no torch.

For `--out scores.jsonl`, the first three complete or absent:

    scores.jsonl           one object per response. A name in `.parquet` gives a Parquet file
    scores.errors.jsonl    rows of the input that could not be read, and why. Only if there are any
    scores.run.json        input, model, settings, versions, command, summary
    scores.manifest.jsonl  size and checksum of the finished files, see `gar.records.manifest`
    scores.partial.json    until the command ends: input, model and settings of the unfinished output
    scores.partial.jsonl   until the command ends: one object per finished row of the input
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gar.data.responses import ResponseRow, ResponseSurvey, iter_response_rows, survey_rows
from gar.data.sources import check_suffix, source_name
from gar.errors import ConfigError, DataError
from gar.records.files import atomic_file, json_text, write_atomic
from gar.records.lock import writer_lock
from gar.records.manifest import Manifest
from gar.records.resumable import ResumableOutput
from gar.records.rollouts import record_schema
from gar.scoring.job import ScoreJob
from gar.scoring.scores import ResponseScore, SignalStatus
from gar.types import Status
from gar.verify.verifier import custom_grader

OutputRow = dict[str, Any]

_ROWS_PER_WRITE = 4096
_FLAGS = ("verified", "well_formatted", "eligible")
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_ORIGIN = [
    pa.field("line", pa.int64(), nullable=False),
    pa.field("id", pa.string(), nullable=False),
    pa.field("response_index", pa.int64(), nullable=False),
    pa.field("response_field", pa.string(), nullable=False),
    pa.field("gold", pa.string()),
]
_NOT_SCORES = {"id", "group_index", "response_index", "tokens", "token_shares"}
_TOKEN_COLUMNS = [pa.field("tokens", pa.list_(pa.string())), pa.field("token_shares", pa.list_(pa.float64()))]


def score_schema(*, tokens: bool) -> pa.Schema:
    """Columns of the output: the origin of a response and its score. Token columns only if asked for."""
    scores = record_schema(ResponseScore, without=_NOT_SCORES)
    return pa.schema([*_ORIGIN, *scores, *(_TOKEN_COLUMNS if tokens else [])])


class ScoreFiles:
    """The files of a job, and their manifest. `unfinished` has a line for each finished row of the input.

    Raises:
        ConfigError: The name of the output ends in neither .jsonl nor .parquet.
    """

    def __init__(self, job: ScoreJob) -> None:
        self.out = job.out or Path(f"{source_name(job.file)}.scores.jsonl")
        check_suffix(self.out, ".jsonl", ".parquet")
        self.errors, self.run = self.out.with_suffix(".errors.jsonl"), self.out.with_suffix(".run.json")
        name = self.out.stem
        self.manifest = Manifest(self.out.parent, name=f"{name}.manifest.jsonl")
        self.unfinished = ResumableOutput(self.manifest, f"{name}.partial.json", f"{name}.partial.jsonl")

    def refuse_loss(self, source: str, *, overwrite: bool) -> None:
        """Raise a `ConfigError` before overwriting the input or a finished output."""
        partial = (self.unfinished.identity_path, self.unfinished.lines_path)
        for path in (self.out, self.errors, self.run, self.manifest.path, *partial):
            if path.exists() and Path(source).exists() and path.samefile(source):
                raise ConfigError(f"{path} is the input itself. Choose another --out.", code="overwrites-input")
        if self.out.exists() and not overwrite and not self.unfinished.exists():
            raise ConfigError(f"{self.out} exists. Add --overwrite to replace it.", code="output-exists")

    def write_errors(self, errors: Sequence[DataError]) -> None:
        """Write the rows that could not be read. Without any, remove the file of an earlier run."""
        if not errors:
            self.errors.unlink(missing_ok=True)
            return
        parts = [str(error).partition(": ") for error in errors]
        lines = [json_text({"place": place, "error": text}) + "\n" for place, _, text in parts]
        write_atomic(self.errors, "".join(lines))


def read_rows(job: ScoreJob) -> Iterator[ResponseRow | DataError]:
    """Each row of the input, or its error."""
    return islice(iter_response_rows(job.file, job), job.limit)


def check_input(job: ScoreJob) -> ResponseSurvey:
    """Read the whole input before a model is loaded. A `GarError` if the job cannot end well."""
    files = ScoreFiles(job)
    with writer_lock(files.unfinished.lines_path):
        files.refuse_loss(job.file, overwrite=job.overwrite)
        if job.verify.verifier is not None:
            custom_grader(job.verify.verifier)
        survey = survey_rows(read_rows(job))
        if not survey.num_rows:
            raise DataError(
                f"{job.file}: no rows. Was the file written to the end, and is it the right one?", code="no-rows"
            )
        refuse_all_bad(files, survey.errors, survey.num_rows)
    if not survey.num_anchored:
        raise DataError(
            f"{job.file}: no row has an expert solution in {' or '.join(map(repr, job.expert_fields))}, so no response "
            "has anything to align with. Name its column with --expert-fields.",
            code="no-anchors",
        )
    return survey


def refuse_all_bad(files: ScoreFiles, errors: Sequence[DataError], num_rows: int) -> None:
    """Raise a `DataError` if no row can be scored."""
    if len(errors) == num_rows:
        files.write_errors(errors)
        raise DataError(
            f"none of {num_rows} rows can be scored. {files.errors} has the reasons. The first: {errors[0]}",
            code="no-rows",
        )


def output_row(row: ResponseRow, score: ResponseScore, schema: pa.Schema) -> OutputRow:
    """A score and the origin of its response, under the names of `schema`."""
    values: dict[str, Any] = {field.name: getattr(score, field.name) for field in fields(score)}
    values |= {"line": row.line, "response_field": row.response_fields[score.response_index], "gold": row.answer}
    return {name: values[name] for name in schema.names}


def write_scores(out: Path, groups: Iterable[Sequence[OutputRow]], schema: pa.Schema) -> None:
    """Write the rows of all groups, in bounded memory: a whole file or, with a `RecordError`, none."""
    with atomic_file(out) as file:
        if out.suffix == ".jsonl":
            for rows in groups:
                file.writelines(json_text(row).encode() + b"\n" for row in rows)
            return
        with pq.ParquetWriter(file, schema) as writer:
            rows = chain.from_iterable(groups)
            while part := list(islice(rows, _ROWS_PER_WRITE)):
                writer.write_table(pa.Table.from_pylist(part, schema=schema))


class ScoreTally:
    """Counts output rows. Keeps one number per scored response in memory."""

    def __init__(self, *, correct_reward: float) -> None:
        self._correct_reward = correct_reward
        self._sums: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._signals: Counter[str] = Counter()
        self._alignment = {True: array("d"), False: array("d")}  # by whether it is verified

    def counting(self, groups: Iterable[Sequence[OutputRow]]) -> Iterator[Sequence[OutputRow]]:
        """Pass the responses to each problem through and count them."""
        for rows in groups:
            self._add(rows)
            yield rows

    def _add(self, rows: Sequence[OutputRow]) -> None:
        outcomes = [self._correct_reward * row["eligible"] + row["penalty"] for row in rows]
        zero_std = {"before": len(set(outcomes)) == 1, "after": len({row["advantage"] for row in rows}) == 1}
        self._sums.update(zero_std | {"groups": 1, "responses": len(rows), "outcome": sum(outcomes)})
        self._sums.update({name: sum(row[name] for row in rows) for name in (*_FLAGS, "reward", "num_tokens")})
        self._statuses.update(row["status"] for row in rows)
        self._signals.update(row["signal"] for row in rows)
        for row in rows:
            if row["alignment"] is not None:
                self._alignment[row["verified"]].append(row["alignment"])

    def summary(self) -> dict[str, Any]:
        """Counts, means and quantiles as plain values, None if they are undefined.

        Alignment is given for all scored responses, for the verified ones, and for the others. `outcome_mean` and the
        zero-std groups `before` count the outcome alone, without bonuses.
        """
        sums, verified, others = self._sums, np.array(self._alignment[True]), np.array(self._alignment[False])
        scored = {"scored": np.concatenate([verified, others]), "verified": verified, "others": others}
        return {
            **{name: sums[name] for name in ("groups", "responses", *_FLAGS)},
            "tokens": sums["num_tokens"],
            "verification": {name: self._statuses[name] for name in Status if self._statuses[name]},
            "signal": {name: self._signals[name] for name in SignalStatus if self._signals[name]},
            "alignment": {name: _distribution(values) for name, values in scored.items()},
            **{f"{name}_mean": sums[name] / sums["responses"] for name in ("outcome", "reward")},
            "zero_std_group_fraction": {name: sums[name] / sums["groups"] for name in ("before", "after")},
        }


def _distribution(values: "np.ndarray[Any, np.dtype[np.float64]]") -> dict[str, Any]:
    quantiles = np.quantile(values, _QUANTILES).tolist() if len(values) else [None] * len(_QUANTILES)
    return {
        "count": len(values),
        "mean": float(values.mean()) if len(values) else None,
        "quantiles": {f"{quantile:g}": value for quantile, value in zip(_QUANTILES, quantiles, strict=True)},
    }
