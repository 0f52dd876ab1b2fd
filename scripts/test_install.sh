#!/usr/bin/env bash
# What a user gets: build the wheel, install it without extras into a new environment, and use it from an empty folder, in an
# empty home and without a network. Only the installation reads your home (pip's settings and cache) and needs a network.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree" "$work/home" "$work/folder"

cp -r src pyproject.toml README.md LICENSE "$work/tree"
rm -rf "$work"/tree/src/*.egg-info  # names files of former builds
"${PYTHON:-python3}" -m venv "$work/environment"
bin=$work/environment/bin
pip() { "$bin/pip" "$@" -q --disable-pip-version-check -c "$root/constraints/main.txt"; }
pip wheel --no-deps -w "$work/wheels" "$work/tree"
pip install torch
pip install "$work"/wheels/*.whl

cd "$work/folder"
unset PYTHONPATH XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME HF_HOME HF_HUB_CACHE TORCH_HOME MPLCONFIGDIR
export HOME=$work/home OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
for extra in peft submitit vllm pytest; do
    if "$bin/python" -c "import $extra" 2>/dev/null; then echo "$extra is installed, though it is an extra" >&2; exit 1; fi
done
run() { echo "gar $*"; "$bin/gar" "$@" >output 2>&1 || { cat output >&2; exit 1; }; }
run doctor
run train --preset demo --trl.max_steps 2 --evaluate.num_samples 4 --records.name short
test "$(grep -c gar/alignment_mean runs/short/metrics.jsonl)" = 2
run score embedded "$root/examples/rollouts.jsonl" --out scores.parquet
run eval run runs/short/model --benchmark arithmetic --limit 8 --samples 2 --out evaluation
run report runs/short --out report.html
test -s scores.parquet -a -s evaluation/arithmetic/metrics.json -a -s report.html
echo "The wheel works without extras."
