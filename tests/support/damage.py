"""Ways in which a file is no longer what was written: by a loss of power, another tool, or a person."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Damage = Callable[[Path], Any]


def damages(path: Path) -> Mapping[str, Damage]:
    """Every kind of damage to a file of this name."""
    return _ANY | {".json": _JSON, ".jsonl": _JSONL}.get(path.suffix, {})


def flip(path: Path, place: int | None = None) -> None:
    """Change one bit of a byte, by default of the one in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


def edit(path: Path, before: str, after: str) -> None:
    """Replace a text where it comes first."""
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


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
    "zeros at the end": _bytes(lambda content: content[: len(content) // 2] + bytes(len(content) // 2)),
    "no UTF-8": _bytes(lambda content: b"\xff\xfe caf\xe9\n" + content),
    "another object": _written(b'{"x": 1}\n'),
    "a list": _written(b"[1, 2]\n"),
    "deep object": _written(b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n"),
    "a folder": _folder,
    "a dangling link": _link,
    "gone": Path.unlink,
}


def _replaced(value: Any, new: Any) -> Any:
    """Every value inside replaced."""
    if isinstance(value, dict):
        return {name: _replaced(inner, new) for name, inner in value.items()}
    return [_replaced(inner, new) for inner in value] if isinstance(value, list) else new


def _leaves(new: Any, line: int = 0) -> Damage:
    """Every value of a JSON document, or of one line of JSONL, replaced."""

    def changed(path: Path) -> None:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        lines[line] = json.dumps(_replaced(json.loads(lines[line]), new))
        path.write_text("".join(text + "\n" for text in lines))

    return changed


_JSON: dict[str, Damage] = {
    "texts for values": _leaves("text"), "nulls for values": _leaves(None), "lists for values": _leaves([]),
    "large numbers for values": _leaves(10**30),
    "half a surrogate": _bytes(lambda content: content.replace(b'"p', b'"\\ud800p').replace(b'"r', b'"\\ud800r')),
}  # fmt: skip


_JSONL: dict[str, Damage] = {
    "texts for values": _leaves("text", 1), "lists for values": _leaves([1], 1),
    "large numbers for values": _leaves(10**400, 1),
    "written twice": _bytes(lambda content: content * 2),
    "backwards": lambda path: path.write_text("\n".join(path.read_text().splitlines()[::-1]) + "\n"),
}  # fmt: skip
