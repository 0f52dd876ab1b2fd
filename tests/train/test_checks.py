"""Mistakes are errors before anything is loaded, and leave no folder."""

import importlib.util
import json
import sys
from typing import Any

import pytest

from gar.config import make_config, read_preset
from gar.data import rows
from gar.errors import GarError
from gar.integrations.trl.arguments import grpo_arguments
from gar.train.checks import check_before_loading
from gar.train.inputs import RunInputs
from tests.support.errors import raises
from tests.support.processes import completed
from tests.support.runs import begun_run
from tests.support.tiny import tiny_qwen3, word_tokenizer

HEAVY = {"torch", "transformers", "trl", "datasets"}


def mistakes(values: dict[str, Any], code: str | None = None) -> str:
    with raises(GarError, code) as caught:
        check_before_loading(make_config(values))
    return str(caught.value)


def test_check_before_loading_rejects_fields_of_trl():
    for name, value in (
        ("max_step", 10),
        ("learning_rate", -1),
        ("top_p", 1.5),
        ("loss_type", "dr-grpo"),
        ("seed", 1),
    ):
        mistakes({"trl": {name: value}}, f"trl.{name}")


def test_a_file_is_read_once_but_for_its_first_row(write_rows, monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    parsed = rows._parsed
    monkeypatch.setattr(rows, "_parsed", lambda line, number: (read.append(number), parsed(line, number))[1])
    path = write_rows(*({"prompt": f"{i}+4=", "answer": "7", "expert_solution": "so 7"} for i in range(50)))
    config = make_config({"data": {"source": path, "template": "plain"}, "evaluate": {"sources": []}})
    check_before_loading(config)
    assert read == [1]  # a generation batch has one problem
    RunInputs(config, *grpo_arguments(config), print)
    assert read == [1, *range(1, 51)]


def test_fewer_problems_than_a_generation_batch_needs_are_named(write_rows):
    rows = [{"prompt": f"{i}+4=", "answer": "7", "expert_solution": "so 7"} for i in range(3)]
    values: dict[str, Any] = {"data": {"source": write_rows(*rows)}, "trl": {"per_device_train_batch_size": 32}}
    assert "needs 4 problems, got 3 in all" in mistakes(values, "few-problems")
    values = {"data": {"max_problems": 2}, "trl": {"per_device_train_batch_size": 32}}
    assert "needs 4 problems, got 2 in all" in mistakes(values, "few-problems")


def test_a_file_without_expert_solutions_is_named_for_the_methods_that_need_them(write_rows):
    rows = [{"prompt": f"{i}+4=", "answer": "7"} for i in range(3)]
    source = write_rows(*rows)
    assert "none of the 3 problems has one" in mistakes({"data": {"source": source}}, "no-anchors")
    check_before_loading(make_config({"data": {"source": source}, "method": "grpo"}))
    source = write_rows(*rows, {"prompt": "9+4=", "answer": "3", "expert_solution": "so 3"})
    check_before_loading(make_config({"data": {"source": source}}))


def test_check_before_loading_accepts_what_trl_does():
    numbers = {"max_steps": -1, "learning_rate": 0, "top_k": -1, "num_generations": None, "save_steps": 0.5}
    trl = {**numbers, "scale_rewards": True, "report_to": "none", "bf16": None}
    check_before_loading(make_config({"trl": trl, "evaluate": {"num_samples": 2}}))  # nothing is evaluated


IN_16_BITS = {"model": {"dtype": "bfloat16"}}
AT_RANDOM = {"optim": "adamw_torch_8bit", "optim_args": "block_size=256, bf16_stochastic_round=True"}
with_torchao = pytest.mark.usefixtures("torchao")


@pytest.fixture
def torchao(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: find("json" if name == "torchao" else name))


@with_torchao
@pytest.mark.parametrize(
    "trl",
    [{}, {"optim": "adamw_torch_8bit"}, AT_RANDOM | {"optim_args": "bf16_stochastic_round=False"},
     AT_RANDOM | {"optim": "adamw_torch"}, {"optim": "adafactor", "bf16": False}],
)  # fmt: skip
def test_check_before_loading_rejects_16_bit_weights_that_an_optimizer_does_not_move(trl):
    text = mistakes(IN_16_BITS | {"trl": trl}, "model.dtype")
    assert text.startswith("model.dtype is bfloat16, expected auto or float32: all weights are trained")
    for way_out in ("Load float32", "pip install '.[lowbit]'", "adamw_torch_8bit", "bf16_stochastic_round=True"):
        assert way_out in text


@with_torchao
def test_check_before_loading_accepts_16_bit_weights_that_move(monkeypatch, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    for values in (
        {"model": {"dtype": "float32"}},
        {"adapter": {"rank": 8}} | IN_16_BITS,
        {"model": {"dtype": "bfloat16", "path": str(adapter)}},
        IN_16_BITS | {"trl": AT_RANDOM},
        IN_16_BITS | {"trl": {"optim": "adamw_torch_4bit", "optim_args": "bf16_stochastic_round=1"}},
    ):
        check_before_loading(make_config(values))
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_before_loading(make_config(IN_16_BITS | {"trl": {"fsdp": True}}))
    for launcher in ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"):
        with monkeypatch.context() as patch:
            patch.setenv(launcher, "true")
            check_before_loading(make_config(IN_16_BITS))


def test_check_before_loading_names_packages_that_are_missing(monkeypatch):
    find, there = importlib.util.find_spec, ("trl", "transformers")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: find(name) if name in there else None)
    text = mistakes({"trl": {"use_vllm": True}, "adapter": {"rank": 8}})
    assert "adapter.rank is 8, expected False: peft is not installed: pip install '.[peft]'" in text
    assert "needs the package torchao: pip install '.[lowbit]'" in mistakes({"trl": AT_RANDOM}, "trl.optim")
    assert "pip install '.[vllm]'" in mistakes({"trl": {"use_vllm": True}})
    text = mistakes({"trl": {"report_to": ["none", "wandb"]}}, "trl.report_to")
    assert text == "trl.report_to is wandb, and it is not installed: pip install wandb"


def test_check_before_loading_tells_every_missing_thing_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = mistakes(read_preset("paper-qwen3-4b") | {"model": {"path": "no/such/model"}})
    lines = text.splitlines()
    command = "gar data prepare AI-MO/NuminaMath-CoT numina-10k.jsonl --num-problems 10000 --seed 0"
    assert f"- numina-10k.jsonl: no such file. Make it with: {command}" in lines
    assert "- there is no folder 'no/such/model', and this is not the form of a Hub id." in lines
    assert lines[0] == ""


MISTAKES = {
    "train --trl.max_completion_length 0": "trl.max_completion_length is 0, expected >= 1.",
    "train --trl.report_to wandbb": "trl.report_to is wandbb, expected none or some of azure_ml, ",
    "train --trl.report_to neptune": "trl.report_to is neptune, and it is not installed: pip install neptune",
    "train --data.source nix.jsonl": "nix.jsonl: no such file.",
    "train --data.source nix": "nix: no such file or folder, and a data set on the Hub is OWNER/NAME.",
    "train --data.source owner/nix": "owner/nix: no folder of that name here, and the Hub cannot be reached (HF_HUB_O",
    "train demo": "demo: cannot read the configuration: No such file or directory. Did you mean --preset demo?",
    "train flat.yaml": "flat.yaml: unknown key 'bonus_weight'. Did you mean 'reward.bonus_weight'?",
    "train --model.path owner/nix": "no model 'owner/nix' on this machine: there is no folder of that name, it is not ",
    "train --data.source semi.csv": "semi.csv: no column 'prompt'. ",
    "train --data.source latin.jsonl": "latin.jsonl:1: not readable as JSON: 'utf-8' codec can't decode byte 0xe9 in ",
    "train --trl.fp16 true --trl.bf16 true": "trl.fp16 is True, expected False: trl.bf16 is set, and only one of the ",
    "train --plugin nix.py": "plugin nix.py cannot be imported: [Errno 2] No such file or directory: '{here}/nix.py'.",
    "eval run embedded --benchmark arithmetic --max-new-tokens 600": "--max-new-tokens is 600, but the context of ",
    "train --preset demo --data.split tset": "the arithmetic task has no split 'tset', expected one of train, test, ",
    "train --evaluate.sources nix": "nix: no such file or folder, and a data set on the Hub is OWNER/NAME.",
    "train --preset demo --data.max_problems 1": "a batch of 64 responses in groups of 8 needs 8 problems, got 1 in ",
    "train --model.path embeded": "no folder 'embeded', and a Hub id is OWNER/NAME. Did you mean 'embedded'?",
    "train --resume nix": "nix: no such folder.",
    "train --trl.max_completion_length 1000": "trl.max_completion_length is 1000, but the context of embedded is 512 ",
    "train --trl.deepspeed zero3.json": "trl.deepspeed is zero3.json, ",
    "train --preset demo --trl.fsdp full_shard": "trl.fsdp is full_shard, expected False: shards need several proc",
    "train --preset demo --model.attention sdpa2": "model.attention: transformers has no attention 'sdpa2'. ",
    "eval run embedded --benchmark arithmetic --backend vllm": "--backend vllm needs vLLM: pip install ",
    "eval run embedded --benchmark arithmetic --samples 4 --pass-at-k 8": "pass@8 needs 8 samples per problem",
    "report runs --out nix/page.html": "nix: no such folder",
    "train --data.source chat.jsonl": "the prompt of problem 'chat-1' is given as chat messages, and the tokenizer ",
    "train --data.source one.jsonl --data.template chat": "the template chat needs a tokenizer with a chat template, ",
    "train --data.source empty.jsonl": "empty.jsonl: no rows.",
    "train --data.source columns.jsonl": "columns.jsonl: no column 'prompt'. Name it with prompt_field (--prompt-",
    "train --data.source one.jsonl --prompt-field Question": "one.jsonl: no column 'Question'.",
    "train --records.output_dir one.jsonl/runs": "{here}/one.jsonl/runs: no run folder can be made here (Not a ",
    "train --verify.verifier json:nosuch": "the verifier 'json:nosuch' cannot be imported",
    "train --trl.reward_weights 1 0.5": "trl.reward_weights is [1, 0.5], expected a list of one: gar train has ",
    "train --trl.generation_batch_size 9": "trl.num_generations is 8, and a generation batch has 9 responses, which ",
    "train --trl.push_to_hub true": "trl.push_to_hub is True, expected False: gar train uploads nothing. ",
    "train --trl.hub_token hf_secret": "trl.hub_token is set, and a run records its settings. ",
    "train --model.path broken": "{here}/broken/config.json: not valid JSON: ",
    "train --model.path bare": "{here}/bare/config.json: no model_type in it",
    "train --resume finished": "finished: this run is finished. There is nothing to resume.",
    "compare typo.yaml": "typo.yaml: run 'gropo': method: ",
    "compare twice.yaml": "twice.yaml: label 'grpo' appears twice.",
    "data slime nix.jsonl out.jsonl": "nix.jsonl: no such file.",
}  # fmt: skip
"""Command lines, and how their only message begins."""

ROW = {"prompt": "1+1=", "answer": "2", "expert_solution": "1+1=2"}
COMPARISON = "name: x\nbase: demo\nseeds: [0]\nruns: "
FILES = {
    "empty.jsonl": "",
    "chat.jsonl": json.dumps(ROW | {"prompt": [{"role": "user", "content": "1+1="}]}),
    "columns.jsonl": json.dumps({"Question": "1+1=", "Answer": "2"}),
    "one.jsonl": json.dumps(ROW),
    "broken/config.json": "{",
    "bare/config.json": "{}",
    "typo.yaml": COMPARISON + "[gropo]",
    "semi.csv": "prompt;answer\n1+1=;2\n",
    "latin.jsonl": '{"prompt": "caf\udce9"}',
    "flat.yaml": "bonus_weight: 1",
    "twice.yaml": COMPARISON + "[grpo, grpo]",
}
"""Files of the command lines above."""


@pytest.mark.slow
def test_mistakes_get_one_line_before_torch_is_imported_and_leave_no_folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    begun_run(tmp_path, "finished").update_run(status="finished")
    there = {*tmp_path.iterdir()}
    code = (
        "import contextlib, io, json, sys\nfrom gar.cli.main import main\nfound = {}\n"
        f"for command in {list(MISTAKES)!r}:\n"
        "    out, err = io.StringIO(), io.StringIO()\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n"
        "        status = main(command.split())\n"
        f"    found[command] = [status, out.getvalue(), err.getvalue(), sorted({HEAVY!r} & set(sys.modules))]\n"
        "print(json.dumps(found))"
    )
    run = completed([sys.executable, "-c", code], cwd=tmp_path)
    found = json.loads(run.stdout)
    for command, message in MISTAKES.items():
        status, out, err, heavy = found[command]
        assert (status, out, err.count("\n"), heavy) == (1, "", 1, []), (command, err)
        assert err.startswith(f"gar {command.split()[0]}: {message.replace('{here}', str(tmp_path))}")
    assert {*tmp_path.iterdir()} == there


def test_an_optimizer_whose_package_is_missing_is_named():
    for name, package in (("adamw_8bit", "bitsandbytes"), ("galore_adamw", "galore-torch")):
        assert f"pip install {package}" in mistakes({"trl": {"optim": name}}, "trl.optim")
    check_before_loading(make_config({"trl": {"optim": "adamw_torch_fused"}}))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_generations", "eight", "expected int or None"),
        ("learning_rate", "1e-4,", "expected float"),
        ("use_cpu", "maybe", "expected bool"),
        ("max_steps", 8.5, "expected int"),
        ("reward_weights", "one", "expected list[float] or None"),
        ("save_strategy", "epochs", "expected one of no, steps, epoch, best. Did you mean 'epoch'?"),
        ("optim", "adamww", "adamw_torch_fused, "),
        ("lr_scheduler_type", "cosin", "Did you mean 'cosine'?"),
        ("generation_kwargs", "top_k", "expected a mapping"),
        ("lr_scheduler_kwargs", 3, "expected a mapping"),
    ],
)
def test_values_of_a_wrong_type_are_named_before_anything_is_loaded(name, value, expected):
    text = mistakes({"trl": {name: value}})
    assert text.startswith(f"trl.{name} is {value!r}, expected ")
    assert expected in text


