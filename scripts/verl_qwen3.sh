#!/usr/bin/env bash
# The paper's main setting for Qwen3-4B-Base or 8B-Base under verl 0.9.1, on one machine with 8 GPUs. Not run yet: it needs them.
#   pip install 'verl[vllm]==0.9.1' && pip install '.[verl]'   (from a clone; docs/integrations/verl.md: the environment, the data)
#   [SIZE=8B] scripts/verl_qwen3.sh train.parquet val.parquet [any further flag of verl or of GAR]
# Lines marked [paper] are stated in arXiv 2609.03342; all others are ours, because the paper is silent.
set -euo pipefail

TRAIN=${1:?usage: $0 TRAIN.parquet VAL.parquet [FLAGS]}
VAL=${2:?usage: $0 TRAIN.parquet VAL.parquet [FLAGS]}
shift 2
SIZE=${SIZE:-4B}

# Whom verl imports on the driver and in its reward workers; external_lib below is for the workers that train.
export VERL_USE_EXTERNAL_MODULES=${VERL_USE_EXTERNAL_MODULES:+$VERL_USE_EXTERNAL_MODULES,}gar.integrations.verl.register

FLAGS=(
    trainer.v1.trainer_mode=gar_sync
    reward.reward_manager.name=gar
    actor_rollout_ref.model.external_lib=gar.integrations.verl.register

    +gar.method=gar-grpo                                   # [paper]
    +gar.variant=paper-thresholds                          # [paper] tau_a, p_f: our reading
    +gar.signal.max_tokens=768                             # [paper]
    +gar.reward.bonus_weight=0.5                           # [paper]
    +gar.reward.format_penalty=-0.6                        # [paper]

    algorithm.adv_estimator=grpo                           # [paper]
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean
    actor_rollout_ref.model.path="Qwen/Qwen3-$SIZE-Base"   # [paper]
    data.train_files="$TRAIN"
    data.val_files="$VAL"
    data.train_batch_size=128                              # [paper]
    actor_rollout_ref.rollout.n=16                         # [paper]
    actor_rollout_ref.actor.ppo_mini_batch_size=128
    actor_rollout_ref.actor.optim.lr=1e-6
    trainer.total_training_steps=400                       # [paper]
    data.max_prompt_length=1024
    data.filter_overlong_prompts=True                      # else one longer prompt ends the run
    data.max_response_length=4096

    actor_rollout_ref.actor.strategy=fsdp2
    actor_rollout_ref.actor.fsdp_config.model_dtype=fp32   # the shards are the float32 weights, computed with in bfloat16
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=16384
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6

    trainer.n_gpus_per_node=8
    trainer.nnodes=1
    trainer.logger='["console","tensorboard"]'
    trainer.project_name=gar
    trainer.experiment_name="qwen3-${SIZE,,}"
    trainer.val_before_train=False
    trainer.test_freq=50                                   # greedy, one response per problem (rollout.val_kwargs)
    trainer.save_freq=50                                   # the same command resumes (trainer.resume_mode=auto)
)
exec "${PYTHON:-python}" -m verl.trainer.main_ppo "${FLAGS[@]}" "$@"
