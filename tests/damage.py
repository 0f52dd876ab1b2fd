"""Ways in which a file is no longer what was written: by a loss of power, another tool, or a person."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Damage = Callable[[Path], Any]


def damages(path: Path) -> Mapping[str, Damage]:
    """Every kind of damage to a file of this name."""
    return _ANY | _BY_SUFFIX.get(path.suffix, {})


def _written(content: bytes) -> Damage:
    return lambda path: path.write_bytes(content)


def _bytes(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


_ANY: dict[str, Damage] = {
    "cut": _bytes(lambda content: content[: len(content) // 2]),
    "empty": _written(b""),
    "zeros": _bytes(lambda content: bytes(len(content))),
    "zeros at the end": _bytes(lambda content: content[: len(content) // 2] + bytes(len(content) // 2)),
    "no UTF-8": _bytes(lambda content: b"\xff\xfe caf\xe9\n" + content),
    "another text": _written(b"hello, world\n"),
    "another object": _written(b'{"x": 1}\n'),
    "a list": _written(b"[1, 2]\n"),
    "null": _written(b"null\n"),
    "deep object": _written(b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n"),
    "deep list": _written(b"[" * 5_000 + b"\n"),
    "a folder": _folder,
    "a dangling link": _link,
    "gone": Path.unlink,
}


def _json(change: Callable[[Any], Any]) -> Damage:
    return lambda path: path.write_text(json.dumps(change(json.loads(path.read_text()))))


def _leaves(new: Any) -> Damage:
    """Every value inside replaced."""

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: replaced(inner) for name, inner in value.items()}
        return [replaced(inner) for inner in value] if isinstance(value, list) else new

    return _json(replaced)


def _tops(new: Any) -> Damage:
    return _json(lambda values: dict.fromkeys(values, new))


_JSON: dict[str, Damage] = {
    "texts for values": _leaves("text"), "nulls for values": _leaves(None), "lists for values": _leaves([]),
    "large numbers for values": _leaves(10**30), "numbers at the top": _tops(3), "lists at the top": _tops([1]),
    "objects at the top": _tops({"a": {"b": 1}}), "nulls at the top": _tops(None),
    "half a surrogate": _bytes(lambda content: content.replace(b'"p', b'"\\ud800p').replace(b'"r', b'"\\ud800r')),
}  # fmt: skip


def _second_line(change: Callable[[dict[str, Any]], Any]) -> Damage:
    """The second line replaced by what `change` makes of it: an object, or a text as it stands."""

    def changed(path: Path) -> None:
        lines = path.read_text().splitlines()
        new = change(json.loads(lines[1]))
        lines[1] = new if isinstance(new, str) else json.dumps(new)
        path.write_text("".join(line + "\n" for line in lines))

    return changed


def _values(new: Any) -> Damage:
    return _second_line(lambda row: {name: value if name == "step" else new for name, value in row.items()})


_JSONL: dict[str, Damage] = {
    "a line of text": _second_line(lambda row: "text"), "a blank line": _second_line(lambda row: ""),
    "a line with a list": _second_line(lambda row: "[1]"), "a deep line": _second_line(lambda row: "[" * 20_000),
    "a row without a step": _second_line(lambda row: {name: row[name] for name in row if name != "step"}),
    "a step as text": _second_line(lambda row: row | {"step": "2"}),
    "a step of a half": _second_line(lambda row: row | {"step": 2.5}),
    "texts for values": _values("text"), "lists for values": _values([1]), "objects for values": _values({"a": 1}),
    "true for values": _values(True), "large numbers for values": _values(10**400),
    "written twice": _bytes(lambda content: content * 2),
    "backwards": lambda path: path.write_text("\n".join(path.read_text().splitlines()[::-1]) + "\n"),
}  # fmt: skip


def _table(change: Callable[[pa.Table], pa.Table]) -> Damage:
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def _cast(before: pa.DataType, after: pa.DataType) -> Damage:
    """Every column of one type in another, as a tool with other types would write it; all columns nullable."""

    def cast(table: pa.Table) -> pa.Table:
        fields = [field.with_type(after if field.type == before else field.type) for field in table.schema]
        return table.cast(pa.schema([field.with_nullable(True) for field in fields]))

    return _table(cast)


def _column(name: str, values: Callable[[list[Any]], list[Any]]) -> Damage:
    def replaced(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        return table.set_column(index, name, pa.array(values(table[name].to_pylist())))

    return _table(replaced)


def _without(name: str) -> Damage:
    return _table(lambda table: table.drop_columns([name]))


_PARQUET: dict[str, Damage] = {
    "bytes for texts": _cast(pa.string(), pa.binary()), "texts for integers": _cast(pa.int64(), pa.string()),
    "texts for numbers": _cast(pa.float64(), pa.string()), "single precision": _cast(pa.float64(), pa.float32()),
    "integers for flags": _cast(pa.bool_(), pa.int64()),
    **{f"no {name} in a row": _column(name, lambda values: [None, *values[1:]])
       for name in ("step", "group_index", "eligible", "reward", "problem_id", "response")},
    **{f"no column {name}": _without(name)
       for name in ("step", "group_index", "eligible", "reward", "problem_id", "response", "alignment")},
    "no columns": _table(lambda table: table.select([])), "no rows": _table(lambda table: table.slice(0, 0)),
    "a row less": _table(lambda table: table.slice(1)),
    "every row twice": _table(lambda table: pa.concat_tables([table, table])),
    "a column twice": _table(lambda table: pa.Table.from_arrays(
        [*table.columns, table["reward"]], names=[*table.schema.names, "reward"])),
    "another step": _column("step", lambda values: [99 for _ in values]),
    "lists for rewards": _column("reward", lambda values: [[value] for value in values]),
    "a reward that is no number": _column("reward", lambda values: [float("nan"), *values[1:]]),
}  # fmt: skip

_YAML: dict[str, Damage] = {
    "a control character": _written(b"a: \x00\x01\n"), "an unknown alias": _written(b"a: &a [x]\nb: *c\n"),
    "a tag": _written(b"a: !!python/object:os.system x\n"), "a list as key": _written(b"? [a]\n: b\n"),
    "numbers as keys": _written(b"1: 2\nmodel: {3: 4}\n"), "lists for sections": _written(b"model: [1]\ndata: 3\n"),
    "half a file": _bytes(lambda content: b"\n".join(content.split(b"\n")[:20]) + b"\n"),
    "another seed": _bytes(lambda content: content.replace(b"seed: 0", b"seed: 1")),
}  # fmt: skip

_BY_SUFFIX = {".json": _JSON, ".jsonl": _JSONL, ".parquet": _PARQUET, ".yaml": _YAML}
