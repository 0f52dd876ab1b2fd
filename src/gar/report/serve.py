"""`gar report --serve`: the page of runs that may still be training, for browsers on this machine alone.

    /                                 the page; with ?run=NAME&run=NAME the report on these runs, with ?all the table
    /runs.json                        the table of all runs
    /report.json?run=NAME             a report without rollouts and figures
    /rollouts.json?run=NAME&step=12   its rollouts, step 12 whole
    /pictures.json?run=NAME           its figures

A page asks again every few seconds. If no file of the runs has changed, the answer is 304. Run names are looked up
among the runs that the server found; no path comes from the browser. The Host header must name this machine, so that
no other site can reach the server under its own name (DNS rebinding).
"""

import contextlib
import hashlib
import re
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode

from gar.errors import ConfigError, GarError
from gar.records.contents import RunContents, is_run_folder
from gar.records.contents import read_run as read_contents
from gar.report.build import live_rollouts, summary_report
from gar.report.definitions import DEFINITIONS
from gar.report.figures import pictures
from gar.report.groups import RunGroup, group_runs
from gar.report.options import ReportOptions
from gar.report.page import content_json, live_page
from gar.report.read import read_run
from gar.report.runs import find_runs, runs_table

_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?", re.IGNORECASE)
"""Any port, since a tunnel may use another one."""
_FILES = ("run.json", "config.yaml", "metrics.jsonl", "evaluation/*")
_MORE_FILES = ("rollouts/*", "figures/*", "analysis/*/*")
_MAX_KEPT = 16
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class LiveReport:
    """The parts of the page, made again only when a file of their runs has changed.

    Args:
        paths: Run folders, or folders of them.
        options: Options of the report.

    Raises:
        GarError: From any method: a folder has no run, or cannot be read.
    """

    def __init__(self, paths: Sequence[Path], options: ReportOptions) -> None:
        self._paths, self._options = paths, options
        self._lock = threading.Lock()
        self._parts: dict[tuple[object, ...], tuple[str, bytes]] = {}
        self._groups: tuple[object, Sequence[RunGroup]] = (None, ())
        self._contents: dict[Path, tuple[str, RunContents]] = {}
        self.opens_with = [] if any(not is_run_folder(path) for path in paths) else list(find_runs(paths))
        """The runs to show first; empty to show the table of all runs."""

    def part(self, name: str, runs: Sequence[str], steps: Sequence[int], known: str | None) -> tuple[str, bytes | None]:
        """A part of the page as JSON, and its tag; None in its place if `known` is that tag.

        Raises:
            KeyError: No such part or run.
        """
        if name != "runs" and not runs:
            raise KeyError(name)
        with self._lock:
            by_name = find_runs(self._paths)
            paths = [by_name[run] for run in runs] if name != "runs" else list(by_name.values())
            patterns = _FILES if name == "runs" else (*_FILES, *_MORE_FILES)
            tag = _digest(*paths, *(_stamp(path, patterns) for path in paths), steps)
            if tag == known:
                return tag, None
            key = (name, *runs, *steps)
            if self._parts.get(key, ("",))[0] != tag:
                if len(self._parts) >= _MAX_KEPT:
                    self._parts.clear()
                self._parts[key] = tag, self._json(name, dict(zip(runs or by_name, paths, strict=True)), steps, tag)
            return self._parts[key]

    def stop(self) -> None:
        """Wait for the current request and block others: a process that exits while a thread reads Parquet crashes."""
        self._lock.acquire()

    def _json(self, name: str, runs: dict[str, Path], steps: Sequence[int], tag: str) -> bytes:
        if name == "runs":
            table = runs_table({run: self._read(path) for run, path in runs.items()})
            content = {"all_runs": table, "definitions": DEFINITIONS}
        elif name == "report":
            content = summary_report(self._read_groups(runs, tag))
        elif name == "rollouts":
            content = live_rollouts(self._read_groups(runs, tag), self._options, steps)
        elif name == "pictures":
            content = pictures(self._read_groups(runs, tag), [])
        else:
            raise KeyError(name)
        return content_json(content).encode("utf-8", "replace")

    def _read(self, path: Path) -> RunContents:
        stamp = _stamp(path, _FILES)
        if self._contents.get(path, ("",))[0] != stamp:
            self._contents[path] = stamp, read_contents(path)
        return self._contents[path][1]

    def _read_groups(self, runs: dict[str, Path], tag: str) -> Sequence[RunGroup]:
        if self._groups[0] != (key := (*runs, tag)):
            self._groups = key, group_runs([read_run(path) for path in runs.values()])
        return self._groups[1]


