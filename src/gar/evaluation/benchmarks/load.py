"""Find the problems of a benchmark: in the package, in a local file with the published columns, or on the Hub."""

import csv
import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gar.data.arithmetic import Split, load_arithmetic
from gar.data.problems import load_problems
from gar.data.rows import iter_rows, row_place, source_name
from gar.errors import ConfigError, DataError
from gar.evaluation.benchmarks.columns import BenchmarkProblem, Columns, problems_hash, read_row
from gar.evaluation.benchmarks.registry import BENCHMARKS, Benchmark

_FILE_SUFFIXES = (".jsonl", ".ndjson", ".parquet", ".pq", ".csv")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedBenchmark:
    """A benchmark's problems, and where they came from.

    Attributes:
        benchmark: The benchmark.
        problems: In the order of the source, at least one.
        source: The file or the Hub id. "package" for the embedded task.
        revision: The commit of the Hub, or the revision that was asked for.
        sha256: `problems_hash` of the problems.
        notes: Notes to print with every result.
    """

    benchmark: Benchmark
    problems: tuple[BenchmarkProblem, ...]
    source: str
    revision: str | None
    sha256: str
    notes: tuple[str, ...]


def find_benchmark(spec: str) -> Benchmark | None:
    """The benchmark that `spec` names, as in `load_benchmark`. None for a file of problems. Reads nothing.

    Raises:
        ConfigError: There is no such benchmark, or it has no file and no revision.
    """
    name, equals, _ = spec.partition("=")
    if not equals and name.endswith(_FILE_SUFFIXES):
        return None
    name, at, _ = name.partition("@")
    if name not in BENCHMARKS:
        near = difflib.get_close_matches(name, BENCHMARKS, n=1)
        raise ConfigError(
            f"unknown benchmark '{name}'{f', did you mean {near[0]!r}?' if near else '.'} Expected one of "
            f"{', '.join(BENCHMARKS)}; or NAME=FILE; or a file of problems."
        )
    if BENCHMARKS[name].columns is None and (equals or at):
        raise ConfigError(f"{name} is part of the package: it has no file and no revision, got '{spec}'.")
    return BENCHMARKS[name]


def load_benchmark(spec: str, *, limit: int | None = None) -> LoadedBenchmark:
    """Load the problems of one benchmark.

    Args:
        spec: A name. `NAME@REVISION` for a commit, tag or branch of the Hub. `NAME=FILE` for a local .jsonl, .parquet
            or .csv with the published columns, or a file of problems in any schema that `gar data` reads.
        limit: Use only the first problems, at most this many.

    Raises:
        ConfigError: There is no such benchmark.
        DataError: A row cannot be read, or the set cannot be loaded. Says what to do.
    """
    benchmark = find_benchmark(spec)
    if benchmark is None:
        return _own_file(spec, limit)
    name, equals, file = spec.partition("=")
    if benchmark.columns is None:
        task = load_arithmetic(cast(Split, benchmark.split))
        problems = [BenchmarkProblem(id=row.id, question=row.prompt, answer=row.answer) for row in task]
        return _loaded(benchmark, problems, limit, source="package")
    if equals:
        problems = _read(_file_rows(file, benchmark.torn_ids), benchmark.columns)
        return _loaded(benchmark, problems, limit, source=file)
    problems, commit = _from_hub(benchmark, benchmark.columns, name.partition("@")[2] or None)
    return _loaded(benchmark, problems, limit, source=benchmark.hub_id, revision=commit)


def _own_file(file: str, limit: int | None) -> LoadedBenchmark:
    """A file of problems in any schema that `gar data` reads."""
    if file.endswith(".csv"):
        raise ConfigError(f"{file}: a .csv is read as a benchmark with published columns: --benchmark NAME={file}.")
    read = load_problems(file)
    problems = [
        BenchmarkProblem(id=row.id, question=row.prompt, answer=row.answer, category=row.source)
        for row in read.problems
    ]
    benchmark = Benchmark(name=source_name(file), title=source_name(file), num_problems=0, columns=None)
    notes = [note for note in read.notes if "anchor" not in note]
    return _loaded(benchmark, problems, limit, source=file, notes=notes)


