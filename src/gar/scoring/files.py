"""Score a file of responses: a row per problem in, a row per response out. Memory is bounded. A killed run resumes."""

import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from tqdm import tqdm

from gar import __version__
from gar.data.prompts import check_chat, render_prompt
from gar.data.responses import ResponseRow, ResponseSurvey
from gar.errors import DataError, ModelError
from gar.models.load import load_policy
from gar.reader import encode_prompt
from gar.records.files import json_text, utc_now, write_atomic
from gar.records.lock import writer_lock
from gar.records.manifest import file_hash
from gar.records.resumable import Line, ResumableOutput
from gar.records.run_record import package_versions
from gar.scoring.io import ScoreFiles, ScoreTally, output_row, read_rows, refuse_all_bad, score_schema, write_scores
from gar.scoring.job import ScoreJob
from gar.scoring.model import choose_device, tokenizer_hash, weights_hash
from gar.scoring.scorer import SCORER, GARScorer
from gar.scoring.scores import ResponseGroup
from gar.step import plan_shaping
from gar.types import prompt_text
from gar.verify import Verifier

_FIRST_ROWS = 100
"""Rows that are searched for tokens unknown to the tokenizer."""


def score_file(job: ScoreJob, survey: ResponseSurvey, *, command: Sequence[str] = ()) -> dict[str, Any]:
    """Score every response of a file. The output appears complete at the end. A killed run resumes when started again.

    `survey` is from `check_input`. `command` holds the arguments of the command line, for the record. Returns the
    summary in `OUT.run.json`.
    """
    files = ScoreFiles(job)
    with writer_lock(files.unfinished.lines_path):
        return _score_file(job, files, command, survey)


def _score_file(job: ScoreJob, files: ScoreFiles, command: Sequence[str], survey: ResponseSurvey) -> dict[str, Any]:
    """Score a file as its only writer."""
    start_time = utc_now()
    device = choose_device(job.device, needs_float64=True)
    plan_shaping(SCORER, "gar-grpo", {"signal": job.signal}, quiet=True)  # rejects what a scorer cannot run
    identity: dict[str, Any] = {
        "gar": __version__,
        "input": {"xxh3": file_hash(Path(job.file))},
        "settings": job.identity(),
    }
    if not job.overwrite:
        files.unfinished.refuse_other(identity)  # before a model is loaded
    model, tokenizer = load_policy(job.model_settings())
    identity["model"] = {"weights": weights_hash(model), "tokenizer": tokenizer_hash(tokenizer)}
    files.unfinished.begin(identity, overwrite=job.overwrite)
    errors, speed = _score_rows(job, files.unfinished, model.to(device), tokenizer, survey.num_responses)
    refuse_all_bad(files, errors, survey.num_rows)
    files.write_errors(errors)
    tally = ScoreTally(correct_reward=job.reward.correct_reward)
    finished = (line["rows"] for line in files.unfinished.finished())
    write_scores(files.out, tally.counting(finished), score_schema(tokens=job.tokens))
    counts: dict[str, Any] = {
        "rows": survey.num_rows,
        "bad_rows": len(errors),
        "repeated_prompts": survey.num_repeated,
        "unknown_token_fraction": _unknown_fraction(job, tokenizer),
    }
    summary = counts | tally.summary() | speed
    run = {
        "command": shlex.join(command),
        "start_time": start_time,
        "end_time": utc_now(),
        "job": job.model_dump(mode="json"),
        "device": str(device),
        "input": identity["input"],
        "model": identity["model"],
        "versions": {"gar": __version__} | package_versions(),
        "summary": summary,
    }
    write_atomic(files.run, json_text(run, indent=2) + "\n")
    files.unfinished.finish(*(path for path in (files.out, files.errors, files.run) if path.exists()))
    return summary


