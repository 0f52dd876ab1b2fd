"""Folders that are complete or absent: flushed to the disk, and renamed into place."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gar.errors import RecordError
from gar.records.files import sync_file, sync_folder, system_errors


def files_below(folder: Path) -> list[Path]:
    """Every file in a folder and its subfolders, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below `folder`, and the entry of `folder` itself, to the disk."""
    for path in files_below(folder):
        sync_file(path)
    for path in [*(path for path in folder.rglob("*") if path.is_dir()), folder, folder.parent]:
        sync_folder(path)


def staging_folder(target: Path) -> Path:
    """An empty folder beside `target` to write into, for `publish_folder`. Leftovers of a killed writer are removed."""
    staged = target.with_name(f".{target.name}.partial")
    with system_errors(staged, "replaced"):
        if staged.exists():
            shutil.rmtree(staged)
        staged.mkdir(parents=True)
    return staged


def publish_folder(staged: Path, target: Path) -> None:
    """Rename a finished folder to `target`, in place of an earlier one. A kill leaves `target` complete or absent."""
    sync_tree(staged)
    earlier = target.with_name(f".{target.name}.earlier")
    with system_errors(target, "replaced"):
        shutil.rmtree(earlier, ignore_errors=True)
        if target.exists():
            os.replace(target, earlier)
        os.replace(staged, target)
        shutil.rmtree(earlier, ignore_errors=True)
    sync_folder(target.parent)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A folder to write, which appears under its name complete or not at all."""
    staged = staging_folder(target)
    yield staged
    publish_folder(staged, target)


def remove_folder(folder: Path, *, mark: str) -> None:
    """Remove a folder, its `mark` first: after a kill or an error in between, the folder no longer counts."""
    with system_errors(folder / mark, "replaced"):
        (folder / mark).unlink(missing_ok=True)
    with suppress(OSError):
        sync_folder(folder)
    shutil.rmtree(folder, ignore_errors=True)


def check_name(parent: str | Path, name: str) -> None:
    """Raise a `RecordError` for a name that is not a plain folder name."""
    if not name or name.startswith(".") or Path(name).name != name or "\0" in f"{parent}{name}":
        raise RecordError(f"the name of a run must be one plain folder name, got {name!r} in {str(parent)!r}")
