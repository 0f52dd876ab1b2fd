"""The lengths of prompts in tokens, and which problems fit."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from gar.data.problem_set import ProblemSet
from gar.data.prompts import Renderer
from gar.errors import DataError
from gar.reader import Reader
from gar.types import Prompt

_BATCH = 1024
_CALLED = re.compile(r"(\w+)\(")
_CUTTING = {"Sequence", "Split", "Regex", "ByteLevel", "Whitespace", "WhitespaceSplit", "Digits", "Punctuation"}
"""Pre-tokenizers that add at most a space."""


def prompt_lengths(problems: ProblemSet, render: Renderer, reader: Reader, *, enough: float) -> np.ndarray:
    """The number of tokens of each prompt that `render` makes, as an engine would encode it, [problems].

    A token of a byte-level tokenizer has at least one byte of the text. So a prompt of few bytes has at most `enough`
    tokens: it is not encoded, and its number here is an upper bound. `problems` have our own columns.
    """
    around, known = bytes_around(reader, render.prompt), _prompt_bytes(problems)
    lengths = np.full(len(problems), -1) if around is None else np.where(known < 0, -1, known + around)
    unknown = np.flatnonzero((lengths < 0) | (lengths > enough))
    bar = tqdm(total=len(unknown), desc="measuring prompts", unit=" prompts", delay=2, disable=None)
    for some, prompts in _prompts(problems, unknown):
        lengths[some] = list(map(len, reader.encode_all(list(map(render.prompt, prompts)))))
        bar.update(len(some))
    bar.close()
    return lengths


def bytes_around(reader: Reader, render: Callable[[Prompt], Prompt]) -> int | None:
    """How many tokens more than bytes of its text a rendered prompt has at most. None if it may have any number.

    It is known if nothing adds to the text before it is cut into tokens, of which each has at least one byte. The text
    is that before NFC, if it is ASCII, which NFC leaves alone.
    """
    backend = getattr(reader.tokenizer, "backend_tokenizer", None)
    if backend is None or not set(_CALLED.findall(repr(backend.pre_tokenizer))) <= _CUTTING:
        return None
    if repr(backend.normalizer) not in ("None", "NFC()"):
        return None
    # A template may repeat the text: then a longer one has more around it.
    sizes = {len(reader.rendered(render(probe)).encode()) - len(probe) for probe in ("x", 100 * "xy")}
    special = reader.tokenizer.num_special_tokens_to_add() + 1  # and a space before the text
    return sizes.pop() + special if len(sizes) == 1 else None


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


def _prompts(problems: ProblemSet, positions: np.ndarray) -> Iterator[tuple[np.ndarray, list[Prompt]]]:
    """Some positions at a time, and their prompts. Reads no other column."""
    rows = problems.rows.select_columns(["prompt", "messages"])
    for start in range(0, len(positions), _BATCH):
        some = positions[start : start + _BATCH]
        found = rows[some]
        pairs = zip(found["prompt"], found["messages"], strict=True)
        yield some, [messages if text is None else text for text, messages in pairs]


def _prompt_bytes(problems: ProblemSet) -> np.ndarray:
    """Bytes of each prompt: three times those that it has if NFC may write it anew, -1 for messages, [problems]."""
    rows: Any = problems.rows.select_columns(["prompt"]).with_format("arrow")
    return np.concatenate([_bytes(table.column(0).combine_chunks()) for table in rows.iter(_BATCH)])


def _bytes(prompts: pa.Array) -> np.ndarray:
    sizes = pc.fill_null(pc.binary_length(prompts), -1).to_numpy().astype(np.int64)  # pyright: ignore
    ascii = pc.fill_null(pc.string_is_ascii(prompts), True).to_numpy(zero_copy_only=False)  # pyright: ignore
    return np.where(ascii, sizes, 3 * sizes)
