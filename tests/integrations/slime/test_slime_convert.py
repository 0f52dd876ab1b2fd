"""Samples of slime that are converted and rewarded, with the embedded tokenizer, and rows for slime."""

import asyncio
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from transformers import Qwen3Config

from gar.data.arithmetic import load_arithmetic
from gar.data.prompts import render_problems
from gar.errors import ConfigError, DataError
from gar.integrations.data import slime_rows, verl_rows
from gar.integrations.slime import convert, convert_samples, keeps_signal, outcome_reward
from gar.integrations.slime.convert import sample_reader
from gar.integrations.slime.postprocess import slime_rewards
from gar.integrations.slime.settings import read_shaping
from gar.integrations.trl.problems import ProblemRows
from gar.models.embedded import load_embedded
from gar.step import Step
from gar.types import Anchor, Problem, Tags
from tests.engines import slime_standin
from tests.engines.rollouts import make_arguments
from tests.engines.slime_standin import Sample
from tests.support.errors import raises

GOOD = "<think> 3 + 4 = 7 </think> <answer> 7 </answer>"


@pytest.fixture
def tokenizer(monkeypatch):
    _, tokenizer = load_embedded()
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    slime_standin.install(tokenizer)
    convert._reader.cache_clear()
    yield tokenizer
    convert._reader.cache_clear()


def sample(tokenizer, text=GOOD, *, prompt="3+4=", group=0, index=0, **changes):
    ids = [*tokenizer.encode(text), tokenizer.eos_token_id]
    values = {
        "group_index": group, "index": index, "prompt": prompt, "tokens": tokenizer.encode(prompt) + ids,
        "response": text, "response_length": len(ids), "label": "7", "reward": 0.0,
        "metadata": {"anchors": ["<think> ok 7 </think> <answer> 7 </answer>"]},
    }  # fmt: skip
    return Sample(**(values | changes))


def test_convert_samples_sends_facts_and_scored_tokens_along(tokenizer):
    wrong, unclosed = GOOD.replace("> 7 <", "> 8 <"), "<think> 3 + 4 = 7"
    samples = [sample(tokenizer, text, index=i) for i, text in enumerate((GOOD, wrong, unclosed))]
    data = convert_samples(make_arguments(), samples)
    verdicts = [payload.verdict for payload in data["prompt"]]
    assert [(each.verified, each.well_formatted) for each in verdicts] == [(True, True), (False, True), (False, False)]
    assert [each.status for each in verdicts] == ["ok", "wrong", "unparsed"]
    right, _, open_ended = data["prompt"]
    ids = tokenizer.encode(GOOD)
    assert [ids[i] for i in right.sequence.positions] == tokenizer.encode("3 + 4 = 7")  # the thinking part alone
    assert open_ended.sequence.positions == tuple(range(len(tokenizer.encode(unclosed))))  # no tags: all but eos
    anchor = right.anchors.usable[0]
    assert anchor.scored_ids == tokenizer.encode("ok 7")
    assert anchor.context_ids == tokenizer.encode("3+4=")
    assert open_ended.anchors is right.anchors  # one object for a group is sent once to a rank


def test_keeps_signal_gives_slime_its_reason(tokenizer):
    """`tests/engines/megatron/test_slime_checkout.py` has slime's own loop."""
    kind = {"DynamicFilterOutput": SimpleNamespace}
    packages = {name: {} for name in ("slime.rollout", "slime.rollout.filter_hub")}
    slime_standin.install_modules(packages | {"slime.rollout.filter_hub.base_types": kind})
    wrong = sample(tokenizer, GOOD.replace("> 7 <", "> 8 <"))
    right, other = sample(tokenizer), sample(tokenizer, GOOD.replace("3 + 4", "4 + 3"))
    for group, expected in (
        ([right, other], {"keep": True}),
        ([right, wrong], {"keep": True}),
        ([right, right], {"keep": False, "reason": "no_signal_all_right"}),
        ([wrong, wrong], {"keep": False, "reason": "no_signal_all_wrong"}),
    ):
        assert vars(keeps_signal(make_arguments(), group)) == expected
    for each in (right, other):
        each.metadata = {"anchors": []}
    assert not keeps_signal(make_arguments(), [right, other]).keep