def _stamp(folder: Path, patterns: Sequence[str]) -> str:
    """Changes whenever a file of the folder does."""
    facts = []
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):  # merged or replaced in the meantime
            status = path.stat()
            facts.append((path, status.st_size, status.st_mtime_ns))
    return _digest(*facts)


def _digest(*values: object) -> str:
    return hashlib.sha256(repr(values).encode("utf-8", "surrogateescape")).hexdigest()[:16]


class ReportServer(ThreadingHTTPServer):
    """Serves a live report on 127.0.0.1.

    Args:
        report: The report.
        port: The port; 0 takes a free one.

    Raises:
        ConfigError: The port is taken or not allowed.
    """

    daemon_threads = True

    def __init__(self, report: LiveReport, port: int) -> None:
        self.report = report
        self.page = live_page()
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise ConfigError(f"--port {port} cannot be used: {error.strerror}. --port 0 takes a free one.") from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "gar", ""
    server: ReportServer  # pyright: ignore[reportIncompatibleVariableOverride] - the only server that uses it

    def do_GET(self) -> None:
        """Answer one request."""
        path, _, text = self.path.partition("?")
        query = parse_qs(text)
        runs = query.get("run", [])
        if not _HOST.fullmatch(self.headers.get("Host", "")):
            self._answer(403, b"This server answers to 127.0.0.1 and localhost alone.", "text/plain")
        elif path == "/" and not runs and self.server.report.opens_with and text != "all":
            shown = urlencode([("run", run) for run in self.server.report.opens_with])
            self._answer(302, b"", "text/plain", {"Location": f"/?{shown}"})
        elif path == "/":
            self._answer(200, self.server.page, "text/html; charset=utf-8")
        else:
            self._answer_part(path.removeprefix("/").removesuffix(".json"), runs, query.get("step", []))

    def _answer_part(self, name: str, runs: Sequence[str], steps: Sequence[str]) -> None:
        try:
            wanted = [int(step) for step in steps]
            tag, content = self.server.report.part(name, runs, wanted, self.headers.get("If-None-Match"))
        except (KeyError, ValueError) as error:
            self._answer_error(404, "not found (any more): " + ", ".join(map(str, error.args)))
        except (GarError, OSError) as error:  # the run was moved, or one of its files replaced
            self._answer_error(500, str(error))
        else:
            self._answer(200 if content is not None else 304, content or b"", "application/json", {"ETag": tag})

    def _answer_error(self, status: int, text: str) -> None:
        self._answer(status, content_json({"error": text}).encode("utf-8", "replace"), "application/json")

    def _answer(self, status: int, content: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        with contextlib.suppress(ConnectionError):  # the page was closed or reloaded
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **_HEADERS}.items():
                self.send_header(name, value)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


def serve(paths: Sequence[Path], port: int, options: ReportOptions) -> None:
    """Serve until Ctrl-C.

    Args:
        paths: Run folders, or folders of them.
        port: The port; 0 takes a free one.
        options: Options of the report.

    Raises:
        GarError: There is no run, or the port cannot be used.
    """
    find_runs(paths)
    report = LiveReport(paths, options)
    with ReportServer(report, port) as server:
        print(f"Report  {server.url}  (for this machine alone; Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    report.stop()
    print("\nStopped.")
