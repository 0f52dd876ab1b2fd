"""What `gar doctor` finds: one test or more in which each check fails."""

import importlib
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gar import __version__, doctor
from gar.doctor import Check, examine, probe_torch, probe_training, probe_verification
from gar.integrations.verl.version import SUPPORTED

NO_GPU = {"threads": 1, "build": "2.13.0+cpu", "mps": False, "gpus": []}
GPU = {"name": "NVIDIA H200", "capability": 9, "memory": "130 of 139 GiB free", "fault": ""}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are looked for in first."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def install(site: Path) -> Callable[..., None]:
    """`install("trl", "1.20.0", "Requires-Dist: torch>=2")` makes it look so."""

    def install(name: str, version: str, *fields: str) -> None:
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *fields])
        )
        importlib.invalidate_caches()

    return install


def named(checks: Any, name: str) -> Check:
    (check,) = [check for check in checks if check.name == name]
    return check


# Versions.


def test_versions_of_this_environment_are_in_range():
    checks = list(doctor._versions())
    assert [check.name for check in checks if check.status != "ok"] == []
    assert all(check.required for check in checks)
    assert {check.name for check in checks} >= {"python", "gar", "torch", "transformers", "trl", "numpy"}
    assert named(checks, "gar").state == __version__


def test_versions_name_a_version_out_of_range(install):
    install("trl", "1.20.0")
    check = named(doctor._versions(), "trl")
    assert (check.status, check.state) == ("wrong", "1.20.0, expected <1.17,>=1.16")
    assert check.advice == "pip install 'trl<1.17,>=1.16'"


def test_versions_name_a_missing_dependency(install):
    install("gar-rl", __version__, "Requires-Python: >=3.11", "Requires-Dist: nosuch[a]>=3",
            'Requires-Dist: elsewhere; sys_platform == "plan9"')  # fmt: skip
    assert [check.name for check in doctor._versions()] == ["python", "gar", "nosuch"]
    check = named(doctor._versions(), "nosuch")
    assert (check.status, check.state) == ("wrong", "not installed, expected >=3")
    assert check.advice == "pip install 'nosuch[a]>=3'"


def test_versions_name_a_python_that_is_too_old(monkeypatch):
    monkeypatch.setattr("platform.python_version", lambda: "3.9.1")
    check = named(doctor._versions(), "python")
    assert (check.status, check.state) == ("wrong", "3.9.1, expected >=3.11")


def test_versions_notice_metadata_of_another_version(monkeypatch):
    monkeypatch.setattr(doctor, "__version__", "77.0")
    check = named(doctor._versions(), "gar")
    assert (check.status, check.state) == ("wrong", f"77.0, expected =={__version__}")
    assert "install it again" in check.advice