def _score_rows(
    job: ScoreJob, output: ResumableOutput, model: Any, tokenizer: Any, num_responses: int
) -> tuple[list[DataError], dict[str, float]]:
    """Score the unfinished rows, window by window. Returns the errors of bad rows, and the speed of this process."""
    done = {line["line"]: len(line["rows"]) for line in output.finished()}
    errors: list[DataError] = []
    num_tokens = 0
    start = time.perf_counter()
    shown: dict[str, Any] = {"desc": "scoring", "unit": " responses", "disable": None}  # silent unless on a terminal
    bar = tqdm(total=num_responses, initial=sum(done.values()), **shown)
    with bar, Verifier.from_settings(job.verify) as verifier:
        scorer = GARScorer(
            model,
            tokenizer,
            verifier=verifier,
            signal=job.signal,
            reward=job.reward,
            advantage=job.advantage,
            score_all=not job.eligible_only,
        )
        for window in _windows(_groups(job, tokenizer, errors), job.window):
            if all(row.line in done for row, _ in window):
                continue
            # A window that is finished in part is scored whole: the same batches give the same numbers.
            lines = _score_window(job, scorer, window)
            new = [line for line in lines if line["line"] not in done]
            output.append(new)
            num_tokens += sum(row["num_tokens"] for line in lines for row in line["rows"])
            bar.update(sum(len(line["rows"]) for line in new))
    seconds = time.perf_counter() - start
    return errors, {"seconds": seconds, "tokens_per_second": num_tokens / seconds}


def _score_window(job: ScoreJob, scorer: GARScorer, window: Sequence[tuple[ResponseRow, ResponseGroup]]) -> list[Line]:
    try:
        scores = iter(scorer.score([group for _, group in window], tokens=job.tokens))
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"the device's memory is too small for {job.signal.max_batch_tokens} tokens at one time: {error} Run "
            "the same command with a lower --signal.max-batch-tokens. It resumes from here.",
            code="out-of-memory",
        ) from error
    schema = score_schema(tokens=job.tokens)
    return [
        {"line": row.line, "rows": [output_row(row, score, schema) for score in islice(scores, len(row.responses))]}
        for row, _ in window
    ]


def _unknown_fraction(job: ScoreJob, tokenizer: Any) -> float:
    """Share of unknown tokens in the first responses. 0 if the tokenizer can write everything."""
    readable = (row for row in islice(read_rows(job), _FIRST_ROWS) if isinstance(row, ResponseRow))
    texts = [response for row in readable for response in row.responses]
    if tokenizer.unk_token_id is None or not texts:
        return 0.0
    ids = [token for encoded in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in encoded]
    return ids.count(tokenizer.unk_token_id) / max(len(ids), 1)


def _windows(
    groups: Iterable[tuple[ResponseRow, ResponseGroup]], size: int
) -> Iterator[list[tuple[ResponseRow, ResponseGroup]]]:
    """Groups in windows of at most `size` responses. A larger group gets its own window."""
    window: list[tuple[ResponseRow, ResponseGroup]] = []
    count = 0
    for row, group in groups:
        if window and count + len(row.responses) > size:
            yield window
            window, count = [], 0
        window.append((row, group))
        count += len(row.responses)
    if window:
        yield window


def _groups(job: ScoreJob, tokenizer: Any, errors: list[DataError]) -> Iterator[tuple[ResponseRow, ResponseGroup]]:
    """Rows that can be scored. `errors` gets the reasons for the others."""
    check_chat(job.template, tokenizer)
    for row in read_rows(job):
        if isinstance(row, DataError):
            errors.append(row)
            continue
        try:
            prompt = render_prompt(row.prompt, job.template, chat=bool(tokenizer.chat_template), tags=job.verify.tags)
            if not isinstance(prompt, str):  # the chat template may reject its messages
                prompt = tuple(encode_prompt(tokenizer, prompt))
        except (DataError, ModelError, TemplateError) as error:
            errors.append(DataError(f"{row.place}: {error}"))
            continue
        given = {name: getattr(row, name) for name in ("responses", "anchors", "answer", "id")}
        yield row, ResponseGroup(prompt=prompt, question=prompt_text(row.prompt), **given)
