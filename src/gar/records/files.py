"""Files and folders that are complete or absent: atomic writes, appended lines, JSON and Parquet."""

import errno
import fcntl
import hashlib
import json
import os
import reprlib
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from numbers import Real
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_jsonable_python

from gar.errors import LockedError, RecordError, first_line

_FULL = "The disk, the quota or the allowed file size is used up: make room, then resume."
_DENIED = "Does the folder belong to another user, or is it mounted read-only?"
_HINTS = {
    errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EFBIG: _FULL,
    errno.EACCES: _DENIED, errno.EPERM: _DENIED, errno.EROFS: _DENIED,
}  # fmt: skip # one cause a line

_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF, errno.ENOLCK}
"""What a file system answers that cannot lock a file or flush a folder: some of Lustre, NFS and FUSE."""

Checked = TypeVar("Checked")
_adapter = cache(TypeAdapter)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file to write, which appears under its name complete or not at all. Missing parent folders are made.

    The content goes to `.NAME.partial` beside it first, under a lock. A killed process may leave that file. The next
    write replaces it.

    Raises:
        LockedError: Another process is writing this file.
        RecordError: The system reports an error. An earlier file of that name is untouched.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    with system_errors(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(partial, path) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())  # some file systems report a full disk only here
                os.replace(partial, path)
            except BaseException:
                with suppress(OSError):
                    partial.unlink()  # still under the lock, so it is no other writer's
                raise
        sync(path.parent)


@contextmanager
def _locked(partial: Path, path: Path) -> Iterator[IO[bytes]]:
    """The temporary file of `path`, empty, under a lock of the kernel that ends with this process."""
    while True:
        if os.path.lexists(partial) and not stat.S_ISREG(os.lstat(partial).st_mode):
            partial.unlink()  # a link or a pipe: writing there would write somewhere else
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666), "wb") as file:
            try:
                take_lock(file, path)
            except BlockingIOError:
                raise LockedError(f"{path} is being written by another process. Wait for it, or end it.") from None
            if os.path.lexists(partial) and os.path.samestat(os.fstat(file.fileno()), os.lstat(partial)):
                file.truncate()  # what a killed writer left
                yield file
                return
        # Another process has just published what was opened here. Open a new one.


def take_lock(file: IO[bytes], path: Path) -> bool:
    """Lock an open file. False if its file system has no locks and `GAR_WITHOUT_LOCKS` is 1.

    Raises:
        BlockingIOError: Another process holds the lock.
        RecordError: The file system has no locks. Names `path`.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        if os.environ.get("GAR_WITHOUT_LOCKS") != "1":
            raise RecordError(
                f"{path}: this file system has no file locks ({error.strerror}), so two commands that write to one "
                "folder would damage each other's files: choose another folder, or set GAR_WITHOUT_LOCKS=1 and start "
                "one command at a time.",
                code="no-locks",
            ) from error
        return False
    return True


def write_atomic(path: str | Path, content: bytes | str) -> None:
    """Write a whole file, or leave the earlier one. Text is UTF-8. Raises as `atomic_file`."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_parquet(path: str | Path, table: pa.Table) -> None:
    """Write a whole table, or leave the earlier file. Equal tables give equal bytes. Raises as `atomic_file`."""
    with atomic_file(path) as file:
        pq.write_table(table, file)


def read_parquet(path: str | Path, columns: Sequence[str], *, schema: pa.Schema) -> pa.Table:
    """Read these columns of a table. The file must have the columns of the schema, in any order."""
    try:
        with system_errors(path, "read"), pq.ParquetFile(regular(path)) as file:
            found = file.schema_arrow
            if {*found} != {*schema}:
                odd = ", ".join(sorted({*found.names} ^ {*schema.names})) or "types differ"
                raise RecordError(f"{path}: other columns than this version of gar writes: {odd}.")
            return file.read(columns=list(columns))
    except (pa.ArrowException, UnicodeDecodeError) as error:  # UnicodeDecodeError: a damaged column name
        raise RecordError(f"{path}: not a readable Parquet file: {first_line(error)}") from error