def test_what_a_tool_wrote_is_neither_graded_nor_scored(tokenizer):
    own, output = tokenizer.encode("<think> 3 + 4 = 7 </think> <answer> 8 </answer>"), tokenizer.encode(GOOD)
    answered = sample(tokenizer, loss_mask=[1] * len(own) + [0] * len(output), response_length=len(own + output))
    answered.tokens = [*tokenizer.encode("3+4="), *own, *output]
    assert asyncio.run(outcome_reward(make_arguments(), answered)) == 0.0
    payload = convert_samples(make_arguments(), [answered])["prompt"][0]
    assert (payload.verdict.verified, payload.verdict.well_formatted) == (False, True)
    assert [own[i] for i in payload.sequence.positions] == tokenizer.encode("3 + 4 = 7")


def test_convert_samples_names_what_is_wrong(tokenizer):
    for changes, code in (
        ({"group_index": None}, "no-group"),
        ({"label": None}, "no-answer"),
        ({"response_length": 99}, "no-prompt"),
        ({"multimodal_inputs": {"image": 1}}, "not-text"),
        ({"multimodal_train_inputs": {"pixel_values": [0.5]}}, "not-text"),
        ({"metadata": {"anchors": "3"}}, "bad-anchors"),
        ({"metadata": {}}, "no-anchors"),
        ({"metadata": None}, "no-anchors"),
    ):
        with raises(DataError, code):
            convert_samples(make_arguments(), [sample(tokenizer, **changes)])
    with raises(ConfigError, "cut-rollouts"):
        convert_samples(make_arguments(), [sample(tokenizer, rollout_id=5), sample(tokenizer, index=1, rollout_id=5)])


def test_outcome_reward_is_base_or_penalty_and_keeps_the_verdict(tokenizer, monkeypatch):
    samples = [sample(tokenizer), sample(tokenizer, "<think> 7", index=1)]
    args = make_arguments()
    assert asyncio.run(outcome_reward(args, samples[0])) == 1.0
    assert asyncio.run(outcome_reward(args, sample(tokenizer, group_index=None))) == 1.0  # of slime's evaluation
    assert asyncio.run(outcome_reward(args, samples)) == [1.0, pytest.approx(-0.6)]
    reader = convert.sample_reader(args)
    asked = []
    monkeypatch.setattr(reader._verifier, "verify", lambda texts, *_, **__: asked.extend(texts) or [])
    assert convert_samples(args, samples)["prompt"][0].verdict.verified
    assert asked == []  # the verdicts were known


def test_an_aborted_sample_is_in_no_group_and_not_in_the_loss(tokenizer):
    def rewards_of(samples: list[Sample]) -> list[float]:
        payloads = convert_samples(args, samples)["prompt"]
        shaping = read_shaping(args)
        step = Step(shaping, payloads)
        return slime_rewards(args, shaping, step.finish().rewards, step.group_index).tolist()

    args = make_arguments(gar={"method": "grpo"})
    whole = [sample(tokenizer), sample(tokenizer, "<think> 8", index=1), sample(tokenizer, index=2)]
    aborted = [sample(tokenizer, text, index=i, reward=None) for i, text in ((3, "<think> 3 +"), (4, GOOD))]
    for each in aborted:
        each.status = SimpleNamespace(value="aborted")
    without = rewards_of(whole)
    assert rewards_of([aborted[0], *whole, aborted[1]]) == [0.0, *without, 0.0]
    data = convert_samples(args, [aborted[0], *whole, aborted[1]])
    assert [any(mask) for mask in data["loss_masks"]] == [False, True, True, True, False]
    assert data["rewards"] == [0.0] * 5  # slime's own cannot be None
    args.reward_key = "score"  # slime's own takes this key
    convert_samples(args, [aborted[0], *whole])
    assert aborted[0].reward == {"score": 0.0}


def test_facts_of_every_kind_of_response(tokenizer):
    cut = sample(tokenizer, "<think> 3", index=1)
    cut.status = SimpleNamespace(value="truncated")
    removed = sample(tokenizer, index=3, remove_sample=True)
    bare = sample(tokenizer, group=1, index=4, metadata={"anchors": []})
    bare.multimodal_inputs = {"images": None, "videos": None}  # slime's process_vision_info, of text
    data = convert_samples(make_arguments(), [sample(tokenizer), cut, sample(tokenizer, "", index=2), removed, bare])
    payloads = data["prompt"]
    assert [payload.empty for payload in payloads] == [False, False, True, False, False]
    assert [payload.truncated for payload in payloads] == [False, True, False, False, False]
    assert [payload.verdict.verified for payload in payloads] == [True, False, False, True, True]
    assert [len(payload.anchors.usable) for payload in payloads] == [1, 1, 1, 1, 0]
    assert not any(payload.text or payload.ids for payload in payloads)
    assert not any(data["loss_masks"][3])  # slime removes it: graded, and not scored
    assert data["prompt"][3].sequence.positions == ()
    assert (data["rewards"], data["rollout_ids"]) == ([0.0] * 5, [0, 1, 2, 3, 4])  # slime's own
    args = make_arguments(gar={"method": "grpo"})
    assert len(convert_samples(args, [sample(tokenizer, metadata={})])["prompt"]) == 1


