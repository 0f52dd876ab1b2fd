"""The benchmarks of a job with their prompts, and what identifies them. Needs no model, and imports no torch."""

from dataclasses import dataclass, replace
from typing import Any

from gar import __version__
from gar.errors import ConfigError, DataError
from gar.evaluation.benchmarks.load import find_benchmark, load_benchmark
from gar.evaluation.benchmarks.prompts import benchmark_prompt, response_format
from gar.evaluation.job import GenerateJob, PromptForm
from gar.records.files import canonical_hash
from gar.types import Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSet:
    """The problems of a benchmark with their prompts before a chat template, in this form.

    `identity` is the part of `set.json` that is known without the model.
    """

    name: str
    form: PromptForm
    problems: tuple[Problem, ...]
    identity: dict[str, Any]


def load_sets(job: GenerateJob, *, largest_k: int = 1) -> list[EvaluationSet]:
    """Load the benchmarks of a job and make their prompts.

    Raises:
        ConfigError: No benchmark is named, or `largest_k` of pass@k is larger than a number of samples.
        DataError: As `load_benchmark`, or two sets have one name.
    """
    if not job.specs:
        raise ConfigError("name a benchmark: --benchmark NAME[,NAME]. `gar eval run --help` lists the known ones.")
    names = [find_benchmark(spec).name for spec in job.specs]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise DataError(f"two sets named {repeated[0]!r} would share a folder. Evaluate them apart.")
    sets = [_load(job, spec) for spec in job.specs]
    for each in sets:
        if largest_k > (number := each.identity["sampling"]["num_samples"]):
            raise ConfigError(
                f"pass@{largest_k} needs at least {largest_k} samples per problem, and {each.name} gets {number}. "
                "Raise --samples, or lower --pass-at-k."
            )
    return sets


def _load(job: GenerateJob, spec: str) -> EvaluationSet:
    loaded = load_benchmark(spec, limit=job.limit)
    benchmark = loaded.benchmark
    form = job.prompt or benchmark.form
    prompts = [benchmark_prompt(problem, form, benchmark) for problem in loaded.problems]
    sampling: dict[str, Any] = {
        "num_samples": job.num_samples(len(prompts)),
        "temperature": job.temperature,
        "top_p": job.top_p,
        "seed": job.seed,
    }
    if job.max_new_tokens is not None:
        sampling["max_new_tokens"] = job.max_new_tokens
    identity = {
        "gar": __version__,
        "benchmark": {
            "name": benchmark.name,
            "source": loaded.source,
            "revision": loaded.revision,
            "num_problems": len(prompts),
            "problems_sha256": loaded.sha256,
            "notes": list(loaded.notes),
        },
        "prompt": {"form": form, "format": response_format(form), "prompts_sha256": canonical_hash(prompts)},
        "sampling": sampling,
    }
    problems = [replace(problem, prompt=prompt) for problem, prompt in zip(loaded.problems, prompts, strict=True)]
    return EvaluationSet(name=benchmark.name, form=form, problems=tuple(problems), identity=identity)
