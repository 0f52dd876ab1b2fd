#!/usr/bin/env bash
# The benchmarks of the signal on one GPU, in under ten minutes: heads, scaling, whole steps of 8B and 4B models.
#   PYTHON=python3 OUT=results bash benchmarks/gpu.sh
# Needs torch >= 2.11 for CUDA, transformers >= 5.17, jaxtyping and rich; not the rest of this package's dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-results}
python=${PYTHON:-python3}
export PYTHONPATH=src HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
"$python" -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())'
"$python" benchmarks/head.py --device cuda --dtype bfloat16 --rounds 7 --out "$out/head-cuda.json"
"$python" benchmarks/scale.py --device cuda --rounds 5 --out "$out/scale-cuda.json"
"$python" benchmarks/step.py --device cuda --model Qwen3-8B --rounds 3 --out "$out/step-cuda-8b.json"
"$python" benchmarks/step.py --device cuda --model Qwen3-4B --rounds 3 --out "$out/step-cuda-4b.json"
