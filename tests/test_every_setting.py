"""Every setting of a run changes something. Those of signal, reward and advantage: `tests/methods`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from gar.config import RunConfig, make_config, merge, with_template
from gar.data.arithmetic import load_arithmetic
from gar.data.load import load_problems
from gar.errors import CollapseError, DataError, PreflightError
from gar.evaluation.engines import TransformersEngine, evaluation_sampling, sample
from gar.evaluation.grade import grade
from gar.integrations.slime.settings import SLIME
from gar.integrations.trl.arguments import grpo_arguments
from gar.integrations.watchdog import Watchdog
from gar.models.adapters import lora_config
from gar.models.embedded import embedded_path, load_embedded
from gar.models.load import load_policy
from gar.records import open_run
from gar.records.dotted import leaves
from gar.response import Response
from gar.step import Step, plan_shaping
from gar.train.inputs import RunInputs
from gar.train.run import train
from gar.types import Status, Verdict
from gar.verify import Verifier
from tests.support.files import write_jsonl

MODEL, TOKENIZER = load_embedded()
COLUMNS = ("prompt", "answer", "expert_solution", "problem", "gold", "solution")
VALUES = [("3+4=", "7", "7!", "1+1=", "2", "2!"), ("1+" * 20 + "3=", "18", "18!", "1+2=", "3", "3!")]
RESPONSES = [
    "<think> 7 </think> <answer> 7 </answer>", "\\boxed{7}", "[ 7 </think> <answer> 7 </answer>",
    "<think> 7 ] <answer> 7 </answer>", "<think> 7 </think> ( 7 </answer>", "<think> 7 </think> <answer> 7 )",
]  # fmt: skip


def problems(config: RunConfig) -> Any:
    """The problems as the policy sees them, for training and evaluation."""
    config = with_template(config)
    inputs = RunInputs(config, *grpo_arguments(config), print)
    return inputs.problems.data_hash(), {name: list(each) for name, each in inputs.evaluation_sets.items()}


def policy(config: RunConfig) -> Any:
    model, _ = load_policy(config.model)
    return model.name_or_path, model.dtype, model.config.max_position_embeddings, model.config._attn_implementation


def hub(config: RunConfig) -> Any:
    """What `datasets` is asked for, as its error says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.load_dataset", lambda *args, **kwargs: int("x"))
        with pytest.raises(DataError) as caught:
            load_problems(config.data.source, options=config.data)
    return str(caught.value)


def verifier(config: RunConfig) -> Any:
    """Verdicts, and the limits of the processes that parse answers."""
    with Verifier.from_settings(config.verify) as made:
        limits = [made._pool._num_workers, made._pool._setup.timeout_seconds, made._pool._setup.memory_bytes]
        return made.verify(RESPONSES, ["7"] * len(RESPONSES)), limits


def evaluation(config: RunConfig) -> Any:
    problems, sampling = load_arithmetic("test")[:4], evaluation_sampling(config.evaluate, seed=0, max_new_tokens=30)
    sampled = sample(TransformersEngine(MODEL, TOKENIZER), problems, sampling)
    with Verifier() as made:
        graded = grade(problems, sampled, made, config.evaluate.pass_at_k)
    return graded.numbers, [response.text for group in graded.groups for response in group]


def collapse(config: RunConfig) -> Any:
    told: list[Any] = []
    watchdog = Watchdog(config.watchdog, told.append)
    wrong = Response(verdict=Verdict(status=Status.WRONG, grade=0.0, verified=False, well_formatted=True))
    try:
        for step in range(1, 5):
            watchdog.watch(step, Step(plan_shaping(SLIME, "grpo"), [wrong]))
    except CollapseError:
        told.append("stop")
    return told


def trace(config: RunConfig) -> dict[str, Any]:
    """What a run prints and leaves, by the setting that it is due to."""
    said: list[str] = []
    folder = train(config, say=lambda text: said.append(str(text))).path
    found = open_run(folder)
    preflight = next(line.split() for line in said if line.startswith("Preflight"))
    return {
        "preflight.num_problems": preflight[1],
        "preflight.num_samples": preflight[3],
        "evaluate.eval_steps": any(name.startswith("eval/") for row in found.metrics for name in row),
        "evaluate.eval_on_start": (folder / "evaluation" / "before").exists(),
        "records.output_dir": folder.parent.name,
        "records.name": folder.name,
    }