def test_an_evaluation_set_is_named_once():
    assert "two sets named 'test'" in mistakes({"evaluate": {"sources": ["test", "test"]}}, "evaluate.sources")


def test_prompts_ask_for_the_format_that_is_checked():
    for template, format in (("boxed", "think-answer"), ("think-answer", "boxed")):
        text = mistakes({"data": {"template": template}, "verify": {"format": format}}, "data.template")
        assert f"data.template is {template}" in text
        assert f"{format} (verify.format)" in text
    check_before_loading(make_config({"data": {"template": "boxed"}, "verify": {"format": "none"}}))


def test_a_run_has_one_reward_weight():
    assert "expected a list of one" in mistakes({"trl": {"reward_weights": [1.0, 0.5]}}, "trl.reward_weights")
    check_before_loading(make_config({"trl": {"reward_weights": [2.0]}}))


def test_groups_divide_a_generation_batch(monkeypatch):
    wrong = {"num_generations": 3, "per_device_train_batch_size": 8}
    assert "8 (trl.per_device_train_batch_size) x 1" in mistakes({"trl": wrong}, "trl.num_generations")
    text = mistakes({"trl": wrong | {"generation_batch_size": 8}}, "trl.num_generations")
    assert text.endswith("no multiple of 3: trl.generation_batch_size.")
    mistakes({"trl": {"per_device_train_batch_size": 12}}, "trl.num_generations")  # TRL's groups of 8
    for right in (
        wrong | {"gradient_accumulation_steps": 3},
        wrong | {"gradient_accumulation_steps": 2, "steps_per_generation": 3},
        wrong | {"generation_batch_size": 24},
    ):
        check_before_loading(make_config({"trl": right}))
    monkeypatch.setenv("WORLD_SIZE", "3")
    check_before_loading(make_config({"trl": wrong}))


