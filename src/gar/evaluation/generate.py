"""Write every sample of every problem into an append-only file. A kill loses and repeats none.

Only problems and settings decide the batches and their seeds. A batch that was cut off by a kill is drawn
again, and only its missing samples are added, so that the file is the same as without the kill. Only a lack of memory
makes batches smaller: the lines that follow have their size in `lowered_to`.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gar.data.prompts import render_problems
from gar.errors import DataError, ModelError
from gar.evaluation.benchmark_sets import EvaluationSet
from gar.evaluation.engines import SamplingEngine, encode_prompts, load_engine
from gar.evaluation.folder import EvaluationFolder, response_line
from gar.evaluation.job import GenerateJob
from gar.models.generate import Sampling
from gar.records.lock import has_locks
from gar.response import Response

DEFAULT_MAX_NEW_TOKENS = 8192

Say = Callable[[str], None]
Sample = tuple[int, int]
"""The position of a problem, and the number of the sample."""


def generate(job: GenerateJob, sets: Sequence[EvaluationSet], say: Say = lambda text: None) -> list[EvaluationFolder]:
    """Draw the missing samples of every benchmark of a job, and return the folders, one per benchmark, complete.

    `say` receives what will be drawn.

    Raises:
        ConfigError: A setting is wrong, or a folder holds an evaluation with other settings.
        DataError: A prompt does not fit into the context.
    """
    out = job.out or Path("evals") / job.model.path.strip("/").replace("/", "--")
    folders = [EvaluationFolder(out / each.identity["benchmark"]["name"]) for each in sets]
    for each, folder in zip(sets, folders, strict=True):
        if not job.overwrite:
            folder.check_same(each.identity)  # before a model is loaded
    has_locks(out)
    engine = load_engine(job)
    for each, folder in zip(sets, folders, strict=True):
        with folder.locked():
            _generate_set(job, each, folder, engine, say)
    return folders


def _generate_set(
    job: GenerateJob, asked: EvaluationSet, folder: EvaluationFolder, engine: SamplingEngine, say: Say
) -> None:
    """Draw the missing samples of one benchmark."""
    # 1. Make the prompts, and find the room for responses.
    name, template = asked.identity["benchmark"]["name"], asked.identity["prompt"]["template"]
    problems = render_problems(asked.problems, template, engine.tokenizer)
    prompt_ids, prefilled = encode_prompts(engine, problems, job.template_arguments)
    lengths = [len(ids) for ids in prompt_ids]
    model = {"path": job.model.path, "revision": job.model.revision, **engine.identity}
    room = DEFAULT_MAX_NEW_TOKENS if engine.context is None else engine.context - max(lengths)
    if room < 1:
        raise DataError(f"{name}: a prompt of {max(lengths)} tokens fills the context. Is it the right model?")
    limit = job.max_new_tokens or min(DEFAULT_MAX_NEW_TOKENS, room)
    # 2. Begin or resume. A memory that was too small before is too small now, so the batches stay smaller.
    drawn: dict[str, Any] = asked.identity["sampling"] | {"max_new_tokens": limit}
    num_samples = drawn["num_samples"]
    folder.begin(asked.identity | {"sampling": drawn, "model": model}, problems, overwrite=job.overwrite)
    places = {problem.id: i for i, problem in enumerate(problems)}
    done = {(places[line["problem"]], line["sample"]) for line in folder.lines()}
    most = min((line.get("lowered_to", job.batch_size) for line in folder.lines()), default=job.batch_size)
    sampling = Sampling(max_new_tokens=limit, temperature=job.temperature, top_p=job.top_p, seed=job.seed)
    seed_of = partial(batch_seed, job.seed, asked.identity["benchmark"]["problems_sha256"])
    total = len(problems) * num_samples
    say(
        f"{name}: {total:,} samples ({len(problems):,} problems, {num_samples} each) of up to {limit:,} tokens, "
        f"{job.batch_size} at one time" + (f". {len(done):,} are there." if done else " ...")
    )
    # 3. Draw whole batches, since a batch has one random stream, and keep the samples that are missing.
    with tqdm(total=total, initial=len(done), desc=name, unit=" samples", disable=None) as bar:

        def respond(batch: Sequence[Sample]) -> list[Response]:
            label = f"{name}, samples {bar.n + 1:,} to {min(bar.n + len(batch), bar.total):,}"
            how = replace(sampling, seed=seed_of(batch), batch_size=len(batch))
            written = engine.respond([prompt_ids[i] for i, _ in batch], how, label)
            return [replace(each, prefilled=prefilled[i]) for (i, _), (each,) in zip(batch, written, strict=True)]

        batches = plan_batches(lengths, num_samples, job.batch_size)
        for batch, responses, fitting in _answered(batches, done, most, respond, bar.write):
            lowered = {"lowered_to": fitting} if fitting < job.batch_size else {}
            new = [
                response_line(problems[i].id, number, response, seed=seed_of(batch), **lowered)
                for (i, number), response in zip(batch, responses, strict=True)
                if (i, number) not in done
            ]
            folder.add_lines(new)
            bar.update(len(new))


def _answered(
    batches: Sequence[list[Sample]],
    done: set[Sample],
    most: int,
    respond: Callable[[Sequence[Sample]], list[Response]],
    say: Say,
) -> Iterator[tuple[list[Sample], list[Response], int]]:
    """The batches with a sample that is not done, each with its responses and how many fit into memory so far.

    A batch of more than `most` is halved, and so is one for which memory is too small.
    """
    waiting = list(reversed(batches))  # a stack: the halves of a batch take its place
    while waiting:
        batch = waiting.pop()
        if len(batch) > most:
            waiting += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]
        elif not done.issuperset(batch):
            try:
                yield batch, respond(batch), most
            except ModelError as error:
                if error.code != "memory" or len(batch) == 1:
                    raise
                most = len(batch) // 2
                say(f"{error} Going on with at most {most}, which draws other responses than --batch-size.")
                waiting.append(batch)


def plan_batches(prompt_lengths: Sequence[int], num_samples: int, batch_size: int) -> list[list[Sample]]:
    """All samples in full batches, the longest prompts first, so that running out of memory happens early."""
    order = sorted(range(len(prompt_lengths)), key=lambda i: -prompt_lengths[i])
    samples = [(i, sample) for i in order for sample in range(num_samples)]
    return [samples[start : start + batch_size] for start in range(0, len(samples), batch_size)]


def batch_seed(seed: int, set_hash: str, batch: Sequence[Sample]) -> int:
    """The seed of a batch, different for every batch, set and seed. Below 2^48, which JSON readers keep exactly."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {set_hash} {batch[0]} {batch[-1]}".encode(), digest_size=6).digest())