CHANGES: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {
    problems: (
        {
            "data.source": "rows.jsonl", "evaluate.sources": ["test"], "evaluate.max_problems": 5,
            "trl.per_device_train_batch_size": 2, "trl.num_generations": 2,
        },
        {
            "data.source": "arithmetic", "data.column_schema": "numina-1.5", "data.prompt_field": "problem",
            "data.answer_field": "gold", "data.expert_fields": ["solution"], "data.template": "boxed",
            "data.max_prompt_tokens": 30, "data.max_problems": 1, "evaluate.sources": ["harder"],
            "evaluate.max_problems": 3,
        },
    ),
    hub: ({"data.source": "a/b"}, {"data.split": "test", "data.subset": "main", "data.revision": "v1"}),
    policy: (
        {"model.path": "a/b"},
        {"model.path": "embedded", "model.revision": "v1", "model.dtype": "bfloat16", "model.attention": "eager"},
    ),
    lambda config: lora_config(nn.Module(), config.adapter): (
        {"adapter.rank": 4},
        {"adapter.rank": 8, "adapter.alpha": 8, "adapter.dropout": 0.1, "adapter.target_modules": ["q_proj"]},
    ),
    verifier: (
        {},
        {
            "verify.format": "boxed", "verify.verifier": "operator:contains", "verify.num_workers": 1,
            "verify.timeout_seconds": 1.0, "verify.memory_bytes": 2**30, "verify.tags.think_open": "[",
            "verify.tags.think_close": "]", "verify.tags.answer_open": "(", "verify.tags.answer_close": ")",
        },
    ),
    evaluation: (
        {"evaluate.num_samples": 4},
        {"evaluate.num_samples": 5, "evaluate.pass_at_k": [1], "evaluate.temperature": 2.0, "evaluate.batch_size": 3},
    ),
    collapse: ({"watchdog.steps": 3}, {"watchdog.mode": "stop", "watchdog.steps": 2}),
}  # fmt: skip
"""By what is looked at: the settings that it begins with, and what each is changed to."""

RUN = {
    "trl.max_steps": 1, "trl.per_device_train_batch_size": 2, "trl.num_generations": 2, "trl.max_completion_length": 4,
    "preflight.mode": "warn", "preflight.num_problems": 3, "preflight.num_samples": 2, "evaluate.sources": ["test"],
    "evaluate.num_samples": 1, "evaluate.max_problems": 1, "evaluate.pass_at_k": [1], "records.output_dir": "runs",
    "records.name": "a",
}  # fmt: skip
OTHER_RUN = {
    "preflight.num_problems": 1, "preflight.num_samples": 4, "evaluate.eval_steps": 1, "evaluate.eval_on_start": False,
    "records.output_dir": "others", "records.name": "b",
}  # fmt: skip


def config(values: dict[str, Any]) -> RunConfig:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        for part in reversed(name.split(".")):
            value = {part: value}
        nested = merge(nested, value)
    return make_config(nested)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "rows.jsonl", [dict(zip(COLUMNS, row, strict=True)) for row in VALUES])
    for name in ("main", "v1"):  # two revisions in the cache of the Hub, with different contexts
        snapshot = tmp_path / "models--a--b" / "snapshots" / (name * 10)
        shutil.copytree(embedded_path(), snapshot)
        (tmp_path / "models--a--b" / "refs").mkdir(exist_ok=True)
        (tmp_path / "models--a--b" / "refs" / name).write_text(snapshot.name)
    values = json.loads((snapshot / "config.json").read_text())
    (snapshot / "config.json").write_text(json.dumps(values | {"max_position_embeddings": 99}))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


def test_every_setting_of_these_sections_is_here():
    known = {name for name, _ in leaves(RunConfig().model_dump()) if "." in name}
    known = {name for name in known if not name.startswith(("signal.", "reward.", "advantage."))}
    assert {*OTHER_RUN, "preflight.mode"}.union(*(changes for _, changes in CHANGES.values())) == known


@pytest.mark.parametrize("look", CHANGES)
def test_each_setting_changes_what_is_seen(look):
    base, changes = CHANGES[look]
    before = look(config(base))
    assert look(config(base)) == before
    for name, value in changes.items():
        assert look(config(base | {name: value})) != before, name


@pytest.mark.slow
def test_each_setting_of_a_run_changes_what_it_leaves():
    before, after = trace(config(RUN)), trace(config(RUN | OTHER_RUN))
    assert before.keys() == OTHER_RUN.keys()
    assert [name for name in before if before[name] == after[name]] == []
    with pytest.raises(PreflightError):
        train(config(RUN | {"preflight.mode": "stop", "records.name": "stopped"}), say=str)
