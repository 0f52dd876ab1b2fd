"""`gar eval`: the stages on the embedded model and task, processes that are killed, and what the command rejects."""

import json
from pathlib import Path
from typing import Any

import pytest

import gar.evaluation.sampling
from gar.cli.main import main

SET = ["--benchmark", "arithmetic", "--max-new-tokens", "40"]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Two evaluations of one model that differ in their seed, and what `run` printed of the first."""
    folder = tmp_path_factory.mktemp("evals")
    for seed in (0, 1):
        out = str(folder / f"seed{seed}")
        assert main(["eval", "run", "embedded", *SET, "--samples", "8", "--limit", "24", "--seed", str(seed),
                     "--out", out]) == 0  # fmt: skip
    return folder


# What the command understands.


def test_eval_without_a_stage_is_wrong_usage(capsys):
    assert main(["eval"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: gar eval STAGE")


def test_eval_refuses_an_unknown_stage(capsys):
    assert main(["eval", "genrate"]) == 2
    assert "unknown stage 'genrate', expected one of generate, score, run, list" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["generate", "embedded", "--benchmark", ","], "name a benchmark: --benchmark NAME"),
        (
            ["generate", "embedded", "--benchmark", "aritmetic"],
            "unknown benchmark 'aritmetic', did you mean 'arithmetic'",
        ),
        (["score"], "name a folder that `gar eval generate` wrote"),
        (["score", "nowhere"], "nowhere: no such folder"),
        (["table", "a", "b"], "a: no such folder"),
    ],
)
def test_eval_explains_what_it_refuses(capsys, arguments, text):
    assert main(["eval", *arguments]) == 1
    said = capsys.readouterr().err
    assert text in said
    assert "loading torch" not in said


def test_eval_says_how_to_go_on_when_interrupted(monkeypatch, capsys):
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gar.evaluation.sampling, "generate", interrupt)
    assert main(["eval", "run", "embedded", *SET]) == 130
    assert "gar eval: interrupted; run the same command again to continue." in capsys.readouterr().err


def test_eval_list_names_the_sets_and_where_they_come_from(capsys):
    assert main(["eval", "list"]) == 0
    out = capsys.readouterr().out
    competitions = ["aime-2026", "hmmt-feb-2025", "hmmt-feb-2026", "imo-answerbench-v1", "imo-answerbench-v2"]
    for name in (*competitions, "gpqa-diamond", "mmlu-pro", "math-500", "gsm8k", "arithmetic"):
        assert name in out
    assert "Idavidrein/gpqa, gated" in out


def test_eval_shows_the_prompt_as_the_model_sees_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "run", "embedded", "--benchmark", "arithmetic", "--show-prompts"]) == 0
    out = capsys.readouterr().out
    assert "===== arithmetic, as-is: the first prompt as the model sees it =====\n1 + 9 - 1 * 1 * 3 =\n" in out
    assert list(tmp_path.iterdir()) == []


# What it does.


def test_eval_run_writes_every_sample_and_its_verdict(finished):
    folder = finished / "seed0" / "arithmetic"
    assert sorted(path.name for path in folder.iterdir()) == [
        "metrics.json", "problems.jsonl", "samples.jsonl", "set.json", "verdicts.jsonl",
    ]  # fmt: skip
    problems, samples, verdicts = (lines_of(folder / f"{name}.jsonl") for name in ("problems", "samples", "verdicts"))
    keys = [(f"test-{number}", sample) for number in range(24) for sample in range(8)]
    for rows in (samples, verdicts):
        assert sorted((row["problem"], row["sample"]) for row in rows) == sorted(keys)
    assert [problem["id"] for problem in problems] == [f"test-{number}" for number in range(24)]
    first = samples[0]
    assert set(first) == {"problem", "sample", "text", "tokens", "stop", "seed", "prompt_hash", "prefilled_think"}
    by_id = {problem["id"]: problem for problem in problems}
    assert all(sample["prompt_hash"] == by_id[sample["problem"]]["prompt_hash"] for sample in samples)
    assert len({problem["prompt_hash"] for problem in problems}) == 24
    identity = json.loads((folder / "set.json").read_text())
    assert identity["sampling"] == {
        "num_samples": 8, "temperature": 1.0, "top_p": 1.0, "seed": 0, "max_new_tokens": 40,
    }  # fmt: skip
    assert identity["prompt"]["form"] == "as-is"


def test_eval_numbers_are_those_of_the_verdicts(finished):
    folder = finished / "seed0" / "arithmetic"
    metrics = json.loads((folder / "metrics.json").read_text())
    verdicts = lines_of(folder / "verdicts.jsonl")
    right = sum(verdict["verified"] and verdict["well_formatted"] for verdict in verdicts)
    assert metrics["pass_at"]["1"] == pytest.approx(right / 192)
    assert metrics["majority_at"]["1"] == pytest.approx(metrics["pass_at"]["1"])
    solved = {verdict["problem"] for verdict in verdicts if verdict["correct"]}
    assert metrics["pass_at"]["8"] == pytest.approx(len(solved) / 24)
    assert metrics["mean_response_tokens"] == pytest.approx(sum(v["num_tokens"] for v in verdicts) / 192)
    assert sum(metrics["status_counts"].values()) == 192
    low, high = metrics["interval_95"]["1"]
    assert low < metrics["pass_at"]["1"] < high
    assert metrics["notes"] == ["The first 24 of 200 problems."]


def test_eval_score_says_again_what_run_said(finished, capsys):
    path = finished / "seed0" / "arithmetic" / "metrics.json"
    before = path.read_bytes()
    assert main(["eval", "score", str(finished / "seed0")]) == 0
    assert path.read_bytes() == before
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert ["pass@1", f"{json.loads(before)['pass_at']['1']:.3f}"] in [row[:2] for row in cells]


def test_eval_score_takes_other_ks_and_refuses_those_beyond_the_samples(finished, capsys, tmp_path):
    assert main(["eval", "score", str(finished / "seed1"), "--pass-at-k", "3", "5"]) == 0
    metrics = json.loads((finished / "seed1" / "arithmetic" / "metrics.json").read_text())
    assert list(metrics["pass_at"]) == ["3", "5"]
    assert main(["eval", "score", str(finished / "seed1"), "--pass-at-k", "9"]) == 1
    assert "pass@9 needs at least 9 samples per problem" in capsys.readouterr().err


def test_eval_refuses_to_go_on_with_other_settings(finished, capsys):
    out = ["--out", str(finished / "seed0"), "--samples", "8", "--limit", "24"]
    assert main(["eval", "generate", "embedded", *SET, *out, "--temperature", "0.7"]) == 1
    error = capsys.readouterr().err
    assert "begun with other settings, input or model: sampling.temperature was 1.0, is 0.7. Repeat" in error


def test_eval_score_with_half_its_verdicts_goes_on_where_it_stopped(finished, tmp_path):
    folder = finished / "seed0" / "arithmetic"
    whole = (folder / "verdicts.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    (folder / "verdicts.jsonl").write_bytes(b"".join(lines[:100]) + lines[100][:20])
    assert main(["eval", "score", str(folder)]) == 0
    assert (folder / "verdicts.jsonl").read_bytes() == whole


def test_eval_score_refuses_a_set_that_is_not_complete(tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["eval", "generate", "embedded", *SET, "--samples", "2", "--limit", "4", "--out", out]) == 0
    samples = tmp_path / "out" / "arithmetic" / "samples.jsonl"
    samples.write_bytes(b"".join(samples.read_bytes().splitlines(keepends=True)[:5]))
    assert main(["eval", "score", out]) == 1
    assert "5 of 8 samples are there. Run the same `gar eval generate` again for the rest." in capsys.readouterr().err