def _loaded(
    benchmark: Benchmark,
    problems: Sequence[BenchmarkProblem],
    limit: int | None,
    *,
    source: str,
    revision: str | None = None,
    notes: Sequence[str] = (),
) -> LoadedBenchmark:
    """The first problems, after a check of all of them against the published ones."""
    repeated = [name for name, count in Counter(problem.id for problem in problems).items() if count > 1]
    if repeated:
        raise DataError(f"{source}: the problem id {repeated[0]!r} is used twice. Were two files joined?")
    if not problems:
        raise DataError(f"{source}: no rows. Was the file written to the end, and is it the right one?")
    whole = problems_hash(problems)
    if whole == benchmark.not_hash:
        raise DataError(f"{source} holds another version of the set than {benchmark.name}. Use that version's name.")
    notes = [*notes, benchmark.note] if benchmark.note else [*notes]
    if benchmark.problems_hash and whole != benchmark.problems_hash:
        notes.append(f"The problems differ from those published as {benchmark.title}.")
    if benchmark.num_problems and len(problems) != benchmark.num_problems:
        notes.append(f"{len(problems)} problems, but {benchmark.num_problems} were published.")
    chosen = tuple(problems[:limit])
    if len(chosen) < len(problems):
        notes.append(f"The first {len(chosen)} of {len(problems)} problems.")
    notes += [f"{problem.id}: {why}." for problem in chosen if (why := benchmark.bad_answers.get(problem.id))]
    return LoadedBenchmark(
        benchmark=benchmark,
        problems=chosen,
        source=source,
        revision=revision,
        sha256=problems_hash(chosen),
        notes=tuple(notes),
    )


def _read(rows: Iterator[tuple[str, dict[str, Any]]], columns: Columns) -> list[BenchmarkProblem]:
    return [read_row(row, columns, place) for place, row in rows]


def _file_rows(file: str, torn_ids: frozenset[str] = frozenset()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a local file, each with its place. A CSV row with one of `torn_ids` may lack fields."""
    if not file.endswith(_FILE_SUFFIXES):
        raise DataError(f"{file}: expected a file whose name ends in {', '.join(_FILE_SUFFIXES)}.")
    if not file.endswith(".csv"):
        for number, row in iter_rows(file):
            yield row_place(file, number), row
        return
    try:
        with Path(file).open(encoding="utf-8-sig", newline="") as text:
            for number, row in enumerate(csv.DictReader(text), start=1):
                if (None in row or None in row.values()) and not torn_ids & set(map(str, row.values())):
                    raise DataError(f"{file} row {number}: more or fewer fields than the first line names.")
                yield f"{file} row {number}", row
    except FileNotFoundError:
        raise DataError(f"{file}: no such file.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: cannot be read as CSV: {error}") from error


def _from_hub(
    benchmark: Benchmark, columns: Columns, revision: str | None, *, split: str | None = None
) -> tuple[list[BenchmarkProblem], str | None]:
    """The problems, and the commit they are of."""
    if not benchmark.hub_id:
        raise DataError(
            f"{benchmark.name} is not loaded from the Hub. {benchmark.instead}. Download it, then "
            f"--benchmark {benchmark.name}=FILE with the columns {', '.join(columns.required)}."
        )
    try:
        commit = _commit(benchmark.hub_id, revision)
        rows = iter_rows(
            benchmark.hub_id, split=split or benchmark.split, subset=benchmark.subset, revision=commit or revision
        )
        places = ((f"{benchmark.hub_id} row {number}", row) for number, row in rows)
        return _read(places, columns), commit or revision
    except DataError as error:
        if str(error).startswith(f"{benchmark.hub_id} row "):
            raise
        raise DataError(f"{error}\n{_advice(benchmark, columns)}") from error


def _commit(hub_id: str, revision: str | None) -> str | None:
    """The commit that a branch or tag stands for now. None if the Hub does not say."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return HfApi().dataset_info(hub_id, revision=revision).sha
    # OSError, and the base of the HTTP library's errors.
    except (*HfHubHTTPError.__bases__, ValueError):  # pyright: ignore[reportGeneralTypeIssues]
        return None  # the load itself will fail with a better message


def _advice(benchmark: Benchmark, columns: Columns) -> str:
    """How to get a set that cannot be loaded."""
    steps = []
    if benchmark.gated:
        steps.append(
            f"{benchmark.title} is gated: agree to its terms at https://huggingface.co/datasets/{benchmark.hub_id}, "
            "then log in once with `hf auth login`."
        )
    steps.append(
        "Without a network here: on a machine with one, `hf download --repo-type dataset "
        f"{benchmark.hub_id} --local-dir {benchmark.name}`, copy the file, then --benchmark {benchmark.name}=FILE "
        f"(.jsonl, .parquet or .csv) with the columns {', '.join(columns.required)}."
    )
    return " ".join(steps)
