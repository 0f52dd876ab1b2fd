#!/usr/bin/env bash
# GAR on slime with the paper's settings for Qwen3-4B-Base or 8B-Base: one node, 8 GPUs. Run inside slime's container; not run yet.
# Lines marked [paper] are stated in arXiv 2609.03342; all others are slime's recipe for these models, or ours.
#
#   gar data prepare AI-MO/NuminaMath-CoT numina-10k.jsonl --num-problems 10000 --seed 0
#   gar data slime numina-10k.jsonl numina-10k-slime.jsonl
#   gar data slime HuggingFaceH4/MATH-500 math-500-slime.jsonl --split test
#   [SIZE=8B] SLIME=slime MODEL=Qwen3-4B-Base MODEL_DIST=Qwen3-4B-Base_torch_dist MEGATRON=Megatron-LM \
#       DATA=numina-10k-slime.jsonl EVAL=math-500-slime.jsonl SAVE=gar-qwen3-4b bash scripts/slime_qwen3.sh
set -euo pipefail
SIZE=${SIZE:-4B}
: "${SLIME:?a checkout of slime >= 0.3.0}"
: "${MODEL:?folder of the Hugging Face checkpoint}"
: "${MODEL_DIST:?folder of the same as a torch_dist checkpoint (slime: tools/convert_hf_to_torch_dist.py)}"
: "${DATA:?rows written by gar data slime}"
: "${EVAL:?rows to evaluate on, also written by gar data slime}"
: "${SAVE:?folder for checkpoints}"
GPUS=${GPUS:-8}
: "${MEGATRON:?a checkout of Megatron-LM, as the container of slime has}"
mkdir -p "$SAVE"
# Ray starts the job, and the hooks read their files, in folders of their own.
for name in SLIME MODEL MODEL_DIST DATA EVAL SAVE MEGATRON; do
    declare "$name=$(realpath "${!name}")"
done
# shellcheck source=/dev/null
source "$SLIME/scripts/models/qwen3-$SIZE.sh"

cat >"$SAVE/gar.yaml" <<'GAR_YAML'
gar:
  method: gar-grpo # [paper]
  capture: own # one update per rollout: slime makes no log-probability pass to read (docs/integrations/slime.md)
  variant: paper-thresholds # [paper] names tau_a 0.05 and p_f 0.7 and does not define them: our reading. ddof 0; eps 1e-6, ours
  signal:
    max_tokens: 768 # [paper]
  reward:
    bonus_weight: 0.5 # [paper]
    format_penalty: -0.6 # [paper]
GAR_YAML

GAR_ARGS=(
    --custom-config-path "$SAVE/gar.yaml"
    --custom-convert-samples-to-train-data-path gar.integrations.slime.convert_samples
    --custom-megatron-init-path gar.integrations.slime.on_megatron_init
    --rollout-data-postprocess-path gar.integrations.slime.postprocess
    --custom-rm-path gar.integrations.slime.outcome_reward
)
CHECKPOINT_ARGS=(
    --hf-checkpoint "$MODEL"
    --ref-load "$MODEL_DIST"
    --load "$SAVE"
    --save "$SAVE"
    --save-interval 50
)
ROLLOUT_ARGS=(
    --prompt-data "$DATA"
    --input-key prompt
    --label-key label
    --metadata-key metadata
    --apply-chat-template
    --rollout-shuffle
    --num-rollout 400              # [paper]
    --rollout-batch-size 128       # [paper]
    --n-samples-per-prompt 16      # [paper]
    --global-batch-size 2048       # one update per rollout
    --rollout-max-response-len 4096
    --rollout-temperature 1
    --balance-data
)
EVAL_ARGS=(
    --eval-interval 50
    --eval-prompt-data math-500 "$EVAL"
    --n-samples-per-eval-prompt 16
    --eval-temperature 1
    --eval-max-response-len 4096
    --log-passrate                 # eval/math-500-pass@1: the share of rewards of 1, for right answers in the format
)
GRPO_ARGS=(
    --advantage-estimator grpo     # [paper]
    --entropy-coef 0.0
    --eps-clip 0.2
    --eps-clip-high 0.28
)
OPTIMIZER_ARGS=( # Megatron's distributed optimizer, which slime always takes, holds the float32 weights
    --optimizer adam
    --lr 1e-6
    --lr-decay-style constant
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.98
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 4 # [paper]
    --sequence-parallel
    --pipeline-model-parallel-size 1
    --context-parallel-size 1
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 1
    --use-dynamic-batch-size
    --max-tokens-per-gpu 9216
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --accumulate-allreduce-grads-in-fp32
    --attention-softmax-in-fp32
    --attention-backend flash
)
SGLANG_ARGS=(
    --rollout-num-gpus-per-engine 2
    --sglang-mem-fraction-static 0.7
)

ray start --head --node-ip-address "${MASTER_ADDR:-127.0.0.1}" --num-gpus "$GPUS" --disable-usage-stats
ray job submit --address=http://127.0.0.1:8265 \
    --runtime-env-json="{\"env_vars\": {\"PYTHONPATH\": \"$MEGATRON\", \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\"}}" \
    -- python3 "$SLIME/train.py" --actor-num-nodes 1 --actor-num-gpus-per-node "$GPUS" --colocate \
    "${MODEL_ARGS[@]}" "${GAR_ARGS[@]}" "${CHECKPOINT_ARGS[@]}" "${ROLLOUT_ARGS[@]}" "${EVAL_ARGS[@]}" "${GRPO_ARGS[@]}" \
    "${OPTIMIZER_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${SGLANG_ARGS[@]}"
