"""A file of a folder is what its manifest lists, or an error names it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gar.errors import RecordError
from gar.records.manifest import MANIFEST, DamageError, Manifest
from tests.support.damage import flip
from tests.support.errors import raises

NAMES = ("a.json", 'b/größe "c" \\ d.parquet')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode() * 100)
    Manifest(tmp_path).add(*NAMES)
    return tmp_path


def faults(folder: Path) -> list[tuple[str, str]]:
    """Kind and file of everything that is wrong with a folder."""
    return [(fault.kind, fault.file) for fault in Manifest(folder).faults()]


def lines_of(folder: Path) -> list[bytes]:
    return (folder / MANIFEST).read_bytes().splitlines(keepends=True)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda path: path.unlink(), "missing"),
    "empty": (lambda path: path.write_bytes(b""), "changed"),
    "half": (lambda path: path.write_bytes(path.read_bytes()[:50]), "changed"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b" "), "changed"),
    "a bit": (flip, "changed"),
    "another file": (lambda path: shutil.copy(path.parent / NAMES[1], path), "changed"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "missing"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_of_a_file_has_a_name(folder: Path, how: str):
    change, kind = DAMAGE[how]
    assert faults(folder) == []
    change(folder / "a.json")
    manifest = Manifest(folder)
    assert faults(folder) == [(kind, "a.json")]
    for read in (manifest.read, manifest.check):
        with raises(DamageError, "damage", "a.json") as error:
            read("a.json")
        assert error.value.fault.kind == kind
    assert manifest.read(folder / NAMES[1]) == NAMES[1].encode() * 100


def test_any_damage_of_the_manifest_is_seen(folder: Path):
    path = folder / MANIFEST
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert faults(folder)
    path.unlink()
    assert faults(folder) == [("unlisted", name) for name in NAMES]


def test_a_damaged_line_costs_what_it_lists_alone(folder: Path):
    manifest = Manifest(folder)
    for name in ("1", "2", "3"):
        (folder / name).write_text(name)
        manifest.add(name)
    whole = lines_of(folder)
    for number in range(len(whole)):
        for place in (0, 15, 40, len(whole[number]) // 2, len(whole[number]) - 2):
            line = bytearray(whole[number])
            line[place] ^= 1
            (folder / MANIFEST).write_bytes(b"".join([*whole[:number], bytes(line), *whole[number + 1 :]]))
            lost = [*NAMES] if number == 0 else [str(number)]
            assert faults(folder) == [("unreadable", MANIFEST), *(("unlisted", name) for name in lost)]
            again = Manifest(folder)
            assert str(again.own_faults[0]) == f"{MANIFEST}:{number + 1} is damaged"
            again.add(*lost)  # the next line has the next number
            assert faults(folder) == [("unreadable", MANIFEST)]


def test_lines_that_were_moved_repeated_removed_or_are_of_another_folder_are_found(folder: Path, tmp_path_factory):
    manifest, other = Manifest(folder), tmp_path_factory.mktemp("other")
    (folder / "1").write_text("1")
    manifest.add("1")
    (folder / "1").write_text("one")
    manifest.add("1")
    one, two, three = lines_of(folder)
    for name in ("x", "1"):
        (other / name).write_text("1")
        Manifest(other).add(name)
    foreign = lines_of(other)[1]
    for lines, kind in (
        ([one, three, two], "changed"),
        ([one, one, two, three], "changed"),
        ([one, three], "changed"),
        ([two, three], "changed"),
        ([one, foreign, two, three], "foreign"),
        ([one, two, foreign, three], "foreign"),
        ([one, two, three, foreign], "foreign"),
    ):
        (folder / MANIFEST).write_bytes(b"".join(lines))
        assert kind in {found for found, file in faults(folder) if file == MANIFEST}
        assert Manifest(folder).read("1") == b"one"  # the number decides, not the place


def test_later_lines_win_and_a_torn_one_does_not_count(folder: Path):
    (folder / "a.json").write_text("new")
    manifest = Manifest(folder)
    manifest.add("a.json")
    assert manifest.read("a.json") == b"new"
    with (folder / MANIFEST).open("ab") as file:
        file.write(b'{"files": {"a.json": nu')
    assert Manifest(folder).read("a.json") == b"new"


def test_a_file_that_grows_is_checked_up_to_where_it_was_listed(tmp_path: Path):
    path, manifest = tmp_path / 'größe "a" \\ b.jsonl', Manifest(tmp_path)
    with raises(RecordError, "record", path.name):
        manifest.add(path)
    assert [*tmp_path.iterdir()] == []
    manifest.append(path, b"1\n")
    manifest.append(path, b"2\n")
    path.write_bytes(b"1\n2\n3\n")  # written by a process that was killed before it listed it
    assert Manifest(tmp_path).read(path) == b"1\n2\n"
    Manifest(tmp_path).append(path, b"4\n")
    assert path.read_bytes() == b"1\n2\n4\n"
    assert manifest.read(path) == b"1\n2\n4\n"  # it sees what another has written
    manifest.append(path, b"5\n")
    whole = path.read_bytes()
    for changed in (b"1\n2\n4\n", b"1\n2\n4\n6\n", b"1\n2\n5\n4\n", b"1\n1\n2\n4\n5\n", b"2\n4\n5\n"):
        path.write_bytes(changed)
        assert faults(tmp_path) == [("changed", path.name)]
        with raises(DamageError, "damage", path.name):
            Manifest(tmp_path).append(path, b"7\n")
        assert path.read_bytes() == changed
    path.write_bytes(whole + b"torn")
    Manifest(tmp_path).close(path)
    assert path.read_bytes() == whole
    path.write_bytes(whole + b"9\n")
    assert faults(tmp_path) == [("changed", path.name)]


def test_a_file_written_again_is_the_earlier_or_the_new_one_wherever_a_kill_comes(tmp_path: Path):
    path = tmp_path / "run.json"
    Manifest(tmp_path).replace(path, b"1")
    for new in (b"22", b"3", b"22", b"44"):
        earlier, before = path.read_bytes(), (tmp_path / MANIFEST).read_bytes()
        Manifest(tmp_path).replace(path, new)
        intent = lines_of(tmp_path)[-2]
        for there, manifest in ((earlier, before), (earlier, before + intent), (new, before + intent)):
            path.write_bytes(there)
            (tmp_path / MANIFEST).write_bytes(manifest + b'{"check')
            assert Manifest(tmp_path).read(path) == there
            path.write_bytes(b"5")
            assert faults(tmp_path) == [("changed", path.name)]
            path.write_bytes(there)
        Manifest(tmp_path).replace(path, new)  # after the kill
        assert faults(tmp_path) == []
        path.write_bytes(earlier)
        assert faults(tmp_path) == [("changed", path.name)]
        with raises(DamageError, "damage", path.name):
            Manifest(tmp_path).replace(path, b"6")
        path.write_bytes(new)


def test_a_million_lines_are_appended_in_time_that_grows_with_the_line(tmp_path: Path, monkeypatch):
    """Counted, not measured: no append after the first reads anything."""
    manifest, opened = Manifest(tmp_path), list[str]()
    manifest.append("metrics.jsonl", b"1\n")

    def noting(path: Path, *mode: Any, plain: Any = Path.open, **more: Any) -> Any:
        opened.extend(mode)
        return plain(path, *mode, **more)

    monkeypatch.setattr(Path, "open", noting)
    for _ in range(5):
        manifest.append("metrics.jsonl", b"2\n")
        manifest.add(again=["metrics.jsonl"])
    assert opened == ["ab"] * 15
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"1\n" + 5 * b"2\n"


def test_cut_goes_back_to_a_line_for_some_files(folder: Path):
    manifest = Manifest(folder)
    for name in ("mark/1", "late", "other"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
        manifest.add(name)
    manifest.add(again=["late", "other"], gone=["a.json"])
    first, *rest = lines_of(folder)
    (folder / MANIFEST).write_bytes(b"".join([first, b"torn\n", *rest]))
    assert list(manifest.until("mark/").entries) == [*NAMES, "mark/1"]
    manifest.cut(until="mark/", only=("late",))
    assert list(manifest.entries) == [NAMES[1], "mark/1", "other"]
    assert list(Manifest(folder).entries) == [NAMES[1], "mark/1", "other"]
    assert Manifest(folder).own_faults == []
    manifest.add("late")
    assert faults(folder) == [("unlisted", "a.json")]


def test_a_folder_is_what_its_last_line_lists(folder: Path):
    manifest = Manifest(folder)
    manifest.add_folder("b")
    (folder / NAMES[1]).rename(folder / "b" / "d.parquet")
    assert faults(folder) == [("missing", NAMES[1]), ("unlisted", "b/d.parquet")]
    manifest.add_folder("b")
    (folder / ".b.partial").mkdir()
    (folder / ".b.partial" / "d.parquet").write_text("a killed writer's")
    assert faults(folder) == []
    assert manifest.below("b") == ["b/d.parquet"]
