"""`gar eval generate`: write every sample of every problem into an append-only file. A kill loses and repeats none.

Problems and settings alone decide the batches and their seeds. A batch that was cut off by a kill is drawn
again, and only its missing samples are added, so that the file is the same as without the kill.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from gar import __version__
from gar.errors import DataError
from gar.evaluation.benchmarks import LoadedBenchmark, load_benchmark, response_format
from gar.evaluation.benchmarks.prompts import benchmark_prompt, default_form, policy_prompt
from gar.evaluation.engines import SamplingEngine, load_engine
from gar.evaluation.evaluate import encode_prompts
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.job import GenerateJob, PromptForm
from gar.models.load import load_tokenizer
from gar.records.files import canonical_hash
from gar.rollouts.generate import encode_prompt
from gar.types import Prompt, Tags

DEFAULT_MAX_NEW_TOKENS = 8192

Sample = tuple[int, int]
"""The position of a problem, and the number of the sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSet:
    """A benchmark, the form of its prompts, and the prompts before a chat template, one per problem."""

    loaded: LoadedBenchmark
    form: PromptForm
    prompts: tuple[Prompt, ...]

    @property
    def name(self) -> str:
        """The name of the benchmark."""
        return self.loaded.benchmark.name


def load_sets(job: GenerateJob) -> list[EvaluationSet]:
    """Load the benchmarks of a job and make their prompts. Needs no model. Raises as `load_benchmark`."""
    sets: dict[str, EvaluationSet] = {}
    for spec in job.specs:
        loaded = load_benchmark(spec, limit=job.limit)
        benchmark = loaded.benchmark
        if benchmark.name in sets:
            raise DataError(f"two sets named {benchmark.name!r} would share a folder. Evaluate them apart.")
        form = job.prompt or default_form(benchmark)
        prompts = tuple(benchmark_prompt(problem, form, benchmark) for problem in loaded.problems)
        sets[benchmark.name] = EvaluationSet(loaded=loaded, form=form, prompts=prompts)
    return list(sets.values())


def generate(job: GenerateJob) -> list[EvaluationFolder]:
    """Draw the missing samples of every benchmark of a job, and return the folders, one per benchmark, complete.

    Raises:
        ConfigError: A setting is wrong, or a folder holds an evaluation with other settings.
        DataError: A benchmark cannot be loaded, or a prompt does not fit into the context.
        ModelError: The model cannot be loaded or sampled from.
        RecordError: A file cannot be read or written. What was finished is kept.
    """
    sets = load_sets(job)
    folders = [EvaluationFolder(job.folder() / evaluation_set.name) for evaluation_set in sets]
    for evaluation_set, folder in zip(sets, folders, strict=True):
        if not job.overwrite:
            folder.output.refuse_other(known_identity(job, evaluation_set))  # before a model is loaded
    engine = load_engine(job)
    model = {"path": job.model, "revision": job.revision} | dict(engine.identity())
    for evaluation_set, folder in zip(sets, folders, strict=True):
        with folder.alone():
            _generate_set(job, evaluation_set, folder, engine, model)
    return folders


def _generate_set(
    job: GenerateJob,
    evaluation_set: EvaluationSet,
    folder: EvaluationFolder,
    engine: SamplingEngine,
    model: dict[str, Any],
) -> None:
    """Draw the missing samples of one benchmark."""
    problems, chat = evaluation_set.loaded.problems, bool(engine.tokenizer.chat_template)
    asked = [policy_prompt(prompt, evaluation_set.form, chat=chat) for prompt in evaluation_set.prompts]
    prompt_ids, prefilled = encode_prompts(engine.tokenizer, asked, Tags())
    lengths = [len(ids) for ids in prompt_ids]
    identity = known_identity(job, evaluation_set) | {"model": model}
    sampling = identity["sampling"]
    sampling["max_new_tokens"] = _max_new_tokens(job, engine.context, max(lengths), evaluation_set.name)
    lines = (
        {
            "id": problem.id,
            "prompt": prompt,
            "answer": problem.answer,
            "num_choices": len(problem.choices),
            "category": problem.source,
        }
        for problem, prompt in zip(problems, evaluation_set.prompts, strict=True)
    )
    folder.begin(identity, lines, overwrite=job.overwrite)
    places = {problem.id: i for i, problem in enumerate(problems)}
    done = {(places[line["problem"]], line["sample"]) for line in folder.responses}
    total = len(problems) * sampling["num_samples"]
    with tqdm(total=total, initial=len(done), desc=evaluation_set.name, unit=" samples", disable=None) as bar:
        for batch in plan_batches(lengths, sampling["num_samples"], job.batch_size):
            if done.issuperset(batch):
                continue
            seed = batch_seed(sampling["seed"], evaluation_set.loaded.sha256, batch)
            responses = engine.respond(
                [prompt_ids[i] for i, _ in batch],
                max_new_tokens=sampling["max_new_tokens"],
                temperature=sampling["temperature"],
                top_p=sampling["top_p"],
                seed=seed,
            )
            new = [
                {
                    "problem": problems[i].id,
                    "sample": number,
                    "text": response.text,
                    "tokens": response.ids,
                    "stop": "length" if response.truncated else "end",
                    "seed": seed,
                    "prefilled_think": prefilled[i],
                }
                for (i, number), response in zip(batch, responses, strict=True)
                if (i, number) not in done
            ]
            folder.responses.append(new)
            bar.update(len(new))
    folder.finish()