def test_rows_beyond_the_context_or_the_first_rotary_frequencies_are_not_scored(tokenizer, tmp_path):
    """Dynamic NTK has other frequencies from 16 tokens on, which Megatron does not compute."""
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    Qwen3Config(max_position_embeddings=16, rope_parameters=rope).save_pretrained(tmp_path)
    long = GOOD.replace("3 + 4", "3 + 4 " * 4)
    beyond = [sample(tokenizer, long, index=1), sample(tokenizer, group=1, index=2, metadata={"anchors": [long]})]
    payloads = convert_samples(make_arguments(hf_checkpoint=str(tmp_path)), beyond)["prompt"]
    assert [(bool(each.fault), each.num_scored_tokens > 0) for each in payloads] == [(True, False), (False, True)]
    assert [tuple(map(len, each.anchors)) for each in payloads] == [(1, 0), (0, 1)]


def test_slime_row_asks_for_the_format_and_keeps_the_anchors():
    talk = [{"role": "user", "content": "3+4="}]
    problem = Problem(id="n-7", prompt="3+4=", answer="7", anchors=(Anchor(text="3 + 4"), Anchor(text=" ")))
    (row,) = slime_rows([problem], "think-answer", chat=True, tags=Tags(think_open="<t>", think_close="</t>"))
    assert row["prompt"][0]["content"].startswith("3+4=\n\nFirst work the problem out between <t> and </t>.")
    assert (row["label"], row["metadata"]) == ("7", {"id": "n-7", "problem": "3+4=", "anchors": ["3 + 4"]})
    assert [next(slime_rows([problem], "plain", chat=chat))["prompt"] for chat in (True, False)] == [talk, "3+4="]
    with raises(DataError, None, "'n-7'"):  # only a chat template makes text of messages
        next(slime_rows([replace(problem, prompt=talk)], "plain", chat=False))


@pytest.mark.parametrize("template", [{}, {"shout": True}])
def test_shuffled_expert_solutions_are_those_of_gar_train_after_their_own_prompt(tokenizer, template):
    tokenizer.chat_template = "{% if shout %}99{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    problems = [*load_arithmetic("train")[:6], Problem(id="bare", prompt="3+4=", answer="7")]
    rows = ProblemRows(render_problems(problems, "chat", tokenizer), {})
    rows.shuffle_anchors(seed=3)
    reader = sample_reader(make_arguments(gar={"method": "anchor-shuffled"}, apply_chat_template_kwargs=template))
    prefix = tokenizer.encode("99" if template else "", add_special_tokens=False)
    prompts = [tokenizer.encode(problem.prompt) for problem in problems]
    expected = rows.anchors(reader._reader, range(len(problems)), list(rows.all), prompts)

    carried = [row["metadata"] for row in slime_rows(problems, "plain", chat=True, shuffle_seed=3)]
    assert carried == [
        {key: value for key, value in row["extra_info"].items() if key != "index"}
        for row in verl_rows(problems, "plain", shuffle_seed=3)
    ]
    found = [
        reader.anchors(sample(tokenizer, prompt=str(problem.prompt), metadata=metadata))
        for problem, metadata in zip(problems, carried, strict=True)
    ]
    assert found == list(expected.values())
    assert [len(each.usable) for each in found] == [1] * 6 + [0]
    assert all(list(each.usable[0].context_ids[: len(prefix)]) == prefix for each in found[:6])
    assert all(each.usable[0].context_ids != ids for each, ids in zip(found[:6], prompts[:6], strict=True))
    for method, metadata in (("gar-grpo", carried[0]), ("anchor-shuffled", {"id": "n-7", "anchors": ["so 7"]})):
        convert._reader.cache_clear()
        with raises(DataError, "shuffled-anchors"):
            sample_reader(make_arguments(gar={"method": method})).anchors(sample(tokenizer, metadata=metadata))
