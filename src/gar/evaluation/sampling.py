"""`gar eval generate`: every sample of every problem into an append-only file. A killed run loses and repeats none.

The samples are drawn in batches whose make-up and seeds follow from the problems and the settings alone. A batch that a
kill tore is drawn again as it was, and what the file lacks is added: the file comes out the same as without a kill.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from gar import __version__
from gar.errors import DataError, RecordError
from gar.evaluation.benchmarks import LoadedBenchmark, load_benchmark, load_shots, response_format
from gar.evaluation.benchmarks.prompts import benchmark_prompt, default_form, policy_prompt
from gar.evaluation.engines import Engine, load_engine
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.job import GenerateJob, PromptForm
from gar.models.load import load_tokenizer
from gar.records.files import canonical_hash
from gar.records.resumable import Line
from gar.rollouts.generate import encode_prompt
from gar.spans import ends_in_thinking_tag, token_pieces
from gar.types import Prompt, Tags

DEFAULT_MAX_NEW_TOKENS = 8192
_HEX_DIGITS_OF_HASH = 16

Sample = tuple[int, int]
"""Which problem, which of its samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSet:
    """A benchmark with the prompts that are made of it, before a model is known.

    Attributes:
        loaded: The problems and their source.
        form: The form of the prompts.
        prompts: One per problem, before a chat template.
    """

    loaded: LoadedBenchmark
    form: PromptForm
    prompts: tuple[Prompt, ...]

    @property
    def name(self) -> str:
        """Of the benchmark."""
        return self.loaded.benchmark.name


def load_sets(job: GenerateJob) -> list[EvaluationSet]:
    """The benchmarks of a job with their prompts. Needs no model.

    Raises:
        ConfigError: A benchmark is unknown or named twice, or the form does not fit it.
        DataError: A set cannot be had, or a row is not what it should be.
    """
    sets: list[EvaluationSet] = []
    for spec in job.specs:
        loaded = load_benchmark(spec, limit=job.limit)
        if any(each.name == loaded.benchmark.name for each in sets):
            raise DataError(f"two sets named {loaded.benchmark.name!r} would share a folder; evaluate them apart.")
        form = job.prompt or default_form(loaded.benchmark)
        shots = load_shots(loaded.benchmark, job.shots, loaded.revision) if form == "five-shot" else None
        prompts = tuple(benchmark_prompt(each, form, loaded.benchmark, shots) for each in loaded.problems)
        sets.append(EvaluationSet(loaded=loaded, form=form, prompts=prompts))
    return sets


def generate(job: GenerateJob) -> list[EvaluationFolder]:
    """Sample what is not there yet of every benchmark of a job.

    Returns:
        The folders, one per benchmark, complete.

    Raises:
        ConfigError: A setting is wrong, or a folder holds an evaluation with other settings.
        DataError: A benchmark cannot be had, or a prompt does not fit into the context.
        ModelError: The model cannot be loaded or sampled from.
        RecordError: A file cannot be written. What was finished is kept.
    """
    sets = load_sets(job)
    folders = [EvaluationFolder(job.folder() / each.name) for each in sets]
    for each, folder in zip(sets, folders, strict=True):
        if not job.overwrite:
            folder.output.refuse_other(known_identity(job, each))  # before a model is loaded
    engine = load_engine(job)
    model = {"name": job.model, "revision": job.revision} | dict(engine.identity())
    for each, folder in zip(sets, folders, strict=True):
        with folder.alone():
            _generate_set(job, each, folder, engine, model)
    return folders