@pytest.fixture
def folder(tmp_path):
    """A model and its tokenizer."""
    words = ("<unk>", "<eos>", "<pad>")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tiny_qwen3(words, **sizes, num_key_value_heads=1).save_pretrained(tmp_path / "model")
    word_tokenizer(words).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def local(folder) -> dict[str, Any]:
    """Settings of a run of this model, with responses that fit into its context."""
    return {"model": {"path": str(folder)}, "trl": {"max_completion_length": 16}}


def test_names_of_modules_are_read_from_the_weights(folder):
    def chosen(*targets: str) -> dict[str, Any]:
        return local(folder) | {"adapter": {"rank": 4, "target_modules": targets}}

    assert "Did you mean 'q_proj'" in mistakes(chosen("k_proj", "q_porj"), "adapter.target_modules")
    for right in (("q_proj", "mlp.down_proj"), ("all-linear",), ("embed_tokens",)):
        check_before_loading(make_config(chosen(*right)))


def test_a_folder_without_a_tokenizer_is_refused(folder):
    check_before_loading(make_config(local(folder)))
    for file in folder.glob("tokenizer*"):
        file.unlink()
    mistakes(local(folder), "no-tokenizer")
    (folder / "tekken.json").write_text("{}")  # Mistral's own format, which transformers reads
    check_before_loading(make_config(local(folder)))


def test_trl_s_default_of_the_longest_response_must_fit_into_the_context(folder):
    text = mistakes({"model": {"path": str(folder)}})
    assert "the default of trl.max_completion_length is 512, but the context of " in text


def test_an_instruction_longer_than_the_longest_prompt_is_refused(folder):
    values = local(folder) | {"data": {"template": "boxed", "max_prompt_tokens": 4}, "verify": {"format": "boxed"}}
    assert "has 10 tokens" in mistakes(values, "data.max_prompt_tokens")
    check_before_loading(make_config(values | {"data": {"template": "boxed", "max_prompt_tokens": 40}}))