def plan_batches(prompt_lengths: Sequence[int], num_samples: int, batch_size: int) -> Iterator[list[Sample]]:
    """All samples in batches, the longest prompts first, so that running out of memory happens early.

    A batch that is at least half full ends where the prompt length changes. Most batches then need no padding.
    """
    order = sorted(range(len(prompt_lengths)), key=lambda i: -prompt_lengths[i])
    batch: list[Sample] = []
    for i in order:
        for sample in range(num_samples):
            changes = bool(batch) and prompt_lengths[batch[-1][0]] != prompt_lengths[i]
            if len(batch) == batch_size or (changes and 2 * len(batch) >= batch_size):
                yield batch
                batch = []
            batch.append((i, sample))
    if batch:
        yield batch


def batch_seed(seed: int, set_hash: str, batch: Sequence[Sample]) -> int:
    """The seed of a batch, different for every batch, set and seed. Below 2^48, which JSON readers keep exactly."""
    text = f"{seed} {set_hash} {batch[0]} {batch[-1]}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest())


def known_identity(job: GenerateJob, evaluation_set: EvaluationSet) -> dict[str, Any]:
    """The part of `set.json` that is known without the model."""
    loaded, form = evaluation_set.loaded, evaluation_set.form
    sampling: dict[str, Any] = {
        "num_samples": job.num_samples(len(loaded.problems)),
        "temperature": job.temperature,
        "top_p": job.top_p,
        "seed": job.seed,
    }
    if job.max_new_tokens is not None:
        sampling["max_new_tokens"] = job.max_new_tokens
    return {
        "gar": __version__,
        "benchmark": {
            "name": evaluation_set.name,
            "title": loaded.benchmark.title,
            "source": loaded.source,
            "revision": loaded.revision,
            "num_problems": len(loaded.problems),
            "problems_sha256": loaded.sha256,
            "notes": list(loaded.notes),
        },
        "prompt": {
            "form": form,
            "format": response_format(form),
            "prompts_sha256": canonical_hash(list(evaluation_set.prompts)),
        },
        "sampling": sampling,
    }


def _max_new_tokens(job: GenerateJob, context: int | None, longest_prompt: int, name: str) -> int:
    if job.max_new_tokens is not None:
        return job.max_new_tokens
    if context is None:
        return DEFAULT_MAX_NEW_TOKENS
    if context <= longest_prompt:
        raise DataError(
            f"{name}: the longest prompt has {longest_prompt} tokens, and the model's context only {context}. "
            "Is it the right model? A shorter --prompt may help."
        )
    return min(DEFAULT_MAX_NEW_TOKENS, context - longest_prompt)


def rendered_prompts(job: GenerateJob) -> Iterator[tuple[str, PromptForm, str]]:
    """Name, form and first prompt of each benchmark as the model sees it, with chat template and special tokens."""
    sets = load_sets(job)
    tokenizer = load_tokenizer(job.model, job.revision)
    for each in sets:
        prompt = policy_prompt(each.prompts[0], each.form, chat=bool(tokenizer.chat_template))
        yield each.name, each.form, tokenizer.decode(encode_prompt(tokenizer, prompt), skip_special_tokens=False)
