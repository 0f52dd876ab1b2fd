"""Every command that README and docs show exists, with every flag it is shown with, and is run by a test or marked.

Each goes through the program's own parser, up to where its work would begin. That the work itself is done right is for
the test that `RUN_BY` names: it runs the same command, most often on something smaller. A command that no test can run
says so where it is shown (`pages.MARK`); that installing needs a network goes without saying.
"""

import argparse
import ast
import functools
import re
import runpy
import shlex
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from accelerate.commands.launch import launch_command_parser
from torch.distributed.run import get_args_parser
from trl import GRPOConfig

import gar.train.run
from gar.cli import compare, data, eval, eval_table, report, score
from gar.cli.arguments import parse
from gar.cli.main import main
from tests.docs.pages import MARK, PAGES, ROOT, Command, shown_commands
from tests.paper_methods import registered

RUN_BY = {
    "gar train": "tests/train/test_run.py::test_run_leaves_what_the_docs_promise",
    "gar doctor": "tests/cli/test_doctor.py::test_doctor_finds_this_environment_ready",
    "gar score": "tests/cli/test_score.py::test_score_writes_beside_nobody_and_prints_a_summary",
    "gar compare": "tests/comparison/test_command.py::"
    "test_compare_runs_what_has_no_result_and_ends_with_1_until_all_have",
    "gar report": "tests/report/test_build.py::test_gar_report_writes_the_page_and_says_the_verdict",
    "python -m paper.analyses.gradient_space": "tests/paper/test_theory.py::"
    "test_theory_and_gradient_space_run_by_their_commands",
    "python -m paper.analyses.theory": "tests/paper/test_theory.py::"
    "test_theory_and_gradient_space_run_by_their_commands",
    "gar data check": "tests/cli/test_data.py::test_check_counts_and_names_examples",
    "gar data prepare": "tests/cli/test_data.py::test_prepare_writes_a_subset_in_our_columns",
    "gar data slime": "tests/data/test_slime.py::test_gar_data_slime_writes_every_problem",
    "gar data verl": "tests/cli/test_data.py::test_verl_writes_every_problem_with_its_expert_solution",
    "gar eval run": "tests/cli/test_eval.py::test_eval_run_writes_every_sample_and_its_verdict",
    "gar eval generate": "tests/cli/test_eval.py::test_eval_refuses_to_go_on_with_other_settings",
    "gar eval score": "tests/cli/test_eval.py::test_eval_score_says_again_what_run_said",
    "gar eval table": "tests/cli/test_eval_table.py::test_eval_table_shows_benchmarks_by_models_with_tests",
    "gar eval list": "tests/cli/test_eval.py::test_eval_list_names_the_sets_and_where_they_come_from",
    "python examples/add_an_engine.py": "tests/test_examples.py::"
    "test_an_engine_of_ones_own_gives_what_the_scorer_gives",
    "python examples/plain_pytorch_loop.py": "tests/test_examples.py::test_plain_pytorch_loop_raises_the_reward",
    "python examples/trl_reward_function.py": "tests/test_examples.py::test_trl_reward_function_trains_a_stock_trainer",
    "python -m paper.analyses.cost": "tests/paper/test_cost.py::"
    "test_cost_prints_the_routes_of_a_model_without_a_network",
    "python -m paper.comparisons": "tests/paper/test_comparisons.py",
    "python -m paper.comparisons.shorthand": "tests/paper/test_comparisons.py",
    "python -m paper.comparisons.signals": "tests/paper/test_comparisons.py",
    "python -m paper.comparisons.word_problems": "tests/paper/test_comparisons.py",
    "python -m paper.tasks.warm_start": "tests/test_real_model.py::"
    "test_the_page_of_the_first_real_model_runs_as_written",
    "python -m paper.tasks": "tests/paper/test_word_problem_task.py",
    "python docs/site/rules.py": "tests/test_rules.py::test_the_page_is_the_table",
    "python scripts/check_prose.py": "tests/docs/test_pages.py::test_the_prose_checker_sees_what_the_rules_name",
    "python scripts/execute_notebooks.py": "tests/docs/test_notebooks.py::test_quick_start_scores_and_trains",
    "python examples/score_a_file.py": "tests/test_examples.py::test_score_a_file_prints_scores_and_shares_that_add_up",
    "python -m paper.analyses.conformance_table": "tests/conformance/test_table.py",
    "python -m paper.analyses.amplification": "tests/paper/test_amplification.py",
    "python -m paper.analyses.ablation": "tests/paper/test_ablation_and_sensitivity.py::"
    "test_studies_write_data_and_figure_of_committed_results",
    "python -m paper.analyses.sensitivity": "tests/paper/test_ablation_and_sensitivity.py::"
    "test_studies_write_data_and_figure_of_committed_results",
    "python -m paper.analyses.similarities": "tests/paper/similarities/test_study.py::"
    "test_the_bench_runs_by_its_command",
    "python -m paper.analyses.similarities.sums": "tests/paper/similarities/test_sums.py",
    "python -m paper.analyses.similarities.committed": "tests/paper/similarities/test_committed.py",
    "python -m paper.analyses.solution_methods": "tests/paper/test_solution_methods.py",
    "python -m paper.analyses.grade_gold_answers": "tests/paper/test_grade_gold_answers.py",
    "python -m paper.tasks.make_model": "tests/models/test_embedded.py::"
    "test_make_embedded_model_same_seed_gives_the_same_bits",
    "python -m paper.analyses.tune_embedded_task": "tests/docs/test_scripts.py::"
    "test_tune_embedded_task_measures_the_base_model",
    "python benchmarks/overhead.py": "tests/docs/test_scripts.py::test_overhead_measures_both_methods",
    "python benchmarks/scale.py": "tests/benchmarks/test_step.py::test_scale_writes_lines_of_every_quantity",
    "python benchmarks/scoring_throughput.py": "tests/benchmarks/test_scoring_throughput.py::"
    "test_scoring_throughput_writes_what_it_measured",
    "python benchmarks/step.py": "tests/benchmarks/test_step.py::test_step_measures_every_way",
    "python benchmarks/head.py": "tests/benchmarks/test_head.py::test_all_ways_of_the_head_agree",
    "python benchmarks/grading.py": "tests/benchmarks/test_grading.py::test_grading_writes_what_it_measured",
    "python -m benchmarks.report_page": "tests/benchmarks/test_report_page.py::test_report_page_measures",
    "python -m tests.faults": "tests/faults/test_faults.py::test_faults_sample_loses_nothing",
    "make": ".ci/run",
    "pytest": "tests/report/test_browser.py",
    "accelerate": "tests/integrations/test_trl_ranks.py",
    "torchrun": "tests/integrations/test_trl_ranks.py",
}
INSTALLERS = ("pip", "apt-get")
STAGED = ("gar data", "gar eval")

