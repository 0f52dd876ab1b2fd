"""Numbers of tokens of prompts. Only a prompt that may be too long is encoded."""

from itertools import islice

import numpy as np
from tqdm import tqdm

from gar.data.load import ProblemTable
from gar.data.prompts import Renderer
from gar.errors import DataError
from gar.reader import Reader

_BATCH = 1024


def prompt_lengths(problems: ProblemTable, render: Renderer, reader: Reader, *, enough: float) -> np.ndarray:
    """The number of tokens of each prompt that `render` makes, as an engine would encode it, [problems].

    A token of a byte-level tokenizer has at least one byte of the text. So a prompt of few bytes has at most `enough`
    tokens: it is not encoded, and its number here is an upper bound.
    """
    around, known = reader.bytes_around(render.prompt), problems.prompt_bytes
    lengths = np.full(len(problems), -1) if around is None else np.where(known < 0, -1, known + around)
    unknown = np.flatnonzero((lengths < 0) | (lengths > enough))
    bar = tqdm(total=len(unknown), desc="measuring prompts", unit=" prompts", delay=2, disable=None)
    prompts = (problem.prompt for problem in problems.chosen(unknown).rendered(render))
    for start in range(0, len(unknown), _BATCH):
        some = list(islice(prompts, _BATCH))
        lengths[unknown[start : start + _BATCH]] = list(map(len, reader.encode_all(some)))
        bar.update(len(some))
    bar.close()
    return lengths


def fitting(lengths: np.ndarray, max_prompt_tokens: int) -> np.ndarray:
    """The positions of the prompts of at most `max_prompt_tokens` tokens. A `DataError` if none fits."""
    kept = np.flatnonzero(lengths <= max_prompt_tokens)
    if not len(kept):
        raise DataError(
            f"no prompt fits into max_prompt_tokens = {max_prompt_tokens}: the shortest of {len(lengths)} has "
            f"{lengths.min()}, the median {np.median(lengths):.0f}, the instruction and the chat template included. "
            "Raise the limit. If the numbers look too large, is it the model's own tokenizer?"
        )
    return kept
