"""vLLM itself, its build for CPUs: TRL's two modes, and evaluation. `make test-vllm` installs it and runs this."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gar.data.arithmetic import load_arithmetic
from gar.errors import GarError
from gar.evaluation.engines import TransformersEngine, sample
from gar.models.embedded import load_embedded
from gar.models.generate import Sampling
from gar.models.load import load_policy
from gar.records import open_run
from gar.settings import ModelSettings
from tests.docs.pages import ROOT
from tests.support.processes import SECONDS, completed, running, wait_until
from tests.support.vllm import named_vllm

pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm installs it and runs this")

LONG = 3 * SECONDS
"""vLLM takes a minute to begin."""
ENVIRONMENT = os.environ | {
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "60",
}
COLOCATE = ["--trl.use_vllm", "true", "--trl.vllm_mode", "colocate", "--trl.vllm_max_model_length", "128"]


def finished(*command: Any, folder: Path = ROOT) -> str:
    """What a command said that ended well."""
    done = completed([sys.executable, "-m", *command], env=ENVIRONMENT, cwd=folder, seconds=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def trained(out: Path, *flags: str) -> dict[str, Any]:
    """What a training of ten updates saw (`tests/engines/vllm/training.py`)."""
    finished("tests.engines.vllm.training", out, *flags)
    return json.loads(out.read_text())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Where vLLM serves the embedded model."""
    for part in load_embedded():
        part.save_pretrained(tmp_path / "served")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = f"--host 127.0.0.1 --port {port} --dtype float32 --max-model-len 128 --enforce-eager"
    flags += " --logprobs-mode processed_logprobs --max-logprobs -1"  # as TRL asks
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(tmp_path / "served"), *flags.split()]
    environment = ENVIRONMENT | {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": named_vllm(tmp_path / "named")}
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return urllib.request.urlopen(f"{url}/health", timeout=SECONDS).status == 200
        except OSError:
            return False

    with open(tmp_path / "log", "wb") as log:
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        with running(command, env=environment, cwd=tmp_path, **streams) as process:
            assert wait_until(lambda: process.poll() is not None or answers(), LONG)
            assert process.returncode is None, (tmp_path / "log").read_text()
            yield url


@pytest.mark.parametrize("flags", [(), ("--adapter",), ("--server",)], ids=["all weights", "adapter", "server"])
def test_weights_arrive_before_each_of_ten_steps_and_rewards_are_those_of_the_scorer(tmp_path, flags, request):
    flags += (request.getfixturevalue("server"),) if "--server" in flags else ()
    seen = trained(tmp_path / "seen.json", *flags)
    assert seen["ratios"] == [pytest.approx(1, abs=1e-4)] * 10
    assert len({reward for step in seen["rewards"] for reward in step}) > 15
    for rewards, expected in zip(seen["rewards"], seen["expected"], strict=True):
        assert rewards == pytest.approx(expected, abs=1e-5)


def test_without_their_transfer_the_ratio_of_probabilities_leaves_one(tmp_path):
    ratios = trained(tmp_path / "seen.json", "--without-sync")["ratios"]
    assert ratios[0] == pytest.approx(1, abs=1e-4)  # the weights of the file
    assert min(abs(ratio - 1) for ratio in ratios[1:]) > 0.01


def test_a_killed_run_goes_on_with_the_weights_of_its_checkpoint(tmp_path):
    sizes = ["--trl.max_steps", "4", "--trl.save_steps", "2", "--trl.per_device_train_batch_size", "32"]
    records = ["--records.output_dir", str(tmp_path), "--records.name", "run"]
    rest = ["--preflight.mode", "off", "--evaluate.eval_on_start", "false", "--evaluate.max_problems", "4"]
    plugin = ["--plugin", str(ROOT / "tests" / "engines" / "vllm" / "shim.py")]
    command = [sys.executable, "-m", "gar", "train", "--preset", "demo", *plugin, *COLOCATE, *sizes, *rest, *records]
    with open(tmp_path / "log", "wb") as log:
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        with running(command, env=ENVIRONMENT, cwd=ROOT, **streams) as process:
            assert wait_until(lambda: process.poll() is not None or steps(tmp_path / "run")[-1:] == [3], LONG)
            os.killpg(process.pid, signal.SIGKILL)
    assert (tmp_path / "run" / "checkpoints" / "checkpoint-2").is_dir(), (tmp_path / "log").read_text()
    finished("gar", "train", "--resume", tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert (run.status, run.steps) == ("finished", [1, 2, 3, 4])
    name = "sampling/importance_sampling_ratio/mean"
    assert [row[name] for row in run.metrics if name in row] == [pytest.approx(1, abs=1e-4)] * 4


def steps(folder: Path) -> list[int]:
    """The steps that a running job has logged."""
    try:
        return open_run(folder).steps
    except GarError:  # it has just begun
        return []


@pytest.mark.parametrize("ranks", [1, 2])
def test_preflight_and_evaluations_of_a_run_sample_with_its_vllm(tmp_path, ranks):
    """`generate` of transformers fails there. At this temperature it writes what the weights of the step write."""
    plugin = ["--plugin", str(ROOT / "tests" / "engines" / "vllm" / "no_generate.py")]
    sizes = f"--trl.max_steps 2 --trl.save_strategy no --trl.per_device_train_batch_size {32 // ranks}"
    evaluations = "--evaluate.sources test --evaluate.max_problems 6 --evaluate.num_samples 4 --evaluate.eval_steps 1"
    drawn = "--evaluate.temperature 0.01 --trl.learning_rate 2e-3"
    records = ["--records.output_dir", str(tmp_path), "--records.name", "run"]
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"] if ranks == 2 else []
    flags = [*plugin, *COLOCATE, *f"{sizes} {evaluations} {drawn}".split(), *records]
    said = finished(*launcher, "gar", "train", "--preset", "demo", *flags)
    assert "Mean importance sampling ratio of the policy to vLLM: 1.00" in said
    run = open_run(tmp_path / "run")
    assert sum("eval/test/pass@1" in row for row in run.metrics) == 2
    before, after = (run.samples(moment)["response"].to_pylist() for moment in ("before", "after"))
    assert before != after
    problems = load_arithmetic("test")[:6]
    sampling = Sampling(num_samples=4, temperature=1e-4, max_new_tokens=64, seed=0)  # vLLM's lowest is 0.01
    for path, found in (("embedded", before), (str(tmp_path / "run" / "model"), after)):
        model, tokenizer = load_policy(ModelSettings(path=path))
        expected = sample(TransformersEngine(model, tokenizer), problems, sampling)
        assert found == [response.text for group in expected for response in group]


def test_no_temperature_is_below_one_hundredth():
    """Rules and `gar eval` therefore refuse a lower one."""
    from vllm import SamplingParams

    assert [SamplingParams(temperature=given).temperature for given in (1e-4, 0.01, 0)] == [0.01, 0.01, 0]


def test_samples_repeat_for_a_seed_and_agree_with_transformers_where_nothing_is_drawn(tmp_path):
    finished("tests.engines.vllm.sampling", tmp_path / "seen.json")
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["greedy"] == seen["transformers"]
    assert seen["drawn"] == seen["again"] != seen["other"]
    assert all(len(texts) == 8 and all(texts) for texts in seen.values())


def test_an_evaluation_has_the_statistics_of_the_other_backend_and_ends_well(tmp_path):
    sizes = ["--benchmark", "arithmetic", "--limit", "8", "--samples", "4", "--max-new-tokens", "48"]
    for backend in ("vllm", "transformers"):
        finished("gar", "eval", "run", "embedded", "--backend", backend, *sizes, "--out", tmp_path / backend)
    found, expected = (
        json.loads((tmp_path / name / "arithmetic" / "metrics.json").read_text())["sets"]["arithmetic"]
        for name in ("vllm", "transformers")
    )
    assert found.keys() == expected.keys()
    for name in ("problems_hash", "num_samples", "format"):
        assert found[name] == expected[name]
    assert len(found["problems"]) == len(expected["problems"]) == 8
    assert found["pass_at"]["1"] == pytest.approx(expected["pass_at"]["1"], abs=0.3)  # of one policy, by 32 samples