# What to read for a word in capitals where a command takes one of several words, or a number. A path stands as it is.
PLACEHOLDERS = {
    "--method": "gar-grpo", "--seed": "0", "--preset": "demo", "--benchmark": "arithmetic",
}  # fmt: skip
_OPTIONAL = re.compile(r"\[(?:,\w+|\w+ \.\.\.)\]")  # [,NAME] and [C ...]
_SHOWN = [command for path in PAGES for command in shown_commands(path)]


class Reached(Exception):
    """The command line was understood, and the work would begin."""


def stop_instead_of(function):
    """A function that takes the same arguments and does nothing."""

    @functools.wraps(function)
    def stop(*_, **__):
        raise Reached

    return stop


@pytest.fixture
def stopped(monkeypatch):
    """Every program stops behind its parser."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse_then_stop(function):
        @functools.wraps(function)
        def stop(*arguments, **keywords):
            function(*arguments, **keywords)
            raise Reached

        return stop

    def train(config, **_):
        unknown = set(config.trl) - {field.name for field in fields(GRPOConfig)}
        raise SystemExit(f"no such fields of trl.GRPOConfig: {unknown}") if unknown else Reached

    for name, stub in {"train": train, "dry_run": train, "resume": stop_instead_of(gar.train.run.resume)}.items():
        monkeypatch.setattr(gar.train.run, name, stub)
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_then_stop(parse_args))
    for module in (compare, data, score, eval, eval_table, report):
        monkeypatch.setattr(module, "parse", parse_then_stop(parse))
    monkeypatch.setattr("gar.train.checks.check_before_loading", lambda config: None)  # files that pages only name
    monkeypatch.setattr("gar.records.RunFolder.open", lambda path: None)
    monkeypatch.setattr("tests.faults.preload.preload", lambda: None)  # would start this process again
    with registered():
        yield


def words_of(command: Command) -> list[str]:
    """The command with its optional parts, and with values for words that stand for one."""
    text = _OPTIONAL.sub("", command.text)
    if command.text.startswith("gar"):
        text = text.replace("[", "").replace("]", "").replace(" ...", "")
    words = shlex.split(text)
    pairs = zip(["", *words], words, strict=False)
    return [PLACEHOLDERS.get(before, word) if word.isupper() else word for before, word in pairs]


def key_of(words: list[str]) -> str:
    """What `RUN_BY` knows a command by."""
    two = " ".join(words[:2])
    if two in STAGED or two == "python -m":
        return " ".join(words[:3])
    if words[0] == "gar":
        return two
    return two if words[0] == "python" else words[0]


def understood(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the program takes these words."""
    monkeypatch.chdir(folder)
    for word in words:
        if word.endswith(".yaml"):
            (folder / word).parent.mkdir(parents=True, exist_ok=True)
            (folder / word).write_text("")
    program, *rest = words
    if words[:2] == ["python", "-m"]:
        module = ROOT / words[2].replace(".", "/")
        rest = [str(module / "__main__.py" if module.is_dir() else f"{module}.py"), *words[3:]]
    monkeypatch.setattr(sys, "argv", words)
    try:
        if program == "gar":
            return main(rest) == 0
        if program == "python" and "argparse" not in (ROOT / rest[0]).read_text():
            return rest[1:] == []
        if program == "python":
            monkeypatch.setattr(sys, "argv", rest)
            monkeypatch.syspath_prepend(str((ROOT / rest[0]).parent))  # as Python does
            runpy.run_path(str(ROOT / rest[0]), run_name="__main__")
        elif program == "torchrun":
            get_args_parser().parse_args(rest)
        elif program == "accelerate":
            launch_command_parser().parse_args(rest[1:])
    except Reached:
        return True
    except SystemExit as stop:
        return stop.code == 0  # --help
    return False


