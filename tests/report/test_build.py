"""The page: whole, small, closed to the network and to what models write; and honest about what it leaves out."""

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from gar import GARScorer, ResponseGroup
from gar.cli.main import main
from gar.data.arithmetic import load_arithmetic
from gar.errors import ConfigError, RecordError
from gar.models.embedded import embedded_path, load_embedded
from gar.records import RunFolder, open_run
from gar.records.rollouts import append_rollouts, record_table
from gar.report import ReportOptions
from gar.report.build import make_report, write_report
from gar.report.definitions import DEFINITIONS
from gar.report.page import MAX_BYTES, SCRIPTS, _asset
from gar.report.rollouts import browser_rollouts
from gar.types import Status
from gar.verify import Verifier
from tests.report.runs import PROBLEMS, evaluation, make_run, rollout, sample, wrong
from tests.support.damage import flip
from tests.support.errors import raises
from tests.support.runs import relist, write_evaluation, write_samples

HOSTILE = (
    "</script ></script><script>alert(1)</script><!-- </textarea><img src=x onerror=alert(2)> \u2028 \u202e & \x00"
)


def data_of(text: str) -> dict:
    return json.loads(re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)[0])


def write(tmp_path, run, **options):
    report = write_report([run], tmp_path / "page.html", ReportOptions(**options))
    return report, (tmp_path / "page.html").read_text(encoding="utf-8")


