#!/usr/bin/env bash
# The paper's main setting for Qwen3-4B-Base or 8B-Base under TRL with vLLM, on one machine with 8 GPUs. Not run yet: it needs them.
#   pip install '.[vllm]' deepspeed   (docs/integrations/trl.md: vLLM)
#   gar data prepare AI-MO/NuminaMath-CoT numina-10k.jsonl --num-problems 10000 --seed 0
#   [SIZE=8B] scripts/trl_vllm_qwen3.sh colocate|server [any further flag of gar train]
# The settings of the paper are those of the presets paper-qwen3-4b and 8b, marked there line by line. Here stands only who
# generates, how the 2,048 responses of a step are divided, and that ZeRO-3 shards weights, their float32 copies and AdamW's
# states. The presets' optimizer is for one GPU.
set -euo pipefail

MODE=${1:?usage: $0 colocate|server [FLAGS]}
shift
SIZE=${SIZE:-4B}
MODEL=${MODEL:-Qwen/Qwen3-$SIZE-Base}
CONTEXT=5120 # 1,024 tokens of prompt and 4,096 of response
PORT=${PORT:-8000}

case $MODE in
colocate) # every GPU trains, and holds a vLLM that sleeps meanwhile
    TRAIN_GPUS=${TRAIN_GPUS:-0,1,2,3,4,5,6,7}
    VLLM_FLAGS=(
        --trl.vllm_mode colocate
        --trl.vllm_gpu_memory_utilization 0.3
        --trl.vllm_max_model_length "$CONTEXT"
        --trl.vllm_enable_sleep_mode true
    )
    ;;
server) # some GPUs train, the others generate
    TRAIN_GPUS=${TRAIN_GPUS:-0,1,2,3}
    SERVER_GPUS=${SERVER_GPUS:-4,5,6,7}
    served=${SERVER_GPUS//[^,]/}
    # The last three flags and the variable are what TRL asks of a server it trains with.
    CUDA_VISIBLE_DEVICES=$SERVER_GPUS VLLM_SERVER_DEV_MODE=1 vllm serve "$MODEL" \
        --port "$PORT" \
        --tensor-parallel-size "$((${#served} + 1))" \
        --max-model-len "$CONTEXT" \
        --weight-transfer-config '{"backend": "nccl"}' \
        --logprobs-mode processed_logprobs \
        --max-logprobs -1 &
    trap 'kill %1 2>/dev/null || true' EXIT
    VLLM_FLAGS=(
        --trl.vllm_mode server
        --trl.vllm_server_port "$PORT"
        --trl.vllm_server_timeout 900
    )
    ;;
*)
    echo "usage: $0 colocate|server [FLAGS], got '$MODE'" >&2
    exit 2
    ;;
esac

commas=${TRAIN_GPUS//[^,]/}
num_gpus=$((${#commas} + 1))
if ((256 % num_gpus)); then
    echo "TRAIN_GPUS names $num_gpus GPUs; 256 passes of 8 responses must divide evenly over them" >&2
    exit 2
fi
CUDA_VISIBLE_DEVICES=$TRAIN_GPUS accelerate launch --num_processes "$num_gpus" --mixed_precision bf16 \
    --use_deepspeed --zero_stage 3 --zero3_init_flag true --zero3_save_16bit_model true -m gar \
    train --preset "paper-qwen3-${SIZE,,}" \
    --model.path "$MODEL" \
    --model.dtype auto \
    --trl.optim adamw_torch_fused \
    --trl.optim_args null \
    --trl.gradient_accumulation_steps "$((256 / num_gpus))" \
    --trl.use_vllm true \
    "${VLLM_FLAGS[@]}" \
    "$@"
