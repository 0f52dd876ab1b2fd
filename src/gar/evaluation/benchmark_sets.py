"""The problems and prompts of a benchmark, from the package, a local file with the published columns, or the Hub.

Needs no model, and imports no torch.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from gar import __version__
from gar.data.arithmetic import Split, load_arithmetic
from gar.data.problems import Reading
from gar.data.prompts import render_prompt
from gar.data.rows import FILE_SUFFIXES, iter_rows, row_place, source_name
from gar.data.schemas import SCHEMAS, read_problem
from gar.errors import ConfigError, DataError, did_you_mean
from gar.evaluation.benchmarks import BENCHMARKS, Benchmark
from gar.evaluation.job import GenerateJob, template_text
from gar.evaluation.metrics import check_ks
from gar.records.files import canonical_hash
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Problem, answer_format
from gar.verify.choices import LETTERS

_CLOSE = 0.8
"""Likeness of two names, at which one may be a slip for the other: aime-2062 and aime-2026."""
_LETTER = "The final answer is the letter of the right choice alone."


class EvaluationSet(NamedTuple):
    """The problems of a benchmark with their choices in the prompt, and the part of `set.json` known in advance."""

    problems: tuple[Problem, ...]
    identity: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedBenchmark:
    """A benchmark's problems in the order of the source, at least one, and where they came from.

    `source` is the file, the Hub id with the revision asked for, or "package" for the embedded task. `notes` are
    printed with every result.
    """

    benchmark: Benchmark
    problems: tuple[Problem, ...]
    source: str
    notes: tuple[str, ...]


def load_sets(job: GenerateJob, *, largest_k: int = 1) -> list[EvaluationSet]:
    """Load the benchmarks of a job and make their prompts.

    Raises:
        ConfigError: No benchmark is named, or `largest_k` of pass@k is larger than a number of samples.
        DataError: As `load_benchmark`, or two sets have one name.
    """
    specs = [spec for text in job.benchmark for spec in text.split(",") if spec]
    if not specs:
        raise ConfigError("name a benchmark: --benchmark NAME[,NAME]. `gar eval run --help` lists the known ones.")
    fields = SourceSettings(prompt_field=job.prompt_field, answer_field=job.answer_field)
    sets = [_evaluation_set(job, load_benchmark(spec, limit=job.limit, fields=fields)) for spec in specs]
    names = [each.identity["benchmark"]["name"] for each in sets]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise DataError(f"two sets named {repeated[0]!r} would share a folder. Evaluate them apart.")
    for name, each in zip(names, sets, strict=True):
        check_ks([largest_k], each.identity["sampling"]["num_samples"], name)
    return sets


def _evaluation_set(job: GenerateJob, loaded: LoadedBenchmark) -> EvaluationSet:
    template, number = job.template or loaded.benchmark.template, len(loaded.problems)
    # All that decides the samples and is known without a model. `generate` adds the model and the longest response.
    problems = tuple(_with_choices(problem) for problem in loaded.problems)
    sampling: dict[str, Any] = {
        "num_samples": job.num_samples(number),
        "temperature": job.temperature,
        "top_p": job.top_p,
        "seed": job.seed,
    }
    if job.max_new_tokens is not None:
        sampling["max_new_tokens"] = job.max_new_tokens
    identity = {
        "gar": __version__,
        "benchmark": {
            "name": loaded.benchmark.name,
            "source": loaded.source,
            "num_problems": number,
            "problems_sha256": problems_hash(loaded.problems),
            "notes": list(loaded.notes),
        },
        "prompt": {
            "template": template,
            "format": answer_format(template),
            "prompts_sha256": canonical_hash([render_prompt(each.prompt, template, chat=False) for each in problems]),
            "chat_template_kwargs": template_text(job.template_arguments),
        },
        "sampling": sampling,
    }
    return EvaluationSet(problems, identity)


def _with_choices(problem: Problem) -> Problem:
    if not problem.choices:
        return problem
    choices = [f"{letter}. {choice}" for letter, choice in zip(LETTERS, problem.choices, strict=False)]
    return replace(problem, prompt="\n".join([f"{problem.prompt}\n", *choices, "", _LETTER]))


def load_benchmark(spec: str, *, limit: int | None = None, fields: SourceSettings = DEFAULT_SOURCE) -> LoadedBenchmark:
    """Load the problems of one benchmark, and compare all of them with the published set.

    Args:
        spec: A name. `NAME@REVISION` for a commit, tag or branch of the Hub. `NAME=FILE` for a local file with the
            published columns. A file of problems in any schema that `gar data` reads, `NAME=FILE` to give it a name.
        limit: Use only the first problems, at most this many.
        fields: Columns of a file of problems.

    Raises:
        ConfigError: There is no such benchmark, or its columns are fixed.
        DataError: A row cannot be read, or the set cannot be loaded. The message has a remedy.
    """
    # 1. Find out what is named: an own file, the package's task, or a published set in a file or on the Hub.
    named, equals, file = spec.partition("=")
    name, at, revision = named.partition("@")
    benchmark, notes = BENCHMARKS.get(name), list[str]()
    own = file if equals and benchmark is None else named if not equals else ""
    if own.endswith(FILE_SUFFIXES):
        benchmark, reading = Benchmark(name=source_name(named), num_problems=0), Reading(own, fields)
        source, problems = own, list(reading)
        notes = [note for note in reading.notes() if "no expert solution" not in note]
        if near := did_you_mean(name, BENCHMARKS, cutoff=_CLOSE) if equals else "":
            notes.insert(0, f"{name} is no published benchmark, so {own} is read as your own file.{near}")
    elif benchmark is None:
        raise ConfigError(
            f"unknown benchmark '{name}'.{did_you_mean(name, BENCHMARKS)} Expected NAME=FILE, a file of problems, or "
            f"one of {', '.join(BENCHMARKS)}."
        )
    elif fields != DEFAULT_SOURCE:
        raise ConfigError(f"prompt_field and answer_field name columns of a file of problems, got '{spec}'.")
    elif benchmark.schema is None:
        if equals or at:
            raise ConfigError(f"{name} is part of the package: it has no file and no revision, got '{spec}'.")
        source, problems = "package", load_arithmetic(cast(Split, benchmark.split))
    elif equals:
        if not file.endswith(FILE_SUFFIXES):
            raise DataError(f"{file}: expected a name that ends in {', '.join(FILE_SUFFIXES)}.")
        source, problems = file, _read(iter_rows(file, torn_ids=benchmark.torn_ids), benchmark, file)
    else:
        source, problems = benchmark.hub_id + at + revision, _from_hub(benchmark, revision)
    # 2. Check the problems, all of them, and then take the first.
    if repeated := [name for name, count in Counter(problem.id for problem in problems).items() if count > 1]:
        raise DataError(f"{source}: the problem id {repeated[0]!r} is used twice. Were two files joined?")
    if not problems:
        raise DataError(f"{source}: no rows. Was the file written to the end, and is it the right one?")
    chosen = tuple(problems[:limit])
    notes += _notes(benchmark, problems, chosen)
    return LoadedBenchmark(benchmark=benchmark, problems=chosen, source=source, notes=tuple(notes))


def problems_hash(problems: Sequence[Problem]) -> str:
    """SHA-256 of ids, prompts, choices and answers: the same for a file and for the Hub."""
    return canonical_hash([[each.id, each.prompt, list(each.choices), each.answer] for each in problems])


def _notes(benchmark: Benchmark, problems: Sequence[Problem], chosen: Sequence[Problem]) -> list[str]:
    """What a reader of the numbers must know about the problems. Rejects problems of another benchmark."""
    whole = problems_hash(problems)
    published_as = next((each.name for each in BENCHMARKS.values() if each.problems_hash == whole), benchmark.name)
    if benchmark.schema and published_as != benchmark.name:
        raise DataError(f"these are the problems of {published_as}, not of {benchmark.name}. Use that name.")
    notes = [benchmark.note] if benchmark.note else []
    if benchmark.problems_hash and whole != benchmark.problems_hash:
        notes.append(f"The problems differ from those published as {benchmark.name}.")
    if benchmark.num_problems and len(problems) != benchmark.num_problems:
        notes.append(f"{len(problems)} problems, but {benchmark.num_problems} were published.")
    if len(chosen) < len(problems):
        notes.append(f"The first {len(chosen)} of {len(problems)} problems.")
    return notes


def _read(rows: Iterable[tuple[int, Mapping[str, Any]]], benchmark: Benchmark, source: str) -> list[Problem]:
    """Rows with the published columns as problems. The hash of the prompt replaces a missing id."""
    schema, problems = SCHEMAS[str(benchmark.schema)], []
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


def _from_hub(benchmark: Benchmark, revision: str) -> list[Problem]:
    name, hub_id = benchmark.name, benchmark.hub_id
    columns = ", ".join(SCHEMAS[str(benchmark.schema)].required)
    advice = f"{benchmark.access} Or --benchmark {name}=FILE, with the columns {columns}.".strip()
    if not hub_id:
        raise DataError(f"{name} is not loaded from the Hub. {advice}")
    try:
        rows = list(iter_rows(hub_id, split=benchmark.split, subset=benchmark.subset, revision=revision or None))
    except DataError as error:
        download = f"hf download --repo-type dataset {hub_id} --local-dir {name}"
        raise DataError(f"{error}\n{advice} On a machine with a network `{download}` gets such a file.") from error
    return _read(rows, benchmark, hub_id)
