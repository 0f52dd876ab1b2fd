"""Write every sample of every problem into an append-only file. A kill loses and repeats none.

Problems and settings alone decide the batches and their seeds. A batch that was cut off by a kill is drawn
again, and only its missing samples are added, so that the file is the same as without the kill.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tqdm import tqdm

from gar.data.prompts import render_problems
from gar.errors import DataError
from gar.evaluation.benchmarks.load import EvaluationSet
from gar.evaluation.engines import ENGINES, SamplingEngine
from gar.evaluation.evaluate import Sampling, encode_prompts
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.job import GenerateJob
from gar.types import Tags

DEFAULT_MAX_NEW_TOKENS = 8192

Sample = tuple[int, int]
"""The position of a problem, and the number of the sample."""


def generate(job: GenerateJob, sets: Sequence[EvaluationSet]) -> list[EvaluationFolder]:
    """Draw the missing samples of every benchmark of a job, and return the folders, one per benchmark, complete.

    Raises:
        ConfigError: A setting is wrong, or a folder holds an evaluation with other settings.
        DataError: A prompt does not fit into the context.
        ModelError: The model cannot be loaded or sampled from.
        RecordError: A file cannot be read or written. What was finished is kept.
    """
    folders = [EvaluationFolder(job.folder() / each.identity["benchmark"]["name"]) for each in sets]
    for each, folder in zip(sets, folders, strict=True):
        if not job.overwrite:
            folder.output.refuse_other(each.identity)  # before a model is loaded
    engine = ENGINES[job.backend](job)
    for each, folder in zip(sets, folders, strict=True):
        with folder.alone():
            _generate_set(job, each, folder, engine)
    return folders


def _generate_set(job: GenerateJob, asked: EvaluationSet, folder: EvaluationFolder, engine: SamplingEngine) -> None:
    """Draw the missing samples of one benchmark."""
    name, template = asked.identity["benchmark"]["name"], asked.identity["prompt"]["template"]
    problems = render_problems(asked.problems, template, engine.tokenizer)
    prompt_ids, prefilled = encode_prompts(engine.tokenizer, [problem.prompt for problem in problems], Tags())
    lengths = [len(ids) for ids in prompt_ids]
    model = {"path": job.model.path, "revision": job.model.revision, **engine.identity}
    room = DEFAULT_MAX_NEW_TOKENS if engine.context is None else engine.context - max(lengths)
    if room < 1:
        raise DataError(f"{name}: a prompt of {max(lengths)} tokens fills the context. Is it the right model?")
    limit = job.max_new_tokens or min(DEFAULT_MAX_NEW_TOKENS, room)
    drawn: dict[str, Any] = asked.identity["sampling"] | {"max_new_tokens": limit}
    num_samples = drawn["num_samples"]
    folder.begin(asked.identity | {"sampling": drawn, "model": model}, problems, overwrite=job.overwrite)
    places = {problem.id: i for i, problem in enumerate(problems)}
    done = {(places[line["problem"]], line["sample"]) for line in folder.responses}
    sampling = Sampling(max_new_tokens=limit, temperature=job.temperature, top_p=job.top_p, seed=job.seed)
    total = len(problems) * num_samples
    with tqdm(total=total, initial=len(done), desc=name, unit=" samples", disable=None) as bar:
        for batch in plan_batches(lengths, num_samples, job.batch_size):
            if done.issuperset(batch):
                continue
            seed = batch_seed(job.seed, asked.identity["benchmark"]["problems_sha256"], batch)
            responses = engine.respond([prompt_ids[i] for i, _ in batch], replace(sampling, seed=seed))
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
