"""The policy of a run or a model, with responses to its problems."""

import copy
import shutil
from dataclasses import replace

import pytest
import torch

from gar.data.prompts import format_instruction
from gar.errors import ConfigError
from gar.models.embedded import embedded_path
from gar.records import RunFolder
from gar.records.checkpoints import seal_checkpoint
from gar.rollouts.generate import Response
from gar.types import Problem
from paper.analyses.policies import load_policy_of, sampled_groups
from paper.analyses.similarities.sources import Scope, questions_for
from paper.tasks.__main__ import write_task
from paper.tasks.chains import load_task, model_path, task_of_model

pytestmark = pytest.mark.paper


def test_policy_of_a_run_without_a_final_model_is_its_newest_whole_checkpoint(tmp_path):
    run = RunFolder.create(tmp_path, "run")
    run.write_run(seed=0, command=["gar", "train"], config={}, config_text="data: {template: plain}", data_hash=None)
    for step in (2, 10, 12):
        shutil.copytree(embedded_path(), run.checkpoints / f"checkpoint-{step}")
        if step < 12:
            seal_checkpoint(run, step)
    (run.checkpoints / "checkpoint-x").mkdir()
    (run.checkpoints / "checkpoint-x" / "config.json").write_text("{}")
    assert "There is no final model: checkpoint-10 is used instead." in load_policy_of(str(run.path)).notes


def test_a_models_folder_names_the_chain_task_that_it_is_asked():
    """All of them were asked the embedded task's problems."""
    policy = load_policy_of(str(model_path("which-way")))
    assert (policy.task, policy.config.data.split) == ("which-way", "test")
    assert list(policy.problems) == load_task("which-way", "test")
    asked = load_policy_of(str(model_path("which-way")), data="whose-voice", split="harder")
    assert list(asked.problems) == load_task("whose-voice", "harder")
    assert task_of_model("runs/whose-voice") == "whose-voice"
    assert task_of_model("embedded") == task_of_model("smollm2") == "arithmetic"


def test_a_run_on_a_file_of_a_chain_task_knows_the_task(tmp_path):
    """The file's rows name it, so that the bench asks the questions of that task and not those of plain text."""
    train, *_ = write_task("which-way", tmp_path / "which-way")
    policy = load_policy_of("embedded", data=str(train))
    assert policy.task == "which-way"
    questions = questions_for(policy, Scope(num_problems=4))
    assert {"equal-wording", "sound"} <= {triple.question for triple in questions.triples}
    assert {solution.method for solution in questions.solutions} >= {"stepwise", "prefix"}


def test_a_model_is_analysed_with_the_template_and_the_format_asked_for():
    """Without them no response of a real model to a bare problem is in the think-answer format."""
    policy = load_policy_of(
        "embedded",
        settings={
            "data": {"template": "boxed"}, "verify": {"format": "boxed"}, "trl": {"max_completion_length": 7},
            "model": {"dtype": "bfloat16"},
        },
    )  # fmt: skip
    assert all(str(problem.prompt).endswith(f"{format_instruction('boxed')}\n\n") for problem in policy.problems)
    assert policy.signal.span == "response"  # what the format boxed implies
    assert policy.model.dtype == torch.bfloat16
    with pytest.raises(ConfigError, match=r"options: unknown key 'data\.temlpate'"):
        load_policy_of("embedded", settings={"data": {"temlpate": "boxed"}})


def test_sampled_groups_answer_what_the_runs_chat_template_gives(embedded):
    tokenizer = copy.deepcopy(embedded.tokenizer)
    tokenizer.chat_template = "{% if short %}3+4={% else %}3+4*7={% endif %}"
    config = embedded.config.model_copy(
        update={"trl": {"chat_template_kwargs": {"short": True}, "max_completion_length": 2}}
    )
    problem = Problem(id="one", prompt=[{"role": "user", "content": "?"}], answer="7")
    group = sampled_groups(replace(embedded, tokenizer=tokenizer, config=config), [problem], num_samples=1)[0]
    assert group.prompt == embedded.encode("3+4=")
    assert len(group.responses[0]) <= 2


def test_sampled_groups_are_graded_as_in_training(embedded, monkeypatch):
    """An expression copied from the prompt is no answer."""
    response = Response(ids=(1,), text="<think> easy </think> <answer> 6/4 </answer>", truncated=False)
    monkeypatch.setattr("paper.analyses.policies.generate_responses", lambda *args, **options: [[response]])
    problem = Problem(id="one", prompt="Reduce 6/4.", answer="3/2")
    assert sampled_groups(embedded, [problem], num_samples=1)[0].eligible == [False]
