"""A file of a folder is what its manifest lists, or an error names it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gar.errors import RecordError
from gar.records.manifest import MANIFEST, DamageError, Manifest
from tests.support.errors import raises

NAMES = ("a.json", "b/c.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode() * 100)
    Manifest(tmp_path, settings=["s1"]).add(*NAMES)
    return tmp_path


def faults(folder: Path, *settings: str) -> list[tuple[str, str]]:
    """Kind and file of everything that is wrong with a folder."""
    manifest = Manifest(folder, settings=settings)
    found = [*manifest.own_faults, *map(manifest.fault, [*manifest.entries, *manifest.unlisted()])]
    return [(fault.kind, fault.file) for fault in found if fault]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda path: path.unlink(), "missing"),
    "empty": (lambda path: path.write_bytes(b""), "changed"),
    "half": (lambda path: path.write_bytes(path.read_bytes()[:50]), "changed"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b" "), "changed"),
    "a bit": (flip, "changed"),
    "another file": (lambda path: shutil.copy(path.parent / "b" / "c.parquet", path), "changed"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "missing"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_of_a_file_has_a_name(folder: Path, how: str):
    change, kind = DAMAGE[how]
    assert faults(folder, "s1") == []
    change(folder / "a.json")
    manifest = Manifest(folder, settings=["s1"])
    assert faults(folder, "s1") == [(kind, "a.json")]
    for read in (manifest.read, manifest.check):
        with raises(DamageError, "damage", "a.json") as error:
            read("a.json")
        assert error.value.fault.kind == kind
    assert manifest.read(folder / "b/c.parquet") == b"b/c.parquet" * 100


def test_any_damage_of_the_manifest_is_seen(folder: Path):
    path = folder / MANIFEST
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert faults(folder, "s1")
    path.unlink()
    assert faults(folder) == [("unlisted", name) for name in NAMES]


def test_files_of_other_settings_are_foreign(folder: Path):
    assert faults(folder, "s2") == [("foreign", name) for name in NAMES]
    assert faults(folder, "s2", "s1") == []
    Manifest(folder, settings=["s2", "s1"]).add("a.json")
    assert faults(folder, "s1") == [("foreign", "a.json")]


def test_later_lines_win_and_a_torn_one_does_not_count(folder: Path):
    (folder / "a.json").write_text("new")
    manifest = Manifest(folder, settings=["s1"])
    manifest.add("a.json")
    assert manifest.read("a.json") == b"new"
    with (folder / MANIFEST).open("ab") as file:
        file.write(b'{"files": {"a.json": nu')
    assert Manifest(folder).read("a.json") == b"new"


def test_a_file_that_grows_is_checked_up_to_where_it_was_listed(tmp_path: Path):
    path, manifest = tmp_path / "metrics.jsonl", Manifest(tmp_path)
    with raises(RecordError, "record", "metrics.jsonl"):
        manifest.add(path)
    assert [*tmp_path.iterdir()] == []
    path.write_bytes(b"1\n2\n")
    manifest.add(grows=[path.name])
    path.write_bytes(b"1\n2\n3\n")
    assert manifest.read(path) == b"1\n2\n3\n"
    path.write_bytes(b"1\n3\n3\n")
    assert faults(tmp_path) == [("changed", path.name)]


def test_cut_goes_back_to_a_line_for_some_files(folder: Path):
    manifest = Manifest(folder)
    for name in ("mark/1", "late", "other"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
        manifest.add(name, grows=[MANIFEST])
    early = Manifest(folder, until="mark/")
    assert list(early.entries) == [*NAMES, "mark/1", MANIFEST]
    early.cut(only=("late",))
    assert list(Manifest(folder).entries) == [*NAMES, "mark/1", "other", MANIFEST]
    content = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).write_bytes(content[content.index(b"\n") + 1 :])  # a lost line
    assert ("changed", MANIFEST) in faults(folder)
