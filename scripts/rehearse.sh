#!/usr/bin/env bash
# What a user of verl with eight GPUs runs in a day, on a CPU with a tiny Qwen3, two ranks and vLLM, in minutes: prepare,
# check, train, lose the machine, resume, merge, evaluate, report. The commands are the real ones. CPU has what a GPU does not need.
#   make rehearse                      installs both environments, then runs this into runs/rehearsal
#   PYTHON=.venv-verl-vllm/bin/python GAR=.venv/bin/gar scripts/rehearse.sh FOLDER     FOLDER must be new
# `make test-verl-vllm` runs it and checks what it leaves.
set -euo pipefail
mkdir -p "$(dirname "${1:?usage: $0 FOLDER}")"
mkdir "$1"
folder=$(realpath "$1")
cd "$(dirname "$0")/.."
PYTHON=$(realpath -s "${PYTHON:-.venv-verl-vllm/bin/python}")
GAR=$(realpath -s "${GAR:-.venv/bin/gar}")
export PYTHON HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
sockets=$(mktemp -d -t gar-XXXX)  # Ray's need short paths
segments=g$$_

CPU=(
    trainer.device=cpu trainer.n_gpus_per_node=2 trainer.total_training_steps=3 trainer.save_freq=1 trainer.test_freq=3
    'trainer.logger=["console","file"]'
    trainer.default_local_dir="$folder/checkpoints"
    trainer.rollout_data_dir="$folder/rollouts"
    trainer.validation_data_dir="$folder/validation"
    +ray_kwargs.ray_init.num_gpus=2 ray_kwargs.ray_init.num_cpus=8 +ray_kwargs.ray_init.include_dashboard=False
    +ray_kwargs.ray_init._temp_dir="$sockets"
    reward.num_workers=1 +gar.verify.num_workers=1
    data.train_batch_size=4 data.max_prompt_length=32 data.max_response_length=64
    data.dataloader_num_workers=0 data.shuffle=False
    actor_rollout_ref.model.path="$folder/model"
    +actor_rollout_ref.model.override_config.attn_implementation=sdpa
    actor_rollout_ref.model.enable_gradient_checkpointing=False
    +actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32
    actor_rollout_ref.actor.fsdp_config.use_torch_compile=False
    actor_rollout_ref.actor.optim.lr=1e-3
    actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048
    'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]'
    actor_rollout_ref.rollout.n=4
    actor_rollout_ref.rollout.dtype=float32 actor_rollout_ref.rollout.enforce_eager=True
    actor_rollout_ref.rollout.calculate_log_probs=True
    actor_rollout_ref.rollout.gpu_memory_utilization=0.1
    actor_rollout_ref.rollout.max_num_seqs=16 actor_rollout_ref.rollout.max_num_batched_tokens=512
    actor_rollout_ref.rollout.free_cache_engine=False +actor_rollout_ref.rollout.enable_sleep_mode=False
    actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16
    actor_rollout_ref.rollout.agent.num_workers=1
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=2048
    +actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls=tests.engines.verl.job_rollout.CpuWorkerExtension
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1
    transfer_queue.backend.SimpleStorage.total_storage_size=1000
)

say() { echo "[$SECONDS s] $*"; }

end_job() { "$PYTHON" -m tests.engines.verl.job end "$segments"; }
trap 'end_job; rm -rf "$sockets"' EXIT

train() {  # NAME of its log and its metrics
    say "train ($1.log)"
    cd "$folder"
    export PYTHONPATH=$folder/vllm:$PYTHONPATH GAR_TEST_SEGMENTS=$segments VERL_FILE_LOGGER_PATH=$folder/$1.jsonl
    export VERL_USE_EXTERNAL_MODULES=tests.engines.verl.job_platform
    export VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_KVCACHE_SPACE=1 TORCH_COMPILE_DISABLE=1
    export RAY_AUTH_MODE=disabled RAY_raylet_start_wait_time_s=600 RAY_worker_register_timeout_seconds=600
    exec "$OLDPWD/scripts/verl_qwen3.sh" train.parquet val.parquet "${CPU[@]}" >"$1.log" 2>&1
}

say prepare
"$PYTHON" -m tests.engines.verl.job files "$folder"
"$GAR" data prepare "$folder/source.jsonl" "$folder/train.jsonl" --num-problems 32 --seed 0
say check
"$GAR" data check "$folder/train.jsonl"
"$GAR" data verl "$folder/train.jsonl" "$folder/train.parquet" --template plain
"$GAR" data verl "$folder/test.jsonl" "$folder/val.parquet" --template plain

(train first) &
job=$!
until [ -s "$folder/checkpoints/latest_checkpointed_iteration.txt" ]; do
    kill -0 $job 2>/dev/null || { tail -n 100 "$folder/first.log"; exit 1; }
    sleep 1
done
say "stop after step $(cat "$folder/checkpoints/latest_checkpointed_iteration.txt"), and resume by the same command"
end_job
wait $job || true
(train second) || { tail -n 100 "$folder/second.log"; exit 1; }
end_job

say merge
"$PYTHON" -m verl.model_merger merge --backend fsdp \
    --local_dir "$folder/checkpoints/global_step_3/actor" --target_dir "$folder/merged" >"$folder/merge.log" 2>&1

say evaluate
"$GAR" eval run "$folder/merged" --benchmark "val=$folder/test.jsonl" --template plain --samples 1 --temperature 0 \
    --max-new-tokens 64 --dtype float32 --out "$folder/evals/merged"
grep -o '"val-core/[^,]*' "$folder/second.jsonl" | sed 's/^/the validation of the run: /'

say report
"$GAR" report "$folder/evals/merged/val" --out "$folder/report.html"
say done
