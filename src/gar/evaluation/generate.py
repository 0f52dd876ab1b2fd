"""Write every sample of every problem into an append-only file. A kill loses and repeats none.

Problems and settings alone decide the batches and their seeds. A batch that was cut off by a kill is drawn
again, and only its missing samples are added, so that the file is the same as without the kill. Only a lack of memory
makes batches smaller: the lines that follow have their size in `lowered_to`.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from gar.data.prompts import render_problems
from gar.errors import ConfigError, DataError, ModelError
from gar.evaluation.benchmarks.load import EvaluationSet
from gar.evaluation.evaluate import encode_prompts
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.job import GenerateJob
from gar.extras import install_command
from gar.models.embedded import model_path
from gar.models.generate import Sampling, generate_responses
from gar.models.load import load_policy
from gar.reader import context_of, special_ids, without_trailing_special
from gar.records.checkpoints import check_saved_model
from gar.records.lock import has_locks
from gar.response import Response, TokenSequence
from gar.scoring.model import choose_device, tokenizer_hash, weights_hash
from gar.types import Tags

DEFAULT_MAX_NEW_TOKENS = 8192

Say = Callable[[str], None]
Sample = tuple[int, int]
"""The position of a problem, and the number of the sample."""

GREEDY_TOP_P = 1e-9
"""top_p so small that sampling is greedy."""


class TransformersEngine:
    """Hugging Face `generate`, as in the evaluations of a training run.

    `context` is the maximum number of tokens of a prompt and its response together. None if unknown. `identity` has
    the backend and hashes of the model's weights and tokenizer.
    """

    def __init__(self, job: GenerateJob) -> None:
        model, self.tokenizer = load_policy(job.model)
        self._model = model.to(choose_device(job.device)).eval()
        self.context = context_of(model.config)
        self.identity: Mapping[str, Any] = {
            "backend": "transformers",
            "weights": weights_hash(self._model),
            "tokenizer": tokenizer_hash(self.tokenizer),
        }

    def respond(
        self, prompt_ids: Sequence[Sequence[int]], sampling: Sampling, progress: str | None = None
    ) -> list[Response]:
        """Write one response to each prompt, all from one random stream. Temperature 0 is greedy."""
        drawn = sampling if sampling.temperature else replace(sampling, temperature=1.0, top_p=GREEDY_TOP_P)
        drawn = replace(drawn, batch_size=len(prompt_ids))
        try:
            written = generate_responses(self._model, self.tokenizer, prompt_ids, drawn, progress=progress)
        except torch.OutOfMemoryError as error:
            raise ModelError(
                f"the device's memory does not suffice for {len(prompt_ids)} responses of up to "
                f"{sampling.max_new_tokens} tokens at one time: {error}",
                code="memory",
            ) from error
        return [responses[0] for responses in written]


class VllmEngine:
    """vLLM's offline `LLM`. Its samples differ from Hugging Face's of the same seed.

    vLLM does not show its weights, so `identity` has the name and the revision of the model.
    """

    def __init__(self, job: GenerateJob) -> None:
        try:
            from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]: an extra
        except ImportError as error:
            raise ConfigError(f"--backend vllm needs vLLM: {install_command('vllm')}") from error
        model = job.model
        check_saved_model(model_path(model.path))
        self._params = SamplingParams
        self._llm = LLM(model=model_path(model.path), revision=model.revision, dtype=model.dtype, seed=0)
        self.tokenizer = self._llm.get_tokenizer()
        self.context: int | None = self._llm.llm_engine.model_config.max_model_len
        self.identity: Mapping[str, Any] = {
            "backend": "vllm",
            "weights": f"{model.path}@{model.revision}",
            "tokenizer": tokenizer_hash(self.tokenizer),
        }

    def respond(
        self, prompt_ids: Sequence[Sequence[int]], sampling: Sampling, progress: str | None = None
    ) -> list[Response]:
        """As `TransformersEngine`, but each prompt has a random stream, from the seed and its place in the batch."""
        params = [
            self._params(
                n=1,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_new_tokens,
                seed=(sampling.seed + place) % 2**48,
            )
            for place in range(len(prompt_ids))
        ]
        prompts = [{"prompt_token_ids": list(ids)} for ids in prompt_ids]
        stripped = special_ids(self.tokenizer, Tags())
        responses = []
        for output in (each.outputs[0] for each in self._llm.generate(prompts, params, use_tqdm=False)):
            body = without_trailing_special(output.token_ids, stripped)
            text = self.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            truncated = output.finish_reason == "length"
            sequence = TokenSequence(ids=tuple(output.token_ids))
            responses.append(Response(sequence=sequence, text=text, truncated=truncated))
        return responses


SamplingEngine = TransformersEngine | VllmEngine
ENGINES: Mapping[str, type[SamplingEngine]] = {"transformers": TransformersEngine, "vllm": VllmEngine}
"""By the name of the backend."""


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
            folder.output.refuse_other(each.identity)  # before a model is loaded
    has_locks(out)
    engine = ENGINES[job.backend](job)
    for each, folder in zip(sets, folders, strict=True):
        with folder.alone():
            _generate_set(job, each, folder, engine, say)
    return folders


def _generate_set(
    job: GenerateJob, asked: EvaluationSet, folder: EvaluationFolder, engine: SamplingEngine, say: Say
) -> None:
    """Draw the missing samples of one benchmark."""
    name, template = asked.identity["benchmark"]["name"], asked.identity["prompt"]["template"]
    problems = render_problems(asked.problems, template, engine.tokenizer)
    prompt_ids, prefilled = encode_prompts(engine.tokenizer, problems, Tags())
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
    done = {(places[line["problem"]], line["sample"]) for line in folder.output.finished()}
    most = min((line.get("lowered_to", job.batch_size) for line in folder.output.finished()), default=job.batch_size)
    sampling = Sampling(max_new_tokens=limit, temperature=job.temperature, top_p=job.top_p, seed=job.seed)
    seed_of = partial(batch_seed, job.seed, asked.identity["benchmark"]["problems_sha256"])
    total = len(problems) * num_samples
    say(
        f"{name}: {total:,} samples ({len(problems):,} problems, {num_samples} each) of up to {limit:,} tokens, "
        f"{job.batch_size} at one time" + (f". {len(done):,} are there." if done else " ...")
    )
    with tqdm(total=total, initial=len(done), desc=name, unit=" samples", disable=None) as bar:

        def respond(batch: Sequence[Sample]) -> list[Response]:
            label = f"{name}, samples {bar.n + 1:,} to {min(bar.n + len(batch), bar.total):,}"
            how = replace(sampling, seed=seed_of(batch))
            return engine.respond([prompt_ids[i] for i, _ in batch], how, label)

        batches = plan_batches(lengths, num_samples, job.batch_size)
        for batch, responses, fitting in _answered(batches, done, most, respond, bar.write):
            lowered = {"lowered_to": fitting} if fitting < job.batch_size else {}
            new = [
                _line(problems[i].id, number, response, seed=seed_of(batch), prefilled_think=prefilled[i], **lowered)
                for (i, number), response in zip(batch, responses, strict=True)
                if (i, number) not in done
            ]
            folder.output.append(new)
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
    waiting = list(reversed(batches))
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


def _line(problem: str, sample: int, response: Response, **more: Any) -> dict[str, Any]:
    stop = "length" if response.truncated else "end"
    return {"problem": problem, "sample": sample, "text": response.text, "tokens": response.ids, "stop": stop} | more


def plan_batches(prompt_lengths: Sequence[int], num_samples: int, batch_size: int) -> list[list[Sample]]:
    """All samples in full batches, the longest prompts first, so that running out of memory happens early."""
    order = sorted(range(len(prompt_lengths)), key=lambda i: -prompt_lengths[i])
    samples = [(i, sample) for i in order for sample in range(num_samples)]
    return [samples[start : start + batch_size] for start in range(0, len(samples), batch_size)]


def batch_seed(seed: int, set_hash: str, batch: Sequence[Sample]) -> int:
    """The seed of a batch, different for every batch, set and seed. Below 2^48, which JSON readers keep exactly."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {set_hash} {batch[0]} {batch[-1]}".encode(), digest_size=6).digest())
