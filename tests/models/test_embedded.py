"""The embedded models: what they know before training, and that their recipe makes them."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from gar.data.arithmetic import WORDINGS
from gar.errors import ModelError
from gar.models import embedded
from paper.tasks import make_model
from paper.tasks.chains import (
    ROLES,
    TASKS,
    VERDICT_RIGHT,
    VERDICT_WRONG,
    judge_prompt,
    load_task,
    model_path,
    parse_solution,
    privileged_prompt,
    write_solution,
)
from tests.support.errors import raises


@pytest.fixture(scope="module", params=TASKS)
def task(request):
    return TASKS[request.param]


@pytest.fixture(scope="module")
def loaded(task):
    return load(task)


def load(task):
    path = model_path(task.name)
    return Qwen3ForCausalLM.from_pretrained(path).eval(), PreTrainedTokenizerFast.from_pretrained(path)


def test_embedded_path_without_assets_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    with raises(ModelError, "no-model"):
        embedded.embedded_path()


def test_tokenizer_is_the_recipes_and_round_trips_solutions(task, loaded):
    _, tokenizer = loaded
    assert make_model.make_tokenizer(task).get_vocab() == tokenizer.get_vocab()
    for problem, role, wording in product(load_task(task.name, "harder")[:8], ROLES, WORDINGS):
        solution = write_solution(problem, task.method_of(role, problem), wording)
        prompt_ids, ids = tokenizer(problem.prompt)["input_ids"], tokenizer(solution)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == solution
        assert tokenizer(problem.prompt + solution)["input_ids"] == prompt_ids + ids  # splits at the prompt
        assert tokenizer.unk_token_id not in prompt_ids + ids


@torch.no_grad()
def sample(model, tokenizer, prompts):
    torch.manual_seed(0)
    batch = tokenizer(prompts, padding=True, return_tensors="pt")
    rows = model.generate(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=True, max_new_tokens=56
    )
    return tokenizer.batch_decode(rows[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def test_load_embedded_mixes_methods_and_wordings_and_leaves_room_to_learn(task, loaded):
    problems = load_task(task.name, "test") * 2
    texts = sample(*loaded, [p.prompt for p in problems])
    parsed = [parse_solution(text) for text in texts]
    roles = [task.role_of(p.method, problem) for p, problem in zip(parsed, problems, strict=True)]
    share = {role: roles.count(role) / len(roles) for role in ROLES}
    assert 0.01 < share["expert"] < 0.15 < share["guess"] < 0.5 < share["habit"]
    assert all(0.15 < sum(p.wording == w for p in parsed) / len(parsed) < 0.85 for w in WORDINGS)
    right = sum(p.answer == problem.answer for p, problem in zip(parsed, problems, strict=True)) / len(parsed)
    assert 0.2 < right < 0.5
    if task.name == "whose-voice":  # the voices of the methods are those that the expert does not use
        wordings = {method: Counter(p.wording for p in parsed if p.method == method) for method in task.methods[:2]}
        assert wordings["stepwise"]["symbols"] > 3 * wordings["stepwise"]["words"]
        assert wordings["padded"]["words"] > 10 * wordings["padded"]["symbols"]
        assert {parse_solution(p.anchors[0].text).wording for p in problems} == {"words"}


def test_load_embedded_follows_the_expert_solution_in_the_prompt(task, loaded):
    problems = load_task(task.name, "test")[:50]
    texts = sample(*loaded, [privileged_prompt(p) for p in problems])
    same = sum(text == p.anchors[0].text for text, p in zip(texts, problems, strict=True))
    assert same > 30


@torch.no_grad()
def test_load_embedded_judges_solutions_in_the_experts_method(task, loaded):
    model, tokenizer = loaded
    right_id, wrong_id = tokenizer.convert_tokens_to_ids([VERDICT_RIGHT, VERDICT_WRONG])
    hits = 0
    for index, problem in enumerate(load_task(task.name, "test")[:100]):
        off_by = index % 2  # every other solution slips at its last step
        values = [*parse_solution(problem.anchors[0].text).values]
        values[-1] = (values[-1] + off_by) % 10
        text = judge_prompt(
            problem, write_solution(problem, task.method_of("expert", problem), "symbols", values=values)
        )
        logits = model(**tokenizer(text, return_tensors="pt", return_token_type_ids=False)).logits[0, -1]
        hits += bool(logits[right_id] > logits[wrong_id]) == (off_by == 0)
    assert hits > 75  # a coin gives 50, standard deviation 5


def test_make_embedded_model_same_seed_gives_the_same_bits():
    recipe = make_model.RECIPES["whose-voice"]
    phases = tuple(replace(phase, num_steps=1) for phase in recipe.phases)
    weights = [make_model.train(replace(recipe, phases=phases, seed=seed))[0].state_dict() for seed in (3, 3, 4)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["lm_head.weight"], weights[2]["lm_head.weight"])