def takes(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a command exists, by whatever way its kind is asked."""
    if words[0] == "make":
        return f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
    if words[0] == "pytest":
        return f'"{words[-1]}: ' in (ROOT / "pyproject.toml").read_text()
    if words[0] in INSTALLERS:
        extras = re.findall(r"\[([a-z,]+)\]", next((word for word in words if word.startswith(".[")), ""))
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        return all(extra in known for each in extras for extra in each.split(","))
    if words[0] in ("accelerate", "torchrun") and "gar" in words:
        start = words.index("gar")
        return all(understood(part, folder, monkeypatch) for part in (words, ["gar", *words[start + 1 :]]))
    return understood(words, folder, monkeypatch)


def is_known(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> bool:
    """In a sentence a command may stand without its arguments: then its help must know what is there of it."""
    words = words_of(command)
    if command.inline and words[0] in ("gar", "accelerate"):
        name = key_of(words).split() if words[0] == "gar" else words[:2]
        if takes([*name, "--help"], folder, monkeypatch):
            help_text = capsys.readouterr().out
            if all(word in help_text for word in words[len(name) :]):
                return True
    return takes(words, folder, monkeypatch)


@pytest.mark.parametrize("command", [each for each in _SHOWN if not each.marked], ids=str)
def test_commands_are_understood_by_their_programs(command, stopped, tmp_path, monkeypatch, capsys):
    assert is_known(command, tmp_path, monkeypatch, capsys), f"{command}\n{capsys.readouterr().err}"


@pytest.mark.parametrize(
    "text",
    ["gar trian", "gar train --reward.bta 1", "gar train --trl.lerning_rate 1", "gar eval rnu embedded",
     "gar data check a.jsonl --tokeniser x", "gar compare demo --dryrun",
     "gar report RUN --ot x.html", "gar score embedded",
     "python examples/score_a_file.py a b", "gar train --method sdtf", "make tset", "pip install '.[pfet]'",
     "accelerate launch --num_proceses 2 -m gar train", "torchrun --nproc-per-node 2 -m gar trian"],
)  # fmt: skip
def test_a_command_with_a_slip_is_not_understood(text, stopped, tmp_path, monkeypatch):
    words = words_of(Command(page="", line=0, text=text, inline=False, marked=False))
    assert not takes(words, tmp_path, monkeypatch)


def test_every_command_is_run_by_a_test_or_marked():
    for command in _SHOWN:
        key = key_of(command.text.split())
        known = command.marked or key in RUN_BY or key.split()[0] in INSTALLERS or key in ("gar", *STAGED)
        assert known, f"{command}: name the test that runs '{key}', or say beside it what it needs ({MARK.pattern})"


@pytest.mark.parametrize("test", sorted(set(RUN_BY.values())))
def test_tests_that_run_commands_exist(test):
    path, _, name = test.partition("::")
    source = (ROOT / path).read_text()
    if name:
        assert name in {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
