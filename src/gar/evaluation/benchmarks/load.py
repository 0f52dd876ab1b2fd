"""Find the problems of a benchmark: in the package, in a local file with the published columns, or on the Hub."""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from gar.data.arithmetic import Split, load_arithmetic
from gar.data.problems import load_problems
from gar.data.rows import FILE_SUFFIXES, iter_rows, row_place, source_name
from gar.data.schemas import SCHEMAS, ColumnSchema, read_problem
from gar.errors import ConfigError, DataError
from gar.evaluation.benchmarks.registry import BENCHMARKS, Benchmark
from gar.records.files import canonical_hash
from gar.types import Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedBenchmark:
    """A benchmark's problems in the order of the source, at least one, and where they came from.

    `source` is the file or the Hub id, "package" for the embedded task. `revision` is the commit of the Hub, or that
    asked for. `sha256` is `problems_hash`. `notes` are printed with every result.
    """

    benchmark: Benchmark
    problems: tuple[Problem, ...]
    source: str
    revision: str | None
    sha256: str
    notes: tuple[str, ...]


def find_benchmark(spec: str) -> Benchmark | None:
    """The benchmark that `spec` names, as in `load_benchmark`. None for a file of problems. Reads nothing."""
    name, equals, _ = spec.partition("=")
    if not equals and name.endswith(FILE_SUFFIXES):
        return None
    name, at, _ = name.partition("@")
    if name not in BENCHMARKS:
        near = difflib.get_close_matches(name, BENCHMARKS, n=1)
        raise ConfigError(
            f"unknown benchmark '{name}'{f', did you mean {near[0]!r}?' if near else '.'} Expected NAME=FILE, a file "
            f"of problems, or one of {', '.join(BENCHMARKS)}."
        )
    if BENCHMARKS[name].schema is None and (equals or at):
        raise ConfigError(f"{name} is part of the package: it has no file and no revision, got '{spec}'.")
    return BENCHMARKS[name]


def load_benchmark(spec: str, *, limit: int | None = None) -> LoadedBenchmark:
    """Load the problems of one benchmark.

    Args:
        spec: A name. `NAME@REVISION` for a commit, tag or branch of the Hub. `NAME=FILE` for a local file with the
            published columns, or a file of problems in any schema that `gar data` reads.
        limit: Use only the first problems, at most this many.

    Raises:
        ConfigError: There is no such benchmark.
        DataError: A row cannot be read, or the set cannot be loaded. Says what to do.
    """
    benchmark = find_benchmark(spec)
    name, equals, file = spec.partition("=")
    if benchmark is None:
        read = load_problems(spec)
        benchmark = Benchmark(name=source_name(spec), title=source_name(spec), num_problems=0)
        notes = [note for note in read.notes if "anchor" not in note]
        return _loaded(benchmark, read.problems, limit, source=spec, notes=notes)
    if benchmark.schema is None:
        return _loaded(benchmark, load_arithmetic(cast(Split, benchmark.split)), limit, source="package")
    if not equals:
        problems, commit = _from_hub(benchmark, SCHEMAS[benchmark.schema], name.partition("@")[2] or None)
        return _loaded(benchmark, problems, limit, source=benchmark.hub_id, revision=commit)
    if not file.endswith(FILE_SUFFIXES):
        raise DataError(f"{file}: expected a file whose name ends in {', '.join(FILE_SUFFIXES)}.")
    rows = iter_rows(file, torn_ids=benchmark.torn_ids)
    return _loaded(benchmark, _read(rows, SCHEMAS[benchmark.schema], file), limit, source=file)


def problems_hash(problems: Sequence[Problem]) -> str:
    """SHA-256 of ids, prompts, choices and answers: the same for a file and for the Hub."""
    return canonical_hash([[each.id, each.prompt, list(each.choices), each.answer] for each in problems])


def _loaded(
    benchmark: Benchmark,
    problems: Sequence[Problem],
    limit: int | None,
    *,
    source: str,
    revision: str | None = None,
    notes: Sequence[str] = (),
) -> LoadedBenchmark:
    """The first problems. All of them are compared with the published set."""
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


def _read(rows: Iterable[tuple[int, Mapping[str, Any]]], schema: ColumnSchema, source: str) -> list[Problem]:
    """Rows with the published columns as problems. The hash of the prompt stands in for an id that is missing."""
    problems = []
    for number, row in rows:
        place = row_place(source, number)
        if missing := [name for name in schema.required if name not in row]:
            raise DataError(
                f"{place}: no column {', '.join(map(repr, missing))}, found {', '.join(map(repr, row))}. Expected the "
                f"published columns {', '.join(schema.required)}. Is it a file of another benchmark?"
            )
        problem = read_problem(dict(row), schema, place=place, default_id="", default_source="")
        if isinstance(problem, str):
            raise DataError(f"{place}: {problem}.")
        prompt = problem.prompt.strip() if isinstance(problem.prompt, str) else problem.prompt
        problems.append(replace(problem, id=problem.id or canonical_hash(prompt)[:12], prompt=prompt))
    return problems


def _from_hub(benchmark: Benchmark, schema: ColumnSchema, revision: str | None) -> tuple[list[Problem], str | None]:
    """The problems and their commit."""
    if not benchmark.hub_id:
        raise DataError(
            f"{benchmark.name} is not loaded from the Hub. {benchmark.instead}. Download it, then "
            f"--benchmark {benchmark.name}=FILE with the columns {', '.join(schema.required)}."
        )
    try:
        commit = _commit(benchmark.hub_id, revision)
        rows = iter_rows(benchmark.hub_id, split=benchmark.split, subset=benchmark.subset, revision=commit or revision)
        return _read(rows, schema, benchmark.hub_id), commit or revision
    except DataError as error:
        if str(error).startswith(f"{benchmark.hub_id} row "):
            raise
        raise DataError(f"{error}\n{_advice(benchmark, schema)}") from error


def _commit(hub_id: str, revision: str | None) -> str | None:
    """The current commit of a branch or tag. None if the Hub does not report it."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return HfApi().dataset_info(hub_id, revision=revision).sha
    # OSError, and the base of the HTTP library's errors.
    except (*HfHubHTTPError.__bases__, ValueError):  # pyright: ignore[reportGeneralTypeIssues]
        return None  # the load itself will fail with a better message


def _advice(benchmark: Benchmark, schema: ColumnSchema) -> str:
    """How to get a set that cannot be loaded."""
    gated = (
        f"{benchmark.title} is gated: agree to its terms at https://huggingface.co/datasets/{benchmark.hub_id}, then "
        "log in once with `hf auth login`. "
    )
    return (gated if benchmark.gated else "") + (
        "Without a network here: on a machine with one, `hf download --repo-type dataset "
        f"{benchmark.hub_id} --local-dir {benchmark.name}`, copy the file, then --benchmark {benchmark.name}=FILE "
        f"(.jsonl, .parquet or .csv) with the columns {', '.join(schema.required)}."
    )
