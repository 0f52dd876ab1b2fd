"""The beginning of an expert solution in the prompt of problems that are never solved."""

from gar.data import iter_rows
from gar.data.arithmetic import load_arithmetic
from gar.data.prepare import write_problems
from gar.data.problem_set import load_problems
from gar.types import Anchor, Problem, Tags
from paper.tasks.guide import guide_problems, main, split_solution

STEPS = "First, 2 + 2 = 4.\nThen 4 * 3 = 12.\nThen 12 - 5 = 7.\nThen 7 + 1 = 8.\n#### 8"


def test_split_solution_cuts_at_the_last_border_within_the_share():
    for solution, share, expected in (
        (STEPS, 0.25, "First, 2 + 2 = 4."),
        (STEPS, 0.75, "First, 2 + 2 = 4.\nThen 4 * 3 = 12.\nThen 12 - 5 = 7."),
        ("<think>\na = 1.\nb = 2.\n</think>\n<answer>2</answer>", 0.75, "a = 1."),
        ("ok 3 plus 4 is 7 then 7 times 7 is 9 so <answer> 9 </answer>", 0.75, "ok 3 plus 4 is 7 then"),
        ("One line without a border 8", 0.75, None),
        ("The answer. \\boxed{8}", 0.75, None),  # nothing would be left but the answer
    ):
        parts = split_solution(solution, share, Tags())
        assert (parts and parts[0]) == expected
        if parts:
            without = ["".join(text.replace("<think>", "").split()) for text in (solution, *parts)]
            assert without[0] == without[1] + without[2]
            assert parts[1].startswith("<think>") == solution.startswith("<think>")


def test_guide_problems_takes_the_shortest_share_that_helps():
    prompts = ("easy", "hard", "harder", "hopeless", "given away")
    problems = [Problem(id=text, prompt=text, answer="8", anchors=(Anchor(text=STEPS),)) for text in prompts]
    problems.append(Problem(id="alone", prompt=[{"role": "user", "content": "alone"}], answer="8"))
    rights = {"easy": [3], "hard": [0, 1], "harder": [0, 0, 7], "hopeless": [0] * 4, "given away": [0, 8, 8, 8]}
    rights["alone"] = [0]
    calls = dict.fromkeys(rights, 0)

    def count_right(asked):
        counts = []
        for problem in asked:
            counts.append(rights[problem.id][calls[problem.id]])
            calls[problem.id] += 1
        return counts

    guided = guide_problems(problems, count_right, num_samples=8, wording="{beginning} | {prompt}")
    assert (guided.num_hard, dict(guided.shares)) == (5, {"hard": 0.25, "harder": 0.5})
    assert guided.problems[1].prompt == "First, 2 + 2 = 4. | hard"
    assert guided.problems[1].anchors[0].text.startswith("Then 4 * 3")
    assert [guided.problems[i] for i in (0, 3, 4, 5)] == [problems[i] for i in (0, 3, 4, 5)]
    assert calls == {"easy": 1, "hard": 2, "harder": 3, "hopeless": 4, "given away": 4, "alone": 1}


def test_command_writes_a_file_that_is_read_like_any_other(tmp_path, capsys):
    source, out = tmp_path / "problems.jsonl", tmp_path / "guided.jsonl"
    write_problems(load_arithmetic("harder")[:10], source)
    wording = "{beginning} <sep> {prompt}"
    options = ["--model", "embedded", "--template", "plain", "--max-new-tokens", "48", "--wording", wording]
    main([str(source), str(out), *options])
    written = [row for _, row in iter_rows(str(out))]
    guided = [row for row in written if "<sep>" in row["prompt"]]
    assert 0 < len(guided) < 10
    assert all(row["expert_solution"].startswith("<think>") for row in guided)
    assert [row["id"] for row in written] == [f"harder-{number}" for number in range(10)]
    assert len(load_problems(str(out))) == 10
    assert "guided by 25% of the solution" in capsys.readouterr().out
