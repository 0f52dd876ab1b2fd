"""A training with vLLM, in the trainer's own process or a server, as a program: vLLM ends with its process.

python -m tests.engines.vllm.training OUT.json [--adapter] [--without-sync] [--server URL]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from safetensors.torch import save_file
from trl import GRPOConfig
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from gar import GARScorer, ResponseGroup
from gar.data.arithmetic import load_arithmetic
from gar.integrations.trl.ranks import leave_ranks
from gar.integrations.trl.trainer import GARTrainer
from gar.models.embedded import load_embedded
from gar.verify import Verifier
from tests.engines.vllm import shim  # noqa: F401  it changes vLLM
from tests.support.rows import group_of

GROUP = 8


class ComparedTrainer(GARTrainer):
    """Scores each step's responses a second time, by `GARScorer` and the weights of the step."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.rewards: list[list[float]] = []
        self.expected: list[list[float]] = []

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        rewards = super()._calculate_rewards(*args, **kwargs)
        batch, starts = self._batch, range(0, len(self._batch), GROUP)
        groups = [_group(batch.responses[start : start + GROUP], batch.problems[start]) for start in starts]
        scorer = GARScorer(self.accelerator.unwrap_model(self.model), self.processing_class, verifier=Verifier())
        self.rewards.append(batch.step.shaped.rewards.tolist())
        self.expected.append([score.reward for score in scorer.score(groups)])
        return rewards


def _group(responses: list[Any], problem: Any) -> ResponseGroup:
    prompt, ids = responses[0].sequence.context_ids, [response.ids for response in responses]
    return group_of(problem, ids, prompt=prompt, answer=problem.answer, question=problem.question)


def send_files(folder: Path) -> None:
    """Send weights to a server by files. TRL's own way is NCCL's, which needs GPUs."""

    def update_named_params(client: VLLMClient, _: Any, named_params: Any) -> None:
        folder.mkdir(exist_ok=True)
        save_file({name: tensor.clone() for name, tensor in named_params}, folder / "model.safetensors")
        read = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        client._post(f"{client.base_url}/collective_rpc", json=read)

    VLLMClient.init_communicator = lambda *_, **__: None
    VLLMClient.update_named_params = update_named_params


def main() -> None:
    """Train, and write what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--adapter", action="store_true")
    parser.add_argument("--without-sync", action="store_true")
    parser.add_argument("--server")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.without_sync:
        VLLMGeneration.sync_weights = lambda self: None
    if options.server:
        send_files(options.out.with_suffix(".weights"))
    model, tokenizer = load_embedded()
    args = GRPOConfig(
        output_dir=str(options.out.with_suffix("")),
        per_device_train_batch_size=32,
        num_generations=GROUP,
        max_completion_length=64,
        max_steps=10,
        learning_rate=2e-2 if options.adapter else 2e-3,
        logging_steps=1,
        beta=0.0,
        use_vllm=True,
        vllm_mode="server" if options.server else "colocate",
        vllm_server_base_url=options.server,
        vllm_max_model_length=128,
        bf16=False,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
    )
    trainer = ComparedTrainer(
        model,
        args=args,
        train_dataset=load_arithmetic("train")[:64],
        verifier=Verifier(),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=4, target_modules="all-linear") if options.adapter else None,
    )
    trainer.train()
    ratio = "sampling/importance_sampling_ratio/mean"
    seen = {
        "ratios": [row[ratio] for row in trainer.state.log_history if ratio in row],
        "rewards": trainer.rewards,
        "expected": trainer.expected,
    }
    options.out.write_text(json.dumps(seen))
    leave_ranks()


if __name__ == "__main__":
    main()