def _generate_set(
    job: GenerateJob, each: EvaluationSet, folder: EvaluationFolder, engine: Engine, model: dict[str, Any]
) -> None:
    """All samples of one benchmark."""
    chat = bool(engine.tokenizer.chat_template)
    seen = [policy_prompt(prompt, each.form, chat=chat) for prompt in each.prompts]
    prompt_ids = [encode_prompt(engine.tokenizer, prompt) for prompt in seen]
    identity = known_identity(job, each) | {"model": model}
    sampling = identity["sampling"]
    sampling["max_new_tokens"] = _max_new_tokens(job, engine.context, max(map(len, prompt_ids)), each.name)
    folder.begin(identity, problem_lines(each), overwrite=job.overwrite)
    ids = [problem.id for problem in each.loaded.problems]
    place = {problem: i for i, problem in enumerate(ids)}
    done: set[Sample] = set()
    for line in folder.samples:
        if line["problem"] not in place:
            raise RecordError(f"{folder.samples.path}: {line['problem']!r} is no problem of {each.name}.")
        done.add((place[line["problem"]], line["sample"]))
    pieces = token_pieces(engine.tokenizer)
    prefilled = [ends_in_thinking_tag(one, pieces, Tags()) for one in prompt_ids]
    total = len(ids) * sampling["num_samples"]
    with tqdm(total=total, initial=len(done), desc=each.name, unit=" samples", disable=None) as bar:
        for batch in plan_batches([len(one) for one in prompt_ids], sampling["num_samples"], job.batch_size):
            if done.issuperset(batch):
                continue
            seed = batch_seed(sampling["seed"], each.loaded.sha256, batch)
            responses = engine.respond(
                [prompt_ids[i] for i, _ in batch],
                max_new_tokens=sampling["max_new_tokens"],
                temperature=sampling["temperature"],
                top_p=sampling["top_p"],
                seed=seed,
            )
            lines: list[Line] = [
                {
                    "problem": ids[i],
                    "sample": sample,
                    "text": response.text,
                    "tokens": response.ids,
                    "stop": "length" if response.truncated else "end",
                    "seed": seed,
                    "prompt_hash": _prompt_hash(each.prompts[i]),
                    "prefilled_think": prefilled[i],
                }
                for (i, sample), response in zip(batch, responses, strict=True)
                if (i, sample) not in done
            ]
            folder.samples.append(lines)
            bar.update(len(lines))


def plan_batches(prompt_lengths: Sequence[int], num_samples: int, batch_size: int) -> Iterator[list[Sample]]:
    """All samples in batches, the longest prompts first, so that a batch that is too large fails at once.

    A batch ends early where the prompt length changes and it is at least half full: its prompts then are of one length
    and need no padding.

    Args:
        prompt_lengths: Tokens of each prompt.
        num_samples: Per problem.
        batch_size: Most samples in a batch.

    Yields:
        Each batch; every sample is in one of them.
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
    """The seed of a batch: another one for every batch, set and seed. Below 2^48, which any JSON reader keeps exact."""
    text = f"{seed} {set_hash} {batch[0]} {batch[-1]}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest())


def known_identity(job: GenerateJob, each: EvaluationSet) -> dict[str, Any]:
    """What `set.json` says, as much of it as is known without the model."""
    loaded = each.loaded
    greedy = each.form == "five-shot" and job.temperature is None
    sampling: dict[str, Any] = {
        "num_samples": job.num_samples(len(loaded.problems)),
        "temperature": 0.0 if greedy else 1.0 if job.temperature is None else job.temperature,
        "top_p": job.top_p,
        "seed": job.seed,
    }
    if job.max_new_tokens is not None:
        sampling["max_new_tokens"] = job.max_new_tokens
    return {
        "gar": __version__,
        "benchmark": {
            "name": each.name,
            "title": loaded.benchmark.title,
            "source": loaded.source,
            "revision": loaded.revision,
            "num_problems": len(loaded.problems),
            "problems_sha256": loaded.sha256,
            "notes": list(loaded.notes),
        },
        "prompt": {
            "form": each.form,
            "format": response_format(each.form),
            "prompts_sha256": canonical_hash(list(each.prompts)),
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


def problem_lines(each: EvaluationSet) -> Iterator[Line]:
    """The lines of `problems.jsonl`."""
    for problem, prompt in zip(each.loaded.problems, each.prompts, strict=True):
        yield {
            "id": problem.id,
            "prompt": prompt,
            "prompt_hash": _prompt_hash(prompt),
            "answer": problem.answer,
            "num_choices": len(problem.choices),
            "category": problem.category,
        }


def _prompt_hash(prompt: Prompt) -> str:
    return canonical_hash(prompt)[:_HEX_DIGITS_OF_HASH]


def rendered_prompts(job: GenerateJob) -> Iterator[tuple[str, PromptForm, str]]:
    """The first prompt of each benchmark as the model sees it, chat template and special tokens included.

    Yields:
        The benchmark's name, the form, the text.

    Raises:
        ModelError: The tokenizer cannot be loaded.
    """
    sets = load_sets(job)
    tokenizer = load_tokenizer(job.model, job.revision)
    for each in sets:
        prompt = policy_prompt(each.prompts[0], each.form, chat=bool(tokenizer.chat_template))
        yield each.name, each.form, tokenizer.decode(encode_prompt(tokenizer, prompt), skip_special_tokens=False)
