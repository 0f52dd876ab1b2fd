"""What TRL's users bring to `GRPOTrainer`: each runs here on a tiny model, or is an error with its reason."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl import GRPOConfig
from trl.chat_template_utils import qwen3_chat_template

from gar import ConfigError, GARTrainer
from tests.integrations.conftest import SMALL
from tests.integrations.tiny_policy import planned_trainer
from tests.support.errors import raises


class Calculator:
    """An environment with one tool, which notes what it was given at the start."""

    starts: ClassVar[list[dict[str, Any]]] = []

    def reset(self, **row: Any) -> None:
        self.starts.append(row)

    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        return a + b


CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call><|im_end|>'
ENDS = ("It is 7.<|im_end|>", "The sum is 7.<|im_end|>", "It is 8.<|im_end|>", "No.<|im_end|>")


@pytest.fixture(scope="module")
def chat_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 with one token per byte and Qwen3's chat template."""
    folder = tmp_path_factory.mktemp("chat")
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>"], chat_template=qwen3_chat_template,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(tokenizer), max_position_embeddings=4096, hidden_size=16, intermediate_size=16, head_dim=8,
        num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    GenerationConfig(eos_token_id=tokenizer.eos_token_id).save_pretrained(folder)
    return folder


def test_tokens_of_a_tool_get_no_signal(chat_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    Calculator.starts.clear()
    rows = [{"prompt": [{"role": "user", "content": "3+4="}], "answer": "7", "expert_solution": "3 and 4 is 7."}] * 4
    records: list[Any] = []
    trainer = GARTrainer(
        model=str(chat_policy),
        args=GRPOConfig(
            str(tmp_path),
            **(SMALL | {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 400}),
        ),
        train_dataset=Dataset.from_list(rows),
        on_rollouts=lambda step, found: records.extend(found),
        environment_factory=Calculator,
    )
    tokenizer, turns = trainer.processing_class, []

    def generate(prompts: list, *_: Any, **__: Any) -> tuple:
        turns.append(len(prompts))
        texts = [CALL] * 4 if len(turns) == 1 else ENDS
        return [tokenizer.encode(text, add_special_tokens=False) for text in texts], None

    trainer._generate_single_turn = generate
    trainer.train()
    assert turns == [4, 4]  # the call, and the answer after the tool's result
    written = [len(tokenizer.encode(text, add_special_tokens=False)) - 1 for text in (CALL, *ENDS)]
    for row, end in zip(records, written[1:], strict=True):
        assert row.num_tokens > written[0] + end + 2  # the tool's result between them
        assert row.num_scored_tokens == written[0] + 1 + end
        assert "<tool_response>" not in row.response
    assert [row.verified for row in records] == [True, True, False, False]
    assert all((row.alignment is not None) == row.verified for row in records)
    assert trainer.state.log_history[0]["tools/call_frequency"] == 1.0
    assert all(set(row) == {"prompt", "answer", "expert_solution"} for row in Calculator.starts)


def test_a_model_that_reads_images_is_an_error(tmp_path: Path):
    processor = object.__new__(type("Processor", (ProcessorMixin,), {}))
    with raises(ConfigError, "processing_class"):
        planned_trainer(tmp_path, tmp_path / "out", processing_class=processor)
