"""Arguments of the wrong type are a `GarError` at every public entry, and none is read as something else."""

from collections.abc import Callable
from typing import Any

import pytest
from trl import GRPOConfig

import gar
from gar.data import load_problems
from gar.errors import GarError
from gar.models.embedded import load_embedded

ROWS = [{"prompt": "1+2=", "answer": "3", "expert_solution": "1+2=3"}] * 8
CALL = Callable[[Any], object]


def trainer(**values: Any) -> CALL:
    def call(embedded: Any) -> object:
        args = GRPOConfig("out", use_cpu=True, bf16=False, report_to="none")
        given = {"model": embedded[0], "processing_class": embedded[1], "args": args, "train_dataset": ROWS}
        return gar.GARTrainer(**(given | values))

    return call


def scorer(groups: Any = None, **values: Any) -> CALL:
    return lambda embedded: gar.GARScorer(*embedded, **values).score(groups)


def group(**values: Any) -> Any:
    given = {"prompt": "1+2=", "responses": ["3", "4"], "anchors": ["3"], "eligible": [True, False]}
    return gar.ResponseGroup(**(given | values))


def verify(*values: Any) -> CALL:
    return lambda _: gar.Verifier(format="none").verify(*values)


WRONG: dict[str, CALL] = {
    "expert_fields: Input should be a valid tuple, got 'sol'": trainer(expert_fields="sol"),
    "reward is {": trainer(reward={"bonus_wieght": 1.0}),
    "signal is {": trainer(signal={"kind": "gradients"}),
    "advantage is 1": trainer(advantage=1),
    "verifier is 'boxed'": trainer(verifier="boxed"),
    "unknown method '3'": trainer(method=3),
    "problem 1 is str": trainer(train_dataset="ok.jsonl"),
    "watchdog is 'stop'": trainer(watchdog="stop"),
    "args is {": trainer(args={"max_steps": 1}),
    "on_rollouts is 'print'": trainer(on_rollouts="print"),
    "prompt is 3": trainer(train_dataset=[gar.Problem(id="a", prompt=3, answer="1")]),  # pyright: ignore
    "anchors is 'ab'": trainer(train_dataset=[gar.Problem(id="a", prompt="3", answer="1", anchors="ab")]),  # pyright: ignore
    "responses is '34'": scorer([group(responses="34")]),
    "anchors is '12'": scorer([group(anchors="12")]),
    "responses[1] is None": scorer([group(responses=["3", None])]),
    "groups is ResponseGroup": scorer(group()),
    "(generator), expected a list: a gar.ResponseGroup": scorer(group() for _ in "ab"),
    "anchors is <list_iterator": scorer([group(anchors=iter(["3"]))]),
    "(map), expected a list: a text each": verify(map(str, [7]), ["7"]),
    "groups[0] is {": scorer([{"prompt": "1"}]),
    "(str), expected something with format": scorer([], verifier="boxed"),
    "(dict), expected a gar.RewardSettings": scorer([], reward={}),
    "responses is '7'": verify("7", "7"),
    "responses[0] is None": verify([None], ["7"]),
    "golds[0] is 7": verify(["7"], [7]),
    "the verifier 3 is of type int": lambda _: gar.Verifier(custom=3),  # pyright: ignore
    "num_workers: Input should be greater": lambda _: gar.Verifier(num_workers=0),
    "source is 3": lambda _: load_problems(3),  # pyright: ignore
    "unknown key 'bonus_wieght'. Did you mean 'bonus_weight'?": lambda _: gar.RewardSettings(bonus_wieght=1),  # pyright: ignore
    "expected a mapping of settings, got list": lambda _: gar.make_config(["a"]),
}  # fmt: skip
"""Calls, and what their errors say."""


@pytest.mark.parametrize("said", WRONG)
def test_public_entries_reject_arguments_of_the_wrong_type(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GarError) as caught:
        WRONG[said](load_embedded())
    assert said in str(caught.value)
