#!/usr/bin/env bash
# What each extra adds to torch: installs `.` and every extra, each in a new environment with torch alone, and deletes it after.
# Prints a row of a table for each: seconds, MB, packages. Ends where `pip check` or `gar --version` fails. Needs a network.
#   scripts/measure_extras.sh [EXTRA ...]    by default all of pyproject.toml, and "" for none. PYTHON names the interpreter
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1
if [ $# = 0 ]; then
    read -ra extras <<<"$("$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"])')"
    set -- "" "${extras[@]}"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
cp -r src pyproject.toml README.md LICENSE "$work/tree"
rm -rf "$work"/tree/src/*.egg-info  # names files of former builds
"$python" -m venv "$work/torch"
"$work/torch/bin/python" -m pip install -q --no-compile -c constraints/main.txt torch
megabytes() { du -sm "$1" | cut -f1; }
packages() { "$1/bin/python" -m pip list --format freeze | wc -l; }

echo "| extra | seconds | MB | packages |"
echo "|---|---|---|---|"
for extra in "$@"; do
    cp -al "$work/torch" "$work/env"  # links: pip replaces files and changes none
    started=$SECONDS
    "$work/env/bin/python" -m pip install -q --no-compile "$work/tree${extra:+[$extra]}"
    seconds=$((SECONDS - started))
    "$work/env/bin/python" -m pip check >"$work/output" || { cat "$work/output" >&2; exit 1; }
    (cd "$work" && env/bin/gar --version) >>"$work/output"
    added=$(($(megabytes "$work/env") - $(megabytes "$work/torch"))) more=$(($(packages "$work/env") - $(packages "$work/torch")))
    echo "| ${extra:-none} | $seconds | $added | $more |"
    rm -rf "$work/env"
done
