"""Whole jobs of verl on a CPU, with vLLM's build for CPUs as rollout: two ranks, validation, a checkpoint, a resume.

`make test-verl-vllm` installs both and runs this. A job takes minutes, most of them to begin and to end.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gar import GARScorer
from gar.data.arithmetic import load_arithmetic
from gar.integrations.data import write_verl_problems
from gar.models.embedded import load_embedded
from gar.verify import Verifier
from tests.docs.pages import ROOT
from tests.support.processes import completed
from tests.support.rows import group_of
from tests.support.vllm import named_vllm

pytest.importorskip("vllm", reason="vLLM is not installed beside verl: make test-verl-vllm installs it and runs this")

SEGMENTS = "GAR_TEST_SEGMENTS"
"""Variable of a job's processes: how the names of its shared memory begin. vLLM leaves some behind."""
LIMIT = 3600.0
"""Seconds of a job, which takes 140 on two quiet cores."""
GROUP, BATCH, LENGTH = 4, 4, 64
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
FLAGS = f"""
    trainer.v1.trainer_mode=gar_sync trainer.device=cpu trainer.nnodes=1 trainer.n_gpus_per_node=2
    trainer.logger=[console,file] trainer.resume_mode=auto trainer.val_before_train=False
    +ray_kwargs.ray_init.num_gpus=2 ray_kwargs.ray_init.num_cpus=8 +ray_kwargs.ray_init.include_dashboard=False
    reward.reward_manager.name=gar reward.num_workers=1
    +gar.method=gar-grpo +gar.verify.num_workers=1 algorithm.adv_estimator=grpo
    data.train_batch_size={BATCH} data.max_prompt_length=32 data.max_response_length={LENGTH}
    data.dataloader_num_workers=0 data.shuffle=False
    actor_rollout_ref.model.external_lib=gar.integrations.verl.register
    +actor_rollout_ref.model.override_config.attn_implementation=sdpa
    actor_rollout_ref.model.enable_gradient_checkpointing=False
    actor_rollout_ref.actor.strategy=fsdp2
    actor_rollout_ref.actor.fsdp_config.model_dtype=fp32
    +actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32
    actor_rollout_ref.actor.fsdp_config.use_torch_compile=False
    actor_rollout_ref.actor.optim.lr=1e-3
    actor_rollout_ref.actor.ppo_mini_batch_size={BATCH}
    actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048
    actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n={GROUP}
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.dtype=float32 actor_rollout_ref.rollout.enforce_eager=True
    actor_rollout_ref.rollout.calculate_log_probs=True
    actor_rollout_ref.rollout.gpu_memory_utilization=0.1
    actor_rollout_ref.rollout.max_num_seqs=16 actor_rollout_ref.rollout.max_num_batched_tokens=512
    actor_rollout_ref.rollout.free_cache_engine=False +actor_rollout_ref.rollout.enable_sleep_mode=False
    actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16
    actor_rollout_ref.rollout.agent.num_workers=1
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=2048
    +actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls=tests.engines.verl.job_rollout.CpuWorkerExtension
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1
    transfer_queue.backend.SimpleStorage.total_storage_size=1000
""".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two jobs left: two steps with a checkpoint each and a validation, then a third step after a resume."""
    folder = tmp_path_factory.mktemp("job")
    save_model(folder / "model")
    write_verl_problems(load_arithmetic("train")[:32], folder / "train.parquet", template="plain")
    write_verl_problems(load_arithmetic("test")[:8], folder / "val.parquet", template="plain")
    run(folder, "first", "trainer.total_training_steps=2", "trainer.save_freq=1", "trainer.test_freq=2")
    run(folder, "second", "trainer.total_training_steps=3", "trainer.save_freq=-1", "trainer.test_freq=-1")
    return folder


def save_model(path: Path) -> None:
    """The embedded model with what verl asks of a Qwen3: a chat template, and tokens that nothing writes."""
    model, tokenizer = load_embedded()
    tokenizer.add_tokens(["\n", "<|im_end|>"])
    tokenizer.chat_template = CHAT_TEMPLATE
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for matrix in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
            matrix[-2:] = matrix[tokenizer.unk_token_id]
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def run(folder: Path, name: str, *flags: str) -> None:
    """A job of verl's own program, with nothing left of it afterwards."""
    temporary = Path(tempfile.mkdtemp(prefix="gar-"))  # Ray's sockets need short paths
    segments = f"g{os.getpid() % 10**5}{name[0]}_"
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{named_vllm(temporary)}",
        "VERL_USE_EXTERNAL_MODULES": "tests.engines.verl.job_platform,gar.integrations.verl.register",
        "VERL_FILE_LOGGER_PATH": str(folder / f"{name}.jsonl"),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "TORCH_COMPILE_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_raylet_start_wait_time_s": "600",
        "RAY_worker_register_timeout_seconds": "600",
        SEGMENTS: segments,
    }
    environment = {name: value for name, value in environment.items() if name != "RAY_worker_niceness"}
    places = [
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"trainer.rollout_data_dir={folder / 'rollouts'}",
        f"trainer.validation_data_dir={folder / 'validation'}",
        f"data.train_files={folder / 'train.parquet'}",
        f"data.val_files={folder / 'val.parquet'}",
        f"actor_rollout_ref.model.path={folder / 'model'}",
        f"+ray_kwargs.ray_init._temp_dir={temporary}",
    ]
    try:
        done = completed(
            [sys.executable, "-m", "verl.trainer.main_ppo", *FLAGS, *places, *flags],
            env=environment, cwd=folder, seconds=LIMIT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-20000:]
    finally:
        end_processes(segments)
        for segment in Path("/dev/shm").glob(f"{segments}*"):
            segment.unlink()
        shutil.rmtree(temporary, ignore_errors=True)