def test_versions_without_gar_say_how_to_install_it(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    (check,) = doctor._versions()
    assert (check.name, check.status, check.required, check.state) == ("gar-rl", "wrong", True, "not installed")
    assert check.advice.startswith("pip install -e .")


# Devices.


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What torch sees, on a machine without an NVIDIA driver."""
    facts = dict(NO_GPU)
    monkeypatch.setattr(doctor, "_probed", lambda name: facts)
    monkeypatch.setattr(doctor, "_has_nvidia_driver", lambda: False)
    return facts


def test_devices_report_a_torch_that_cannot_be_imported(seen):
    seen["fault"] = "OSError: libcudart.so.12: cannot open shared object file"
    (check,) = doctor._devices()
    assert (check.name, check.status, check.required) == ("torch", "wrong", True)
    assert check.state == "OSError: libcudart.so.12: cannot open shared object file"
    assert "--force-reinstall torch" in check.advice


def test_devices_advise_one_thread_where_there_are_more(seen):
    assert named(doctor._devices(), "CPU").advice == ""
    seen["threads"] = 2
    check = named(doctor._devices(), "CPU")
    assert (check.status, check.state) == ("ok", "threads: 2")
    assert check.advice.startswith("OMP_NUM_THREADS=1")


def test_devices_without_a_gpu_miss_one(seen):
    check = named(doctor._devices(), "CUDA")
    assert (check.status, check.state, check.advice) == ("missing", "no NVIDIA driver", "")


def test_devices_notice_a_driver_that_torch_cannot_use(seen, monkeypatch):
    monkeypatch.setattr(doctor, "_has_nvidia_driver", lambda: True)
    check = named(doctor._devices(), "CUDA")
    assert (check.status, check.required) == ("wrong", False)
    assert check.state == "an NVIDIA driver, but torch 2.13.0+cpu finds no device"
    assert "pytorch.org" in check.advice


def test_devices_advise_the_processor_on_apples_gpus(seen):
    seen["mps"] = True
    check = named(doctor._devices(), "CUDA")
    assert (check.status, check.state) == ("missing", "MPS lacks float64, which gar's sums need")
    assert "--trl.use_cpu true" in check.advice


def test_devices_show_every_gpu_and_what_is_wrong_with_it(seen):
    seen["gpus"] = [GPU, GPU | {"capability": 7}, GPU | {"fault": "CUDA error: no kernel image is available"}]
    good, old, broken = (named(doctor._devices(), f"GPU {index}") for index in range(3))
    assert (good.status, good.state, good.advice) == ("ok", "NVIDIA H200, 130 of 139 GiB free", "")
    assert "--trl.bf16 false" in old.advice
    assert (broken.status, broken.state) == ("wrong", "NVIDIA H200, CUDA error: no kernel image is available")
    assert "CUDA_VISIBLE_DEVICES" in broken.advice
    assert not any(check.name == "CUDA" for check in doctor._devices())


# Engines and extras.


def test_engines_without_anything_installed(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    checks = list(doctor._engines())
    assert {check.name for check in checks} == {"trl", "vllm", "slime", "megatron-core", "verl"}
    assert {check.status for check in checks} == {"missing"}
    assert all(check.advice and check.purpose for check in checks)


def test_engines_name_the_version_of_verl_that_the_plugin_accepts(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    assert f"pip install verl=={SUPPORTED}," in named(doctor._engines(), "verl").advice


def test_engines_know_slime_from_the_package_of_its_name(install, site):
    (site / "slime").mkdir()
    install("slime", "0.3.1")
    check = named(doctor._engines(), "slime")
    assert (check.status, check.state) == ("missing", "not installed")
    assert "another package" in check.advice
    (site / "slime" / "ray").mkdir()
    (site / "slime" / "ray" / "rollout.py").touch()
    importlib.invalidate_caches()
    assert (named(doctor._engines(), "slime").status, named(doctor._engines(), "slime").state) == ("ok", "0.3.1")


def test_extras_tell_whole_ones_from_others(install, monkeypatch):
    needed = {"whole": ["here>=1"], "part": ["here", "nosuch"], "old": ["here>=5"]}
    monkeypatch.setattr(doctor, "_EXTRAS", dict.fromkeys(needed, "something"))
    install("here", "1.5")
    fields = [f"Provides-Extra: {extra}" for extra in needed]
    fields += [f'Requires-Dist: {name}; extra == "{extra}"' for extra, names in needed.items() for name in names]
    install("gar-rl", "9.9", "Requires-Dist: always", *fields)
    extras = {check.name: (check.status, check.state, check.advice) for check in doctor._extras()}
    assert extras == {
        "whole": ("ok", "complete", ""),
        "part": ("missing", "missing, or in another version: nosuch", "pip install nosuch"),
        "old": ("missing", "missing, or in another version: here>=5", "pip install 'here>=5'"),
    }


def test_extras_are_those_of_the_metadata():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert {*doctor._EXTRAS, "vllm"} == set(project["optional-dependencies"])


# Setup.


def test_setup_says_what_failed_and_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_probed", lambda name: {"fault": "ImportError: no SymPy"})
    for name in ("training", "verification"):
        check = named(doctor._setup(tmp_path), name)
        assert (check.status, check.required, check.state) == ("wrong", True, "ImportError: no SymPy")
        assert "reinstall the package" in check.advice


def test_setup_leaves_nothing_in_a_folder_that_it_can_write(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_probed", lambda name: {"state": "fine"})
    check = named(doctor._setup(tmp_path / "runs"), f"{tmp_path / 'runs'}/")
    assert check.status == "ok"
    assert check.state.startswith("can be written, ")
    assert list(tmp_path.iterdir()) == []


def test_setup_reports_a_folder_that_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_probed", lambda name: {"state": "fine"})
    (tmp_path / "file").touch()
    check = named(doctor._setup(tmp_path / "file"), f"{tmp_path / 'file'}/")
    assert (check.status, check.required, check.state) == ("wrong", True, "cannot be written: Not a directory")
    assert "--records.folder" in check.advice


def test_examine_leaves_every_section_in_order(seen, monkeypatch, tmp_path):
    seen["state"] = "fine"
    sections = [check.section for check in examine(tmp_path)]
    assert list(dict.fromkeys(sections)) == ["versions", "devices", "engines", "extras", "setup"]


# Probes, each in a process of its own.


@pytest.fixture
def probed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """What comes of a probe with the given body."""
    monkeypatch.setattr(doctor, "_PROBE", doctor._PROBE.replace("gar.doctor", "probe_of_this_test"))

    def probed(body: str) -> dict[str, Any]:
        (site / "probe_of_this_test.py").write_text(f"def probe():\n    {body}\n")
        return doctor._probed("probe")

    return probed


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        ("print('noise'); return {'a': [1, 2.5]}", {"a": [1, 2.5]}),
        ("raise OSError('cannot open\\nsecond line')", {"fault": "OSError: cannot open"}),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {"fault": "ended with status -11"}),
        ("import sys; sys.exit(3)", {"fault": "ended with status 3"}),
        (
            "try: import nosuch\n    except ImportError as error: raise ValueError('cannot load') from error",
            {"fault": "ValueError: cannot load after ModuleNotFoundError: No module named 'nosuch'"},
        ),
    ],
)
def test_probed_gives_the_facts_or_how_it_failed(probed, body, facts):
    assert probed(body) == facts


def test_probed_kills_what_hangs(probed, monkeypatch):
    monkeypatch.setattr(doctor, "_PROBE_SECONDS", 0.5)
    assert probed("import time; time.sleep(60)") == {"fault": "no answer within 0.5 s"}


def test_probe_torch_says_what_this_process_sees():
    facts = probe_torch()
    assert (facts["threads"], facts["build"]) == (torch.get_num_threads(), torch.__version__)
    assert len(facts["gpus"]) == torch.cuda.device_count()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One CUDA device that computes on the processor."""
    ones = torch.ones
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(name="NVIDIA H200", major=9))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (130 * 2**30, 139 * 2**30))
    monkeypatch.setattr(torch, "ones", lambda *shape, device: ones(*shape))


