"""Problems as columns of Arrow, and a checksum of them.

`read_problem` has the rules for a row. `plain_batch` applies them to whole columns of texts, as most data sets have.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128

from gar.data.rows import Row, row_place, source_name
from gar.data.schemas import ColumnSchema
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


def plain_batch(numbered: Sequence[tuple[int, Row]], schema: ColumnSchema, source: str) -> pa.RecordBatch | None:
    """The problems that `read_problem` makes of rows of texts and whole numbers, if it drops none of them.

    None if that is not certain: a value is of another type, or a prompt or an answer is empty. Then each row must be
    read by itself.
    """
    rows = [row for _, row in numbered]
    field = next(iter(schema.anchors), "")
    nested = any("." in name for name in (schema.prompt, schema.answer, schema.id, schema.source, field))
    if nested or len(schema.anchors) > 1 or any(map(schema.unusable, rows)):
        return None
    try:
        prompts = _texts([row[schema.prompt] for row in rows])
        answers = _texts([row[schema.answer] if schema.answer else None for row in rows], numbers=True)
        anchors = _texts([row.get(field) for row in rows])
        ids = _texts([row.get(schema.id) for row in rows], numbers=True)
        sources = _texts([row.get(schema.source) for row in rows], numbers=True)
    except (KeyError, TypeError, OverflowError, UnicodeError, pa.ArrowException):
        return None
    answers = _mapped(schema.answer_of, _mapped(str.strip, answers))
    if _any_empty(_mapped(str.strip, prompts)) or (schema.answer and _any_empty(answers)):
        return None
    anchors, name = _mapped(schema.anchor_of, anchors), source_name(source)
    defaults = pa.array([f"{name}-{number}" for number, _ in numbered])
    has_anchor = pc.not_equal(anchors, "")  # pyright: ignore
    ends = np.cumsum([0, *has_anchor.to_numpy(zero_copy_only=False)], dtype=np.int32)
    columns = {
        "place": [row_place(source, number) for number, _ in numbered],
        "id": _or(_mapped(str.strip, ids), defaults),
        "prompt": prompts,
        "messages": pa.nulls(len(rows), SCHEMA.field("messages").type),
        "answer": answers,
        "anchors": pa.ListArray.from_arrays(ends, anchors.filter(has_anchor)),
        "source": _or(_mapped(str.strip, sources), name),
        "choices": [()] * len(rows),
    }
    return pa.record_batch(columns, schema=SCHEMA)


def _texts(values: list[Any], *, numbers: bool = False) -> pa.Array:
    """Texts, "" for null, and whole numbers as texts if `numbers`. A `TypeError` for anything else."""
    array = pa.array(values)
    kind = array.type
    if not (pa.types.is_string(kind) or pa.types.is_null(kind) or (numbers and pa.types.is_integer(kind))):
        raise TypeError(f"expected texts, got {kind}")
    return pc.fill_null(array.cast(pa.string()), "")  # pyright: ignore


def _mapped(function: Callable[[str], str], texts: pa.Array) -> pa.Array:
    if function is str.strip:
        return pc.utf8_trim_whitespace(texts)  # pyright: ignore
    return pa.array(list(map(function, texts.to_pylist())), pa.string())


def _any_empty(texts: pa.Array) -> bool:
    return pc.any(pc.equal(texts, "")).as_py()  # pyright: ignore


def _or(texts: pa.Array, default: Any) -> pa.Array:
    """The texts, with a default for those that are empty."""
    return pc.if_else(pc.equal(texts, ""), default, texts)  # pyright: ignore


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