def test_hostile_texts_leave_no_markup(tmp_path):
    hostile = rollout(1, 0, 0, response=HOSTILE, prompt=HOSTILE, answer=HOSTILE)
    run = make_run(tmp_path, "a<b>", rollouts={1: [hostile]})
    _, text = write(tmp_path, run)
    inside = text.split('id="report">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(inside)
    assert text.count("</script") == 2
    assert "<title>a&lt;b&gt;</title>" in text
    (shown,) = data_of(text)["groups"]
    assert (shown["prompt"], shown["responses"][0]["text"]) == (HOSTILE, HOSTILE)


def test_the_policy_allows_the_style_and_the_script_inside_and_nothing_else(tmp_path):
    _, text = write(tmp_path, make_run(tmp_path))
    policy = re.findall(r'Content-Security-Policy" content="(.*?)"', text)[0]
    assert policy.startswith("default-src 'none'")
    for kind, tag in (("script", "<script>"), ("style", "<style>")):
        inside = text.split(tag)[1].split(f"</{kind}>")[0]
        found = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{found}'" in policy
    assert "unsafe" not in policy


def test_scripts_never_turn_text_into_html():
    for name in SCRIPTS:
        script = _asset(name)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|DOMParser|srcdoc", script)
        assert not re.search(r"XMLHttpRequest|https?://(?!www\.w3\.org/)", script)
        assert "fetch(" not in script


def test_equal_runs_give_equal_pages(tmp_path):
    first, second = (make_run(tmp_path / name) for name in ("a", "b"))
    for path in (first, second):
        folder = RunFolder(path)
        record = replace(folder.read_run(), start_time="t", end_time="t")
        folder._write_sums(record)
        folder._write_run(record)
    assert write(tmp_path / "a", first)[1] == write(tmp_path / "b", second)[1]


@pytest.mark.slow
def test_100_000_rollouts_stay_small_and_say_what_was_drawn(tmp_path):
    run = RunFolder(make_run(tmp_path, steps=1, rollouts={}))
    text = "So $x^2$. " + "The answer is forty-two. " * 40
    for step in range(1, 101):
        rows = [rollout(step, i // 10, i % 10, response=text) for i in range(10)]
        table = record_table(rows)
        at, column = table.schema.get_field_index("group_index"), table.schema.field("group_index")
        parts = [table.set_column(at, column, pa.array([group] * 10)) for group in range(100)]
        append_rollouts(run.path, pa.concat_tables(parts))
    relist(run.path)
    report, page = write(tmp_path, run.path, max_rollouts=50_000)
    shown = sum(len(group.responses) for group in report.groups)
    assert len(page.encode()) < MAX_BYTES
    assert 2_000 < shown < 50_000
    assert report.rollout_notes[0] == f"Shown: {shown:,} of 100,000 recorded rollouts."
    assert "left out at random" in report.rollout_notes[1]
    assert {group.step for group in report.groups} == {*range(1, 101)}


def test_markup_in_responses_counts_with_the_bytes_of_its_escapes(tmp_path, monkeypatch):
    monkeypatch.setattr("gar.report.build.MAX_BYTES", 400_000)
    rows = {step: [rollout(step, 0, i, response="<a>" * 400) for i in range(4)] for step in range(1, 101)}
    report, page = write(tmp_path, make_run(tmp_path, rollouts=rows))
    assert 1 < len(report.groups) < 100
    assert len(page.encode()) < 400_000


def test_groups_are_drawn_whole_whatever_they_hold(tmp_path):
    rows = {step: [(rollout, wrong)[i % 2](step, g, i) for g in range(5) for i in range(4)] for step in range(1, 11)}
    run = open_run(make_run(tmp_path, steps=10, rollouts=rows))
    drawn, again, one = (browser_rollouts([run], ReportOptions(max_rollouts=most), 10**6)[0] for most in (60, 60, 1))
    assert [len(group.responses) for group in drawn] == [4] * 15
    assert drawn == again
    assert len(one) == 1


def test_runs_with_no_right_response_or_almost_nothing_make_a_page(tmp_path):
    run = make_run(tmp_path, steps=1, rollouts={1: [wrong(1, 0, 0), wrong(1, 0, 1)]}, evaluations={})
    report, _ = write(tmp_path, run)
    assert any("none of its 2 responses was right" in note for note in report.notes)
    assert report.headline.startswith("No verdict")
    run = make_run(tmp_path, "bare", steps=0, rollouts={}, evaluations={}, status="running")
    report = write_report([run], tmp_path / "bare.html")
    assert (report.charts, report.groups, len(report.notes)) == ([], [], 4)
    assert report.rollout_notes[0] == "No rollouts were recorded."


def test_every_number_on_the_page_has_a_definition(tmp_path):
    runs = [
        make_run(tmp_path, f"r{i}", seed=i // 2, settings={"method": ("grpo", "gar-grpo")[i % 2]}) for i in range(4)
    ]
    RunFolder(runs[0]).append_metrics({"step": 7, "eval/test/pass@1": 0.5})
    relist(runs[0])
    several, one = (make_report([open_run(run) for run in some], ReportOptions()) for some in (runs, runs[:1]))
    labels = {label for report in (several, one) for table in report.tables.values() for label in table.columns}
    labels |= {*one.all_runs.columns, *(chart.title for chart in several.charts)}
    labels -= {"run", "runs", "on", "status", "method", "model", "data", "start", "wrong"}
    facts = re.findall(r"\['\w+', '([^']+)'\]", _asset("rollouts.js").split("const FACTS")[1].split(";")[0])
    assert len(facts) == 6
    terms = {key for name in SCRIPTS for key in re.findall(r"term\('[^']+', '([^']+)'\)", _asset(name))}
    assert {re.sub(".*pass@1$", "pass@k", name.lower()) for name in {*labels, *facts, *terms}} <= DEFINITIONS.keys()


def test_curves_of_seeds_are_means_with_the_range_of_seeds_and_long_ones_keep_their_ends(tmp_path):
    runs = [open_run(make_run(tmp_path, f"s{seed}", seed=seed, steps=3 + seed)) for seed in (0, 1)]
    for run, factor in zip(runs, (1, 3), strict=True):
        run.metrics = [{**row, "reward": factor * row["step"]} for row in run.metrics]
    (line,) = make_report(runs, ReportOptions()).charts[0].series
    assert (line.label, line.steps) == ("gar-grpo, 2 seeds", [1, 2, 3])
    assert (line.values, line.bands) == ([2, 4, 6], [([1, 2, 3], [3, 6, 9])])
    runs[0].metrics = [{"step": step, "reward": None if step == 2 else step / 2} for step in range(1, 3001)]
    line = make_report(runs[:1], ReportOptions()).charts[0].series[0]
    assert (line.steps[0], line.steps[-1], len(line.steps), len(line.values), len(line.bands[0][0])) == (
        1,
        3000,
        *[1000] * 3,
    )
    assert (line.bands[0][0][0], line.values[-1], line.bands[0][1][-1]) == (0.5, 1462.5, 1500)  # the last 151 steps


def test_expert_solutions_come_from_the_runs_own_source_or_the_named_one(tmp_path):
    run = make_run(tmp_path, rollouts={1: [rollout(1, 0, 0), rollout(1, 1, 0, gold="99")]})
    report, _ = write(tmp_path, run)
    expert = {p.id: p.anchors[0].text for p in load_arithmetic("train")}
    right, other = report.groups
    assert (right.expert, other.expert) == (expert[right.problem_id], "")
    assert any("1 of 2 drawn problems were not found" in note for note in report.rollout_notes)
    run = make_run(tmp_path, "2", settings={"data": {"source": "somebody/numina"}}, rollouts={1: [rollout(1, 0, 0)]})
    report = write_report([run], tmp_path / "2.html")
    assert any("a report fetches nothing. Name a file with --problems" in note for note in report.rollout_notes)
    problem = PROBLEMS[10]
    row = {"id": problem.id, "prompt": problem.prompt, "answer": problem.answer, "expert_solution": "because $x$"}
    (tmp_path / "problems.jsonl").write_text(json.dumps(row) + "\n")
    report = write_report([run], tmp_path / "2.html", ReportOptions(problems=str(tmp_path / "problems.jsonl")))
    assert report.groups[0].expert == "because $x$"


def test_token_shares_sum_to_the_alignment_under_the_named_weights(tmp_path):
    run = make_run(tmp_path, rollouts={1: [rollout(1, 0, 0)]}, settings={"evaluate": {"sources": ("test",)}})
    write_samples(RunFolder(run), "after", [sample(0, 0)])
    relist(run)
    report, _ = write(tmp_path, run, token_shares=True)
    assert any("no token shares, since it has no final model" in note for note in report.rollout_notes)
    shutil.copytree(embedded_path(), run / "model")
    report, _ = write(tmp_path, run, token_shares=True)
    assert any("is not listed in SHA256SUMS" in note for note in report.rollout_notes)
    relist(run)
    report, _ = write(tmp_path, run, token_shares=True)
    assert any("token shares are under the final weights" in note for note in report.rollout_notes)
    shares, of_sample = (group.responses[0].shares for group in report.groups)
    assert shares.alignment == pytest.approx(1, abs=1e-3)  # the response is the expert solution
    assert of_sample.alignment == pytest.approx(1, abs=1e-3)
    assert sum(share or 0 for share in shares.shares) == pytest.approx(shares.alignment, abs=2e-3)
    assert "".join(shares.tokens).split() == PROBLEMS[10].anchors[0].text.split()


def test_token_shares_are_of_the_runs_own_signal_and_prompt(tmp_path):
    model, tokenizer = load_embedded()
    tokenizer.chat_template = "{{ messages[0]['content'] }}{{ '3+' if short else '4*5+6=' }}"
    messages = [{"role": "user", "content": "7+"}]
    problem, text = PROBLEMS[10], "<think> maybe 3 </think> <answer> 3 </answer>"
    shown = []
    for name, settings in (
        ("plain", {}),
        ("hidden", {"method": "hidden-cosine"}),
        ("chat", {"trl": {"chat_template_kwargs": {"short": True}}}),
        ("shuffled", {"method": "anchor-shuffled"}),
    ):
        run = make_run(
            tmp_path, name, settings=settings, rollouts={1: [rollout(1, 0, 0, prompt=messages, response=text)]}
        )
        model.save_pretrained(run / "model")
        tokenizer.save_pretrained(run / "model")
        relist(run)
        report, _ = write(tmp_path, run, token_shares=True)
        shown.append(report.groups[0].responses[0].shares)
    plain, hidden, chat, shuffled = shown
    assert shuffled is None
    assert "shuffled: alignments are with another problem's expert solution, not with the expert solutions shown." in (
        report.rollout_notes
    )
    assert any("no token shares, since anchor-shuffled compares with something else" in n for n in report.rollout_notes)
    for found, method, prompt in (
        (plain, "gar-grpo", "7+4*5+6="),
        (hidden, "hidden-cosine", "7+4*5+6="),
        (chat, "gar-grpo", "7+3+"),
    ):
        scorer = GARScorer(model, tokenizer, method=method, verifier=Verifier(), score_all=True)
        group = {"prompt": prompt, "responses": [text], "anchors": [problem.anchors[0].text], "eligible": [True]}
        (expected,) = scorer.score([ResponseGroup(**group)])
        assert found.alignment == pytest.approx(expected.alignment, abs=1e-4)
    assert len({plain.alignment, hidden.alignment, chat.alignment}) == 3


def test_responses_that_were_not_graded_are_noted(tmp_path):
    run = make_run(tmp_path, evaluations={}, status="running")
    numbers = evaluation([3, 4])
    numbers["test"]["status_counts"] = {"ok": 7, "error": 1}
    write_evaluation(RunFolder(run), "after", numbers)
    report, _ = write(tmp_path, run)
    assert "run, after: 1 of 8 responses on test were not graded (timeout or error) and count as wrong." in report.notes


def test_small_numbers_keep_their_digits(tmp_path):
    row = rollout(1, 0, 0, signal_norm=3.2100049e-6, num_tokens=123456, advantage=0.123456789, bonus=0.0)
    report, _ = write(tmp_path, make_run(tmp_path, rollouts={1: [row]}))
    numbers = report.groups[0].responses[0].numbers
    found = [numbers[name] for name in ("signal_norm", "num_tokens", "advantage", "bonus")]
    assert found == [3.21e-6, 123456, 0.12346, 0]


def test_the_spread_is_of_all_scored_right_responses_by_steps(tmp_path):
    rows = {step: [rollout(step, 0, i, alignment=(step + i) / 1000) for i in range(11)] for step in range(1, 101)}
    gated = rollout(100, 1, 0, eligible=False, verified=False, alignment=0.9, reward=0.0)
    run = make_run(tmp_path, steps=100, rollouts=rows | {100: [*rows[100], gated, rollout(100, 1, 1, alignment=None)]})
    (chart,) = [chart for chart in write(tmp_path, run)[0].charts if chart.title == "Alignment spread"]
    (line,) = chart.series
    assert (len(line.steps), line.steps[-1]) == (40, 100)  # the last window: 99 and 100
    last = np.array([(step + i) / 1000 for step in (99, 100) for i in range(11)])
    (low, high), (quarter, three) = line.bands
    shown = [edge[-1] for edge in (low, quarter, line.values, three, high)]
    assert shown == pytest.approx(np.quantile(last, (0.1, 0.25, 0.5, 0.75, 0.9)))


def test_a_run_without_alignment_has_no_spread(tmp_path):
    unscored = [rollout(1, 0, i, eligible=False, alignment=None, reward=0.0) for i in range(2)]
    titles = {chart.title for chart in write(tmp_path, make_run(tmp_path, rollouts={1: unscored}))[0].charts}
    assert "Reward" in titles
    assert "Alignment spread" not in titles


def test_samples_of_evaluations_are_shown_whole_before_and_after(tmp_path):
    run = make_run(tmp_path, steps=1, settings={"evaluate": {"sources": ("test",)}})
    for moment, status in (("before", Status.WRONG), ("after", Status.OK)):
        rows = [sample(p, i, status=status, verified=status == Status.OK) for p in range(50) for i in range(4)]
        write_samples(RunFolder(run), moment, rows)
    relist(run)
    report, _ = write(tmp_path, run, max_rollouts=40)
    shown = [group for group in report.groups if group.moment]
    assert report.rollout_notes[1] == "Shown: 40 of 400 samples of evaluations."
    assert {len(group.responses) for group in shown} == {4}
    before, after = ([g.problem_id for g in shown if g.moment == moment] for moment in ("before", "after"))
    assert before == after
    assert {(g.moment, r.verdict) for g in shown for r in g.responses} == {("before", "wrong"), ("after", "right")}
    experts = {problem.id: problem.anchors[0].text for problem in load_arithmetic("test")}
    assert all(group.expert == experts[group.problem_id] for group in shown)


def test_a_run_without_an_end_says_how_far_it_came_and_why_it_ended(tmp_path):
    run = make_run(tmp_path, steps=2, status="failed", evaluations={})
    read, error = open_run(run), {"text": "ValueError: no such rate", "place": "gar/train/run.py:1 in train"}
    report = make_report([replace(read, record=replace(read.record, error=error))], ReportOptions())
    assert report.headline.startswith("No verdict: run: the run failed before its end")
    assert "(ValueError: no such rate; gar/train/run.py:1 in train)" in report.headline
    assert report.runs[0].facts["error.text"] == "ValueError: no such rate"


def test_gar_report_writes_html_alone_and_prints_the_verdict(tmp_path, capsys):
    run = make_run(tmp_path, "run")
    with raises(ConfigError):
        write_report([run], tmp_path / "notes.md")
    (tmp_path / "mine.html").write_text("<h1>mine</h1>")
    with raises(ConfigError, None, "mine.html"):
        write_report([run], tmp_path / "mine.html")
    assert (tmp_path / "mine.html").read_text() == "<h1>mine</h1>"
    for _ in range(2):
        assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("After training: better on test.\n")
    assert "page.html (0." in printed


def test_damaged_runs_are_left_out_and_named(tmp_path, capsys):
    _, cut, changed = (make_run(tmp_path / "runs", name) for name in ("whole", "cut", "changed"))
    (cut / "metrics.jsonl").write_text("{")
    rollouts = next((changed / "rollouts").iterdir())
    flip(rollouts)
    for arguments in (["--out", str(tmp_path / "page.html")], ["--text"]):
        assert main(["report", str(tmp_path / "runs"), *arguments]) == 1
        printed = capsys.readouterr().out
        for path in (cut / "metrics.jsonl", rollouts):
            assert f"- Left out: {path} is not what was written" in printed
    assert f"Left out: {rollouts}" in (tmp_path / "page.html").read_text()
    with raises(RecordError, "damage", str(cut), str(changed)):
        write_report([cut, changed], tmp_path / "page.html")


def test_gar_report_watches_until_it_is_interrupted(tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path, rollouts={})
    waits = iter([None, KeyboardInterrupt()])

    def sleep(seconds):
        assert seconds == 5
        (tmp_path / "page.html").unlink()
        if wait := next(waits):
            raise wait

    monkeypatch.setattr("gar.cli.report.time.sleep", sleep)
    assert main(["report", str(run), "--out", str(tmp_path / "page.html"), "--watch", "5"]) == 130
    assert len(capsys.readouterr().out.splitlines()) > 2


def test_a_page_about_one_run_lies_in_its_folder_and_about_several_in_the_current_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = make_run(tmp_path, evaluations={})
    for _ in range(2):  # the second replaces the first
        assert main(["report", str(run)]) == 0
    out = capsys.readouterr().out
    assert "No verdict: run: the model was measured neither before nor after training: --evaluate.sources" in out
    assert (run / "report.html").read_bytes().endswith(b"</html>\n")
    assert RunFolder.open(run).read_run().status == "finished"
    assert main(["report", str(run), str(make_run(tmp_path, "other"))]) == 0
    assert "Report  report.html" in capsys.readouterr().out
    assert (tmp_path / "report.html").is_file()