def test_probe_torch_multiplies_on_every_gpu(gpu, monkeypatch):
    assert probe_torch()["gpus"] == [GPU]
    monkeypatch.setattr(torch, "ones", lambda *shape, device: torch.full(shape, 2.0))
    assert probe_torch()["gpus"] == [GPU | {"fault": "a product came out wrong"}]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, torch.AcceleratorError, RuntimeError])
def test_probe_torch_reports_a_gpu_that_refuses(error, gpu, monkeypatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise error("CUDA error: no kernel image is available\nCUDA kernel errors might be ...")

    monkeypatch.setattr(torch, "ones", refuse)
    assert probe_torch()["gpus"][0]["fault"] == "CUDA error: no kernel image is available"


def test_probe_training_runs_the_embedded_model(monkeypatch):
    assert probe_training() == {"state": "embedded model runs: 797,056 parameters"}
    monkeypatch.setattr(torch.Tensor, "isfinite", lambda self: torch.isnan(self))
    assert probe_training() == {"fault": "the embedded model gives logits that are not finite"}


def test_probe_verification_grades_in_a_worker(monkeypatch):
    assert probe_verification() == {"state": "one answer graded"}
    monkeypatch.setattr("gar.verify.verifier.WorkerPool.run", lambda self, items: pytest.fail("asked the pool"))
    with pytest.raises(pytest.fail.Exception, match="asked the pool"):
        probe_verification()
