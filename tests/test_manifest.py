"""What a manifest says of a folder: a file is what was listed, or there is an error with a name."""

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
    Manifest(tmp_path, settings=["s1"]).add(*NAMES, facts={"step": 3})
    return tmp_path


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
    assert Manifest(folder, settings=["s1"]).faults() == []
    change(folder / "a.json")
    manifest = Manifest(folder, settings=["s1"])
    assert [(fault.kind, fault.file) for fault in manifest.faults()] == [(kind, "a.json")]
    for read in (manifest.read, manifest.check):
        with raises(DamageError, "damage", "a.json") as error:
            read("a.json")
        assert error.value.fault.kind == kind
    assert manifest.read(folder / "b/c.parquet") == b"b/c.parquet" * 100


def test_any_damage_of_the_manifest_is_seen(folder: Path):
    path = folder / MANIFEST
    content = path.read_bytes()
    whole = [*Manifest(folder, ["s1"]).entries.items()]
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        manifest = Manifest(folder, settings=["s1"])
        assert manifest.faults() or ([*manifest.entries.items()] == whole and manifest.facts != {"step": 3})
    path.unlink()
    assert [fault.kind for fault in Manifest(folder).faults()] == ["unlisted", "unlisted"]


def test_files_of_other_settings_are_foreign(folder: Path):
    assert {fault.kind for fault in Manifest(folder, settings=["s2"]).faults()} == {"foreign"}
    both = Manifest(folder, settings=["s2", "s1"])
    assert both.faults() == []
    both.add("a.json")
    assert [fault.file for fault in Manifest(folder, settings=["s1"]).faults()] == ["a.json"]


def test_later_lines_win_and_a_torn_one_does_not_count(folder: Path):
    (folder / "a.json").write_text("new")
    manifest = Manifest(folder, settings=["s1"])
    manifest.add("a.json", facts={"step": 4})
    assert (manifest.read("a.json"), dict(manifest.facts)) == (b"new", {"step": 4})
    with (folder / MANIFEST).open("ab") as file:
        file.write(b'{"files": {"a.json": nu')
    assert Manifest(folder).read("a.json") == b"new"


def test_a_file_that_grows_is_checked_up_to_where_it_was_listed(tmp_path: Path):
    path, manifest = tmp_path / "metrics.jsonl", Manifest(tmp_path)
    with raises(RecordError, "record", "metrics.jsonl"):
        manifest.add(path)
    assert [*tmp_path.iterdir()] == []
    path.write_bytes(b"1\n2\n")
    manifest.add(path, grows=True)
    path.write_bytes(b"1\n2\n3\n")
    assert manifest.read(path) == b"1\n2\n3\n"
    path.write_bytes(b"1\n3\n3\n")
    assert [fault.kind for fault in Manifest(tmp_path).faults()] == ["changed"]


def test_cut_goes_back_for_some_files(folder: Path):
    manifest = Manifest(folder)
    state = manifest.state()
    for name in ("late", "e/before"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
        manifest.add(name)
    assert manifest.state_fault(state) is None
    manifest.cut(state, only=("late",))
    assert list(manifest.entries) == [*NAMES, "e/before"]
    flip(folder / MANIFEST)
    assert "no longer begins with" in (Manifest(folder).state_fault(state) or "")
