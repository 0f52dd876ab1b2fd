"""Problems as columns of Arrow, and a checksum of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128

from gar.types import Anchor, Problem, Prompt

SCHEMA = pa.schema(
    {
        "place": pa.string(),
        "id": pa.string(),
        "prompt": pa.string(),  # null if it is chat messages
        "messages": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
        "answer": pa.string(),
        "anchors": pa.list_(pa.string()),
        "source": pa.string(),
        "choices": pa.list_(pa.string()),
    }
)


def batch_of(found: Sequence[tuple[str, Problem]]) -> pa.RecordBatch:
    """Problems with the places of their rows, as columns."""
    problems = [problem for _, problem in found]
    texts = [problem.prompt if isinstance(problem.prompt, str) else None for problem in problems]
    columns: dict[str, list[Any]] = {
        "place": [place for place, _ in found],
        "id": [problem.id for problem in problems],
        "prompt": texts,
        "messages": [None if text is not None else p.prompt for text, p in zip(texts, problems, strict=True)],
        "answer": [problem.answer for problem in problems],
        "anchors": [[anchor.text for anchor in problem.anchors] for problem in problems],
        "source": [problem.source for problem in problems],
        "choices": [problem.choices for problem in problems],
    }
    return pa.record_batch(columns, schema=SCHEMA)


def problem_at(row: dict[str, Any]) -> Problem:
    """The problem of a row of `SCHEMA`."""
    prompt: Prompt = row["messages"] if row["prompt"] is None else row["prompt"]
    return Problem(
        id=row["id"],
        prompt=prompt,
        answer=row["answer"],
        anchors=tuple(Anchor(text=text) for text in row["anchors"]),
        source=row["source"],
        choices=tuple(row["choices"]),
    )


def prompt_bytes(prompts: pa.Array) -> np.ndarray:
    """Bytes of each prompt: three times those that it has if NFC may write it anew, -1 for messages."""
    sizes = pc.fill_null(pc.binary_length(prompts), -1).to_numpy().astype(np.int64)  # pyright: ignore
    ascii = pc.fill_null(pc.string_is_ascii(prompts), True).to_numpy(zero_copy_only=False)  # pyright: ignore
    return np.where(ascii, sizes, 3 * sizes)


class Digest:
    """A checksum of problems that does not depend on how they are cut into batches."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add problems."""
        for name in SCHEMA.names[1:]:
            self._update(name, batch.column(name))

    def _update(self, name: str, array: pa.Array) -> None:
        """Add values to a column: their lengths to one checksum, and their bytes to another."""
        if pa.types.is_struct(array.type):
            for field in array.type:
                self._update(f"{name}.{field.name}", array.field(field.name))
            return
        is_list = pa.types.is_list(array.type)
        lengths = pc.list_value_length(array) if is_list else pc.binary_length(array)  # pyright: ignore
        self._add(f"{name}#", pc.fill_null(lengths, -1).to_numpy().astype("<i4"))  # pyright: ignore
        if is_list:
            return self._update(f"{name}[]", array.flatten())
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets or b"", dtype=np.int32)[array.offset : array.offset + len(array) + 1]
        self._add(name, memoryview(data)[ends[0] : ends[-1]] if len(array) and data is not None else b"")

    def _add(self, name: str, content: Any) -> None:
        self._parts.setdefault(name, xxh3_128()).update(content)

    def hex(self) -> str:
        """The checksum of all columns."""
        parts = [(name, part.hexdigest()) for name, part in sorted(self._parts.items())]
        return xxh3_128(repr(parts).encode()).hexdigest()
