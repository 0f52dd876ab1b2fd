"""`gar train` on real word problems: a tiny Qwen3 and a BPE tokenizer made here from GSM8K, fitted to a few rows."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from gar.cli.main import main
from gar.data.problems import load_problems
from gar.records import RunFolder, open_run

pytestmark = pytest.mark.data

NUM_ROWS = 4
FIT_STEPS = 200


def fitted_checkpoint(source: Path, folder: Path) -> Path:
    """Memorize the first rows well enough that sampling at temperature 1 is often right and seldom the same."""
    text = [row[key] for row in map(json.loads, source.read_text().splitlines()) for key in ("question", "answer")]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        text, trainers.BpeTrainer(vocab_size=1000, special_tokens=["<pad>", "<eos>"], show_progress=False)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="<eos>", padding_side="left")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=512, eos_token_id=1, pad_token_id=0,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    problems = load_problems(str(source), max_problems=NUM_ROWS).problems
    rows = []
    for problem in problems:
        response = f"<think>{problem.anchors[0].text}</think><answer>{problem.answer}</answer><eos>"
        prompt, rest = tokenizer.encode(problem.prompt), tokenizer.encode(response)
        rows.append((prompt + rest, [-100] * len(prompt) + rest))
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in rows])
    labels = torch.tensor([row + [-100] * (width - len(row)) for _, row in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(FIT_STEPS):
        loss = model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.generation_config.eos_token_id = 1
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_gsm8k_rollouts_earn_bonuses_and_advantages_that_grpo_would_not_give(data_dir: Path, tmp_path: Path):
    source = data_dir / "gsm8k_train_2000.jsonl"
    checkpoint = fitted_checkpoint(source, tmp_path / "checkpoint")
    status = main(
        [
            "train", "--model.path", str(checkpoint), "--data.source", str(source),
            "--data.max-problems", str(NUM_ROWS), "--data.template", "plain",
            "--preflight.mode", "off",
            "--records.output_dir", str(tmp_path), "--records.name", "gsm8k",
            "--trl.max_steps", "2", "--trl.per_device_train_batch_size", "16", "--trl.num_generations", "4",
            "--trl.max_completion_length", "256", "--trl.learning_rate", "1e-4",
            "--trl.gradient_checkpointing", "false", "--trl.save_strategy", "no",
        ]
    )  # fmt: skip
    assert status == 0
    rollouts = open_run(RunFolder.open(tmp_path / "gsm8k").path).rollouts().to_pylist()
    assert len(rollouts) == 2 * 16
    assert any(row["bonus"] > 0 for row in rollouts)
    rescued = 0
    for step in (1, 2):
        rows = [row for row in rollouts if row["step"] == step]
        for group in {row["group_index"] for row in rows}:
            members = [row for row in rows if row["group_index"] == group]
            if all(row["eligible"] for row in members):  # every outcome reward is 1: GRPO's advantages are all 0
                rescued += any(row["advantage"] != 0 for row in members)
    assert rescued > 0
