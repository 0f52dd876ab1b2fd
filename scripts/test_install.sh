#!/usr/bin/env bash
# What a user gets: build the wheel, install it with its extra `train` on each Python that is named, and use it from an empty
# folder, in an empty home and without a network. Only the installation reads your home (pip's settings and cache) and needs one.
#   scripts/test_install.sh [PYTHON ...]    by default python3
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
pythons=("${@:-python3}")
for python in "${pythons[@]}"; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$python: expected a Python from 3.11 that starts" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
cp -r src pyproject.toml README.md LICENSE "$work/tree"
rm -rf "$work"/tree/src/*.egg-info  # names files of former builds
"${pythons[0]}" -m pip wheel -q --disable-pip-version-check --no-deps -w "$work/wheels" "$work/tree"
wheel=$(echo "$work"/wheels/*.whl)

# In a folder of its own: an environment with CUDA takes gigabytes, so each is gone before the next.
use() {
    local bin=$work/environment/bin
    rm -rf "$work/environment" "$work/home" "$work/folder"
    mkdir "$work/home" "$work/folder"
    "$1" -m venv "$work/environment"
    pip() { "$bin/pip" "$@" -q --disable-pip-version-check --no-compile -c "$root/constraints/main.txt"; }
    pip install torch
    pip install "${wheel}[train]"
    "$bin/pip" check
    for extra in peft submitit vllm pytest; do
        if "$bin/python" -c "import $extra" 2>/dev/null; then echo "$extra is installed, though it is an extra" >&2; exit 1; fi
    done
    cd "$work/folder"
    unset PYTHONPATH XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME HF_HOME HF_HUB_CACHE TORCH_HOME MPLCONFIGDIR
    export HOME=$work/home OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
    run() { echo "gar $*"; "$bin/gar" "$@" >output 2>&1 || { cat output >&2; exit 1; }; }
    run doctor
    run train --preset demo --trl.max_steps 2 --evaluate.num_samples 4 --records.name short
    test "$(grep -c gar/alignment_mean runs/short/metrics.jsonl)" = 2
    run score embedded "$root/examples/rollouts.jsonl" --out scores.parquet
    run eval run runs/short/model --benchmark arithmetic --limit 8 --samples 2 --out evaluation
    run report runs/short --out report.html
    test -s scores.parquet -a -s evaluation/arithmetic/metrics.json -a -s report.html
}
for python in "${pythons[@]}"; do
    started=$SECONDS
    (use "$python")
    echo "The wheel works on $("$python" -V), in $((SECONDS - started)) s."
done
