"""The live page: this machine alone, only what has changed, and never a path from the browser."""

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gar.cli.main import main
from gar.errors import ConfigError
from gar.records import RunFolder
from gar.report.options import ReportOptions
from gar.report.serve import LiveReport, ReportServer
from tests.report.runs import make_run, rollout


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    content: Any


@pytest.fixture
def runs(tmp_path) -> Path:
    """A folder of runs: one that trains, and one deeper that is done."""
    settings = {"records": {"tags": ("<b>",)}, "trl": {"max_steps": 1000}}
    make_run(tmp_path / "runs", "new", steps=2, status="running", evaluations={}, settings=settings)
    make_run(tmp_path / "runs" / "old", "done", steps=1, seed=1)
    return tmp_path / "runs"


@pytest.fixture
def server(runs) -> Iterator[ReportServer]:
    with ReportServer(LiveReport([runs], ReportOptions(max_rollouts=4)), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: ReportServer, path: str, **headers: str) -> Answer:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    kind = answer.headers.get("Content-Type", "")
    return Answer(answer.status, dict(answer.headers), json.loads(content or b"null") if "json" in kind else content)


def test_the_table_lists_the_runs_below_the_folder(server):
    table = ask(server, "/runs.json").content["all_runs"]
    assert table["keys"] == ["new", "old/done"]
    assert [row[:4] for row in table["rows"]] == [
        ["new", "<b>", "running", "gar-grpo"],
        ["old/done", "", "finished", "gar-grpo"],
    ]
    page = ask(server, "/")
    assert page.status == 200
    assert b"connect-src 'self'" in page.content
    assert b"new" not in page.content.split(b"<body>")[1].split(b"<script>")[0]


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/", "localhost:1", 200),
        ("/", "gar.example", 403),
        ("/runs.json", "127.0.0.1.gar.example", 403),
        ("/runs.json", "[", 403),
        ("/report.json?run=../runs/new", "127.0.0.1", 404),
        ("/rollouts.json?run=new&step=one", "127.0.0.1", 404),
        ("/run.json?run=new", "127.0.0.1", 404),
        ("/report.json", "127.0.0.1", 404),
    ],
)
def test_other_hosts_and_paths_are_refused(server, path, host, status):
    answer = ask(server, path, Host=host)
    assert answer.status == status
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_a_part_is_sent_again_when_its_run_has_grown(server, runs):
    first = ask(server, "/report.json?run=new")
    assert first.content["headline"] == "Training: step 2 of 1,000."
    assert ask(server, "/report.json?run=new", If_None_Match=first.headers["ETag"]).status == 304
    RunFolder(runs / "new").append_metrics({"step": 3, "reward": 0.5})
    again = ask(server, "/report.json?run=new", If_None_Match=first.headers["ETag"])
    assert again.content["headline"] == "Training: step 3 of 1,000."
    assert again.content["charts"][0]["series"][0]["steps"] == [1, 2, 3]


def test_a_step_that_is_asked_for_is_whole(server, runs):
    folder = RunFolder(runs / "new")
    folder.write_rollouts(3, [rollout(3, group, 0) for group in range(6)])
    steps = {path: [group["step"] for group in ask(server, path).content["groups"]]
             for path in ("/rollouts.json?run=new", "/rollouts.json?run=new&step=3")}  # fmt: skip
    whole = steps["/rollouts.json?run=new&step=3"]
    assert whole.count(3) == 6
    assert steps["/rollouts.json?run=new"].count(3) < 6
    assert whole == sorted(whole)


def test_a_run_that_is_removed_is_an_error_in_words(server, runs):
    (runs / "new").rename(runs.parent / "elsewhere")
    assert ask(server, "/report.json?run=new").content == {"error": "not found (any more): new"}


def test_runs_that_are_named_open_at_once(runs):
    report = LiveReport([runs / "new", runs / "old" / "done"], ReportOptions())
    assert report.opens_with == ["new", "done"]
    with ReportServer(report, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert ask(server, "/").headers["Location"] == "/?run=new&run=done"
        assert ask(server, "/?all").status == 200
        with pytest.raises(ConfigError, match=r"--port \d+ cannot be used: Address already in use. --port 0 takes"):
            ReportServer(report, server.server_port)
        server.shutdown()


def test_stopping_waits_for_what_is_being_read(runs, monkeypatch):
    reading, may_end, done = threading.Event(), threading.Event(), []

    def slow(self, *_):
        reading.set()
        may_end.wait()
        done.append(True)
        return b"{}"

    monkeypatch.setattr(LiveReport, "_json", slow)
    server = ReportServer(LiveReport([runs], ReportOptions()), 0)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    threading.Thread(target=lambda: ask(server, "/runs.json"), daemon=True).start()
    reading.wait()
    threading.Timer(0.1, may_end.set).start()
    server.report.stop()
    assert done
    server.shutdown()
    server.server_close()


def test_gar_report_serve_ends_with_control_c(runs, capsys, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(ReportServer, "serve_forever", interrupted)
    assert main(["report", str(runs), "--serve", "--port", "0"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Report  http://127.0.0.1:")
    assert printed.endswith("Stopped.\n")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "either --out FILE.html"),
        (["--serve", "--out", "page.html"], "either --out FILE.html"),
        (["--serve", "--token-shares", "final"], "--token-shares runs a model"),
    ],
)
def test_gar_report_refuses_what_does_not_go_together(runs, flags, words, capsys):
    assert main(["report", str(runs), *flags]) == 1
    assert words in capsys.readouterr().err
