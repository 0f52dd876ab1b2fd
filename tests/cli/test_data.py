import pyarrow.parquet as pq
import pytest

from gar.cli.data import main
from gar.data import iter_rows
from gar.data.problem_set import load_problems
from gar.errors import ConfigError, DataError, UsageError
from tests.support.errors import raises


def ours(number: int, **changes: object) -> dict[str, object]:
    row = {"id": f"n-{number}", "prompt": f"{number}+1=", "answer": str(number + 1)}
    return row | {"expert_solution": f"The answer is {number + 1}."} | changes


def table(output: str) -> dict[str, int]:
    cells = [line.split("│")[1:3] for line in output.splitlines() if line.count("│") == 3]
    return {label.strip(): int(count.replace(",", "")) for label, count in cells if count.strip()}


def test_check_prints_counts_and_examples(write_rows, capsys):
    path = write_rows(
        ours(1),
        ours(2, expert_solution=""),
        ours(3, prompt="[red]how many?[/red]"),
        ours(4, answer=""),
        ours(5, prompt="1+1="),
        ours(6, expert_solution="The answer is 8."),
        ours(7, expert_solution="8 eggs are left of 9 eggs"),
        "{broken",
        ours(9, id="n-1"),
    )
    assert main(["check", path]) == 1
    output = capsys.readouterr().out
    assert table(output) == {
        "problems": 7,
        "expert solutions": 6,
        "problems without an expert solution (allowed, no bonus)": 1,
        "rows dropped: the answer is empty": 1,
        "repeated prompts": 1,
        "expert answers: ok": 4,
        "expert answers: wrong": 1,
        "expert answers: unparsed": 1,
        "errors": 2,
    }
    assert f"  {path}:2: problem 'n-2'\n" in output
    assert f"  {path}:6: problem 'n-6': expert solution ends in '8', gold is '7'\n" in output
    assert f"  {path}:8: not valid JSON" in output
    assert f"  {path}:9: problem 'n-1'" in output


def test_check_ends_with_a_verdict_and_its_status(write_rows, capsys):
    three = [ours(1), ours(2, expert_solution="The answer is 9."), ours(3, expert_solution=None)]
    for rows, flags, status, verdict, named in (
        ([ours(1), ours(2)], ["--no-compare"], 0, "Usable: ", "2 problems, 2 with an expert solution."),
        (three, [], 0, "Usable: ", "3 problems, 2 with an expert solution. Look at the 1 expert solutions"),
        ([ours(1, expert_solution="")], ["--no-compare"], 3, "Usable for GRPO only: ", "--expert-fields"),
        ([ours(1), ours(2, prompt=5)], ["--no-compare"], 1, "Not usable: ", "rows.jsonl:2: column"),
        ([ours(1, answer="He has 2 eggs. Then 3. And so on")], [], 1, "Not usable: ", "--answer-field"),
    ):
        assert main(["check", write_rows(*rows), *flags]) == status
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.startswith(verdict)
        assert named in last


def test_prepare_writes_a_subset_in_our_columns_and_counts_what_it_leaves_out(write_rows, tmp_path, capsys):
    rows = [{"question": f"{i}?", "answer": f"So {i}.\n#### {i}"} for i in range(50)]
    path, out = write_rows(*rows, {"question": "why?", "answer": "so"}), tmp_path / "out.jsonl"
    command = ["prepare", path, str(out), "--seed", "3", "--num-problems"]
    assert main([*command, "7"]) == 0
    output = capsys.readouterr().out
    assert [*table(output).values()] == [51, 1, 50, 7]
    assert "sha256 " in output
    first = out.read_bytes()
    assert len(load_problems(str(out))) == 7
    assert main([*command, "7", "--overwrite"]) == 0
    assert out.read_bytes() == first
    assert main([*command, "99", "--overwrite"]) == 0
    assert "Fewer than the 99 requested: the source has no more." in capsys.readouterr().out
    with raises(ConfigError):
        main(["prepare", path, path, "--num-problems", "1", "--overwrite"])


def test_prepare_writes_nothing_over_what_it_would_spoil(write_rows, tmp_path, capsys):
    path = write_rows(ours(1), "broken")
    existing = write_rows(ours(1), name="existing.jsonl")
    for arguments in ([path, existing], [path, str(tmp_path / "out.csv")]):
        with raises(ConfigError):
            main(["prepare", *arguments, "--num-problems", "1"])
    with raises(DataError):
        main(["prepare", path, str(tmp_path / "out.jsonl"), "--num-problems", "1"])
    with pytest.raises(SystemExit):
        main(["prepare", path, str(tmp_path / "out.jsonl")])
    assert "--num-problems INT" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
    with raises(UsageError, "usage", "'prepare'?"):
        main(["prepar"])


def test_verl_and_slime_write_every_problem_with_its_expert_solution(write_rows, tmp_path, capsys):
    path, out = write_rows(ours(1), ours(2, expert_solution=None)), tmp_path / "train.parquet"
    assert main(["verl", path, str(out), "--template", "plain"]) == 0
    assert table(capsys.readouterr().out) == {"problems": 2, "without an expert solution": 1}
    first, second = pq.read_table(out).to_pylist()
    assert first["prompt"] == [{"role": "user", "content": "1+1="}]
    assert first["extra_info"] == {"index": 0, "id": "n-1", "problem": "1+1=", "anchors": ["The answer is 2."]}
    assert (first["data_source"], first["reward_model"]) == ("rows", {"style": "rule", "ground_truth": "2"})
    assert second["extra_info"]["anchors"] == []
    assert main(["verl", path, str(out), "--think-open", "<reason>", "--overwrite"]) == 0
    assert "<reason>" in pq.read_table(out).to_pylist()[0]["prompt"][0]["content"]
    out = tmp_path / "slime.jsonl"
    assert main(["slime", path, str(out), "--no-chat", "--template", "plain"]) == 0
    rows = [row for _, row in iter_rows(str(out))]
    assert [(row["prompt"], row["metadata"]["anchors"]) for row in rows] == [
        ("1+1=", ["The answer is 2."]),
        ("2+1=", []),
    ]
    assert "1 of 2 lack one" in capsys.readouterr().out


def test_shuffled_expert_solutions_come_with_the_prompt_that_they_answer(write_rows, tmp_path):
    path, out = write_rows(ours(1), ours(2, expert_solution="The answer is 3.")), tmp_path / "train.parquet"
    assert main(["verl", path, str(out), "--template", "plain", "--shuffle-anchors", "0"]) == 0
    first, _ = (row["extra_info"] for row in pq.read_table(out).to_pylist())
    assert (first["problem"], first["anchors"]) == ("1+1=", ["The answer is 3."])
    assert first["anchor_prompt"] == [{"role": "user", "content": "2+1="}]
    out = tmp_path / "slime.jsonl"
    assert main(["slime", path, str(out), "--template", "plain", "--shuffle-anchors", "0"]) == 0
    row = next(row for _, row in iter_rows(str(out)))
    assert row["metadata"] == {name: value for name, value in first.items() if name != "index"}


@pytest.mark.data
def test_check_compares_the_expert_solutions_of_gsm8k(data_dir, capsys):
    assert main(["check", str(data_dir / "gsm8k_train_2000.jsonl")]) == 0
    found = {
        label: count for label, count in table(capsys.readouterr().out).items() if label.startswith("expert answers")
    }
    assert tuple(found.values()) == (1933, 11, 56)