def end_processes(segments: str) -> None:
    """End what is left of a job. Ray's and vLLM's processes have sessions of their own."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(SEGMENTS) == segments:
                process.send_signal(signal.SIGKILL)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def metrics(folder: Path) -> dict[int, dict[str, float]]:
    """By step."""
    return {line["step"]: line["data"] for name in ("first", "second") for line in lines(folder / f"{name}.jsonl")}


def test_each_step_has_the_metrics_of_gar_and_weights_arrive_before_the_next(folder):
    steps = metrics(folder)
    assert list(steps) == [1, 2, 3]
    for step in steps.values():
        assert step["gar/alignment_mean"] != 0
        assert 0 < step["gar/eligible_fraction"] <= 1
        assert step["actor/grad_norm"] > 0
        assert step["training/rollout_probs_diff_max"] < 1e-5  # without an update, or before it arrives, 0.01 and more
    assert "val-core/arithmetic/acc/mean@1" in steps[2]
    assert len(lines(folder / "validation" / "2.jsonl")) == 8


@pytest.mark.parametrize("step", [1, 2, 3])
def test_rewards_are_those_of_the_scorer_with_the_weights_of_the_step(folder, step):
    """The third step is that of the second job, which has the weights of the checkpoint."""
    path = folder / "model"
    if step > 1:
        path = folder / "checkpoints" / f"global_step_{step - 1}" / "actor" / "huggingface"
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    problems = {spelled(tokenizer, problem.prompt): problem for problem in load_arithmetic("train")[:32]}
    rows = lines(folder / "rollouts" / f"{step}.jsonl")
    assert len(rows) == GROUP * BATCH
    groups = [rows[start : start + GROUP] for start in range(0, len(rows), GROUP)]
    asked = [problems[group[0]["input"]] for group in groups]
    with Verifier() as verifier:
        scores = GARScorer(model, tokenizer, verifier=verifier).score(
            [
                group_of(problem, [row["output"] for row in group], answer=problem.answer)
                for problem, group in zip(asked, groups, strict=True)
            ]
        )
    found, expected = [row["score"] for row in rows], [score.reward for score in scores]
    assert found == pytest.approx(expected, abs=1e-5)


def test_some_responses_earned_a_bonus(folder):
    """In which steps is chance: vLLM's samples depend on how requests meet."""
    rows = [row for step in (1, 2, 3) for row in lines(folder / "rollouts" / f"{step}.jsonl")]
    assert any(row["score"] > 1 for row in rows)


def spelled(tokenizer: Any, prompt: str) -> str:
    """A prompt as verl logs it."""
    return tokenizer.decode(tokenizer.encode(prompt), skip_special_tokens=True)