def remove_file(path: Path) -> None:
    """Remove a file, if it is there."""
    with system_errors(path, "removed"):
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk. Only then do they survive a loss of power."""
    with system_errors(path, "written"):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in _UNSUPPORTED or not path.is_dir():  # some file systems flush no folders
                raise
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below `folder`, and the entry of `folder` itself, to the disk."""
    for path in [*folder.rglob("*"), folder, folder.parent]:
        sync(path)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A folder to write, which appears under its name when everything is written, in place of an earlier one.

    A killed process leaves the target complete or absent, and the folder that it wrote to, which the next one replaces.
    """
    staged, earlier = (target.with_name(f".{target.name}.{word}") for word in ("partial", "earlier"))
    with system_errors(target, "replaced"):
        if staged.exists():
            shutil.rmtree(staged)
        staged.mkdir(parents=True)
    with library_errors():
        yield staged
    sync_tree(staged)
    with system_errors(target, "replaced"):
        shutil.rmtree(earlier, ignore_errors=True)
        if target.exists():
            os.replace(target, earlier)
        os.replace(staged, target)
        shutil.rmtree(earlier, ignore_errors=True)
    sync(target.parent)


@contextmanager
def library_errors() -> Iterator[None]:
    """Where libraries write: an `OSError` for what torch, tokenizers and safetensors raise if a disk is full."""
    try:
        yield
    except Exception as error:
        if type(error) in (RuntimeError, Exception) or type(error).__name__ == "SafetensorError":
            raise OSError(first_line(error)) from error
        raise


def append_bytes(path: Path, content: bytes) -> None:
    """Write content at the end of a file, to the disk: all of it, or none."""
    with system_errors(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(size)
                raise
    if size == 0:
        sync(path.parent)


def truncate(path: Path, size: int) -> None:
    """Cut a file off after its first `size` bytes, unless it has no more."""
    with system_errors(path, "written"):
        if path.stat().st_size > size:
            os.truncate(path, size)


def regular(path: str | Path) -> Path:
    """The path of a regular file. Anything else, such as a pipe that would hang its reader, is a `RecordError`."""
    with system_errors(path, "read"):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise RecordError(f"{path}: not a regular file, and only such are read. Was it replaced?")
    return Path(path)


def read_bytes(path: str | Path) -> bytes:
    """The content of a file."""
    with system_errors(path, "read"):
        return regular(path).read_bytes()


def whole_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file but for a torn last one, in bounded memory. None if there is no such file."""
    if os.path.lexists(path):
        with system_errors(path, "read"), regular(path).open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))


def json_object(text: bytes, place: str) -> dict[str, Any]:
    """One JSON object. A `RecordError` with its place if it is something else."""
    try:
        value = from_json(text)  # in a quarter of the time of `json.loads`
    except ValueError as error:
        raise RecordError(f"{place}: not valid JSON: {error}. Was the file changed by hand or cut off?") from error
    if not isinstance(value, dict):
        raise RecordError(f"{place}: expected a JSON object, got {type(value).__name__}.")
    return value


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. A `RecordError` if it cannot be read, or holds something else."""
    return json_object(read_bytes(path), str(path))


def checked(kind: type[Checked], value: Any, place: str) -> Checked:
    """The value as an instance of a dataclass. Every field must have its annotated type. Nothing is converted.

    Raises:
        RecordError: A field is missing or has another type. The text begins with `place`.
    """
    try:
        # Through JSON once more: strict validation of Python values takes only instances of a dataclass.
        return _adapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        got = "" if first["type"] == "missing" else f", got {reprlib.repr(first['input'])}"
        text = f"{first['msg'][:1].lower()}{first['msg'][1:]}{got}"
        raise RecordError(f"{': '.join(filter(None, (place, field, text)))}. Was the file changed by hand?") from error


def json_text(value: Any, indent: int | None = None) -> str:
    """`value` as JSON: NaN and infinity become null, NumPy's numbers become Python's."""
    values = to_jsonable_python(value, inf_nan_mode="null", fallback=_plain)
    return json.dumps(values, allow_nan=False, indent=indent)


def canonical_hash(value: Any) -> str:
    """SHA-256 of a value as JSON with sorted keys and no spaces: equal values have equal hashes on any machine.

    Example:
        >>> canonical_hash({"b": 1, "a": 2}) == canonical_hash({"a": 2, "b": 1})
        True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def utc_now() -> str:
    """The time now, to the second: UTC in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def system_errors(path: str | Path, done: str) -> Iterator[None]:
    """Raise a `RecordError` for an `OSError` about a file. It names the file, the reason and what to do."""
    try:
        yield
    except RecordError:
        raise
    except OSError as error:
        code, text = error.errno or 0, " ".join(str(error).split())
        reason = f"{error.strerror} ({errno.errorcode[code]})" if code in errno.errorcode else text
        intact = "What was written before is intact." if done == "written" else ""
        parts = (f"{path}: cannot be {done}: {reason}.", intact, _HINTS.get(code, ""))
        failure = RecordError(" ".join(part for part in parts if part))
        failure.errno = error.errno
        raise failure from error


def _plain(value: Any) -> Any:
    """What pydantic does not know: NumPy's numbers, and mappings that are no dict."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Real):
        return value.item()  # pyright: ignore[reportAttributeAccessIssue]
    raise TypeError(f"a record holds numbers, text, lists and mappings, got {type(value).__name__}: {value!r:.80}")
