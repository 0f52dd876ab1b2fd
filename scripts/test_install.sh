#!/usr/bin/env bash
# What a user gets: build the wheel, install it with its extra `train` on each Python that is named, and use it from an empty
# folder, in an empty home and without a network. pip installs on the first Python. uv installs on the others: it unpacks once what
# Pythons share, which on Linux are gigabytes of CUDA. Only the installation reads your home (pip's settings and cache) and needs a network.
#   scripts/test_install.sh [PYTHON ...]    by default python3
set -euo pipefail
set -m  # a process group for each use, so that an early end of this script ends it whole
cd "$(dirname "$0")/.."
root=$PWD
pythons=("${@:-python3}")
for python in "${pythons[@]}"; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$python: expected a Python from 3.11 that starts" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done; wait; rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 UV_CACHE_DIR=$work/uv
mkdir "$work/tree"
cp -r src pyproject.toml README.md LICENSE "$work/tree"
rm -rf "$work"/tree/src/*.egg-info  # names files of former builds
"${pythons[0]}" -m pip wheel -q --no-deps -w "$work/wheels" "$work/tree"
wheel=$(echo "$work"/wheels/*.whl)

install() {  # PYTHON, ENVIRONMENT
    local constraints=(-c "$root/constraints/main.txt")
    if [ "$1" = "${pythons[0]}" ]; then
        "$1" -m venv "$2"
        "$2/bin/pip" install -q --no-compile "${constraints[@]}" torch
        "$2/bin/pip" install -q --no-compile "${constraints[@]}" "${wheel}[train]"
        "$2/bin/pip" check
    else
        [ -x "$work/tools/bin/uv" ] || { "${pythons[0]}" -m venv "$work/tools" && "$work/tools/bin/pip" install -q "${constraints[@]}" uv; }
        "$work/tools/bin/uv" venv -q -p "$1" "$2"
        "$work/tools/bin/uv" pip install -q -p "$2/bin/python" "${constraints[@]}" "${wheel}[train]"
        "$work/tools/bin/uv" pip check -p "$2/bin/python"
    fi
}

use() {  # ENVIRONMENT
    local bin=$1/bin
    for extra in peft submitit vllm pytest; do
        if "$bin/python" -c "import $extra" 2>/dev/null; then echo "$extra is installed, though it is an extra" >&2; exit 1; fi
    done
    mkdir "$1/home" "$1/folder"
    cd "$1/folder"
    unset PYTHONPATH XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME HF_HOME HF_HUB_CACHE TORCH_HOME MPLCONFIGDIR
    export HOME=$1/home OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
    run() { "$bin/gar" "$@" >output 2>&1 || { echo "gar $*"; cat output; exit 1; } >&2; }
    run doctor
    run train --preset demo --trl.max_steps 2 --records.name short
    test "$(grep -c gar/alignment_mean runs/short/metrics.jsonl)" = 2
    run eval run runs/short/model --benchmark arithmetic --limit 8 --samples 2 --out evaluation
    run report runs/short --out report.html
    test -s evaluation/arithmetic/metrics.json -a -s report.html
    echo "The wheel works on $("$bin/python" -V), $SECONDS s after the start."
}

# Each environment is installed while those before it are used.
uses=()
for python in "${pythons[@]}"; do
    environment=$work/environment-${#uses[@]}
    install "$python" "$environment"
    echo "Installed on $("$environment/bin/python" -V), $SECONDS s after the start."
    use "$environment" &
    uses+=($!)
done
for each in "${uses[@]}"; do
    wait "$each"
done
