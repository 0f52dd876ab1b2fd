"""The benchmarks of a job with their prompts, and what identifies them. Needs no model, and imports no torch."""

from dataclasses import dataclass, replace
from typing import Any

from gar import __version__
from gar.data.prompts import PromptTemplate, render_prompt
from gar.errors import ConfigError, DataError
from gar.evaluation.benchmarks.load import find_benchmark, load_benchmark
from gar.evaluation.job import GenerateJob
from gar.evaluation.metrics import check_ks
from gar.records.files import canonical_hash
from gar.types import Problem
from gar.verify.choices import LETTERS

_LETTER = "The final answer is the letter of the right choice alone."


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSet:
    """The problems of a benchmark, with their choices in the prompt, and the template that completes the prompts.

    `identity` is the part of `set.json` that is known without the model.
    """

    name: str
    template: PromptTemplate
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
        check_ks([largest_k], each.identity["sampling"]["num_samples"], each.name)
    return sets


def _load(job: GenerateJob, spec: str) -> EvaluationSet:
    loaded = load_benchmark(spec, limit=job.limit)
    benchmark = loaded.benchmark
    template = job.template or benchmark.template
    problems = tuple(_with_choices(problem) for problem in loaded.problems)
    prompts = [render_prompt(problem.prompt, template, chat=False) for problem in problems]
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
            "num_problems": len(prompts),
            "problems_sha256": loaded.sha256,
            "notes": list(loaded.notes),
        },
        "prompt": {
            "template": template,
            "format": "boxed" if template == "boxed" else "think-answer",
            "prompts_sha256": canonical_hash(prompts),
        },
        "sampling": sampling,
    }
    return EvaluationSet(name=benchmark.name, template=template, problems=problems, identity=identity)


def _with_choices(problem: Problem) -> Problem:
    if not problem.choices:
        return problem
    choices = [f"{letter}. {choice}" for letter, choice in zip(LETTERS, problem.choices, strict=False)]
    return replace(problem, prompt="\n".join([f"{problem.prompt}\n", *choices, "", _LETTER]))
