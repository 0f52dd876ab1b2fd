"""The launcher for slime against slime's own parser. GAR_SLIME_CHECKOUT names a checkout."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.docs.test_scripts import slime_arguments
from tests.support.processes import completed

pytest.importorskip("megatron.core", reason="Megatron is not installed: make test-engines installs it")
CHECKOUT = os.environ.get("GAR_SLIME_CHECKOUT")
if not CHECKOUT:
    pytest.skip("GAR_SLIME_CHECKOUT is not set: it names a checkout of slime >= 0.3.0", allow_module_level=True)

PARSE = """
import argparse, json, sys
from tests.engines.megatron.test_slime_checkout import install
install(sys.argv[1])
from slime.utils.arguments import get_slime_extra_args_provider
parser = get_slime_extra_args_provider()(argparse.ArgumentParser(allow_abbrev=False))
args, rest = parser.parse_known_args(sys.argv[2:])
print(json.dumps([{k: v for k, v in vars(args).items() if isinstance(v, str | int | float)}, rest]))
"""


def test_slime_parses_the_launchers_flags_and_its_own_scripts_have_the_others(tmp_path):
    given = slime_arguments(tmp_path)[1:]
    done = completed([sys.executable, "-c", PARSE, CHECKOUT, *given], check=True)
    parsed, rest = json.loads(done.stdout.splitlines()[-1])
    assert (parsed["num_rollout"], parsed["rollout_batch_size"], parsed["n_samples_per_prompt"]) == (400, 128, 16)
    assert parsed["custom_convert_samples_to_train_data_path"] == "gar.integrations.slime.convert_samples"
    # Megatron and SGLang parse the rest. Their parsers are in slime's container alone.
    scripts = "\n".join(path.read_text() for path in Path(CHECKOUT, "scripts").rglob("*.sh"))
    known = set(re.findall(r"--[\w-]+", scripts))
    others = [word for word in rest if word.startswith("--")]
    assert "--sequence-parallel" in others
    assert set(others) <= known, set(others) - known
