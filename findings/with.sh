#!/usr/bin/env bash
# Runs the Python program on standard input with pinned packages, in an environment of its own that is removed afterwards.
#   findings/with.sh PACKAGE==VERSION... < PROGRAM
# With FINDINGS_ENVS=FOLDER environments are kept there and shared by scripts with the same packages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=$(printf '%s\n' "$@" | sha256sum | cut -c1-12)
env=${FINDINGS_ENVS:-$work}/$name
if [ ! -e "$env/ready" ]; then
    "${PYTHON:-python3}" -m venv "$env"
    "$env/bin/pip" install -q --disable-pip-version-check "$@"
    touch "$env/ready"
fi
cat > "$work/program.py"
cd "$work"
export PYTHONPATH="$here"
export HF_HUB_OFFLINE=1 HF_HOME="$work/hub" TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
"$env/bin/python" -W ignore program.py
