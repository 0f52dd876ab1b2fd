"""Probes in processes of their own: what they find, and every way in which they end."""

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gar.doctor import probes
from gar.doctor.probes import Fault, GpuFacts, in_child, probe_torch, probe_training, probe_verification
from gar.types import Status

Probe = Callable[[], Any]


@pytest.fixture
def probe(site: Path) -> Callable[[str], Probe]:
    """A probe with the given body, in a module that another process can import."""

    def probe(body: str) -> Probe:
        (site / "probe_of_this_test.py").write_text(f"def probe():\n    {body}\n")
        importlib.invalidate_caches()
        return SimpleNamespace(__module__="probe_of_this_test", __name__="probe")

    return probe


# The process.


def test_in_child_returns_what_the_probe_returns(probe):
    assert in_child(probe("print('noise'); return {'a': (1, 2.5)}")) == {"a": (1, 2.5)}


def test_in_child_reports_kind_and_first_line_of_an_error(probe):
    fault = in_child(probe("raise OSError('libcudart.so.12: cannot open\\nsecond line')"))
    assert fault == Fault(text="OSError: libcudart.so.12: cannot open")


def test_in_child_reports_the_cause_beside_the_error(probe):
    body = "try: import nosuch_package\n    except ImportError as error: raise ValueError('cannot load') from error"
    fault = in_child(probe(body))
    assert fault == Fault(text="ValueError: cannot load (after ModuleNotFoundError: No module named 'nosuch_package')")


def test_in_child_survives_a_crash(probe):
    fault = in_child(probe("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert fault == Fault(text="died of signal 11 (Segmentation fault)")


def test_in_child_reports_an_exit_code(probe):
    assert in_child(probe("import sys; sys.exit(3)")) == Fault(text="exited with code 3")


def test_in_child_kills_what_hangs(probe):
    assert in_child(probe("import time; time.sleep(60)"), timeout_seconds=0.5) == Fault(text="no answer within 0.5 s")


# The probes.


def test_probe_torch_says_what_this_process_sees():
    facts = probe_torch()
    assert facts.num_threads == torch.get_num_threads()
    assert facts.matmul_precision == "highest"
    assert len(facts.gpus) == torch.cuda.device_count()
    assert facts.has_mps is torch.backends.mps.is_available()


def test_probe_torch_that_is_broken_is_a_fault(site):
    (site / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    assert in_child(probe_torch) == Fault(text="ImportError: libcudart.so.12: cannot open shared object file")


def test_probe_torch_keeps_the_reason_why_cuda_cannot_be_used(monkeypatch):
    def is_available() -> bool:
        warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old\nmore", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    assert probe_torch().cuda_fault == "CUDA initialization: The NVIDIA driver on your system is too old"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One CUDA device that computes on the processor."""
    properties = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=2**37)
    ones = torch.ones
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (2**36, 2**37))
    monkeypatch.setattr(torch, "ones", lambda *shape, device: ones(*shape))


def test_probe_torch_multiplies_on_every_gpu(gpu, monkeypatch):
    right = GpuFacts(name="NVIDIA H200", capability=(9, 0), total_bytes=2**37, free_bytes=2**36, fault="")
    assert probe_torch().gpus == (right,)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: torch.full(shape, 2.0))
    assert probe_torch().gpus[0].fault == "a product came out wrong: 16384 instead of 4096"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, torch.AcceleratorError, RuntimeError])
def test_probe_torch_reports_a_gpu_that_refuses(error, gpu, monkeypatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise error("CUDA error: no kernel image is available\nCUDA kernel errors might be ...")

    monkeypatch.setattr(torch, "ones", refuse)
    assert probe_torch().gpus[0].fault == "CUDA error: no kernel image is available"


def test_probe_training_runs_the_embedded_model():
    facts = probe_training()
    assert (facts.num_parameters, facts.logits_are_finite) == (797_056, True)


def test_probe_training_imports_what_training_needs(monkeypatch):
    monkeypatch.setattr(probes, "_PARTS_OF_TRAINING", ("gar.no_such_part",))
    with pytest.raises(ModuleNotFoundError, match=r"gar\.no_such_part"):
        probe_training()


def test_probe_verification_grades_in_a_worker(monkeypatch):
    facts = probe_verification()
    assert (facts.status, facts.detail) == (Status.OK, "")
    monkeypatch.setattr("gar.verify.verifier.WorkerPool.run", lambda self, items: pytest.fail("asked the pool"))
    with pytest.raises(pytest.fail.Exception, match="asked the pool"):
        probe_verification()


def test_probe_verification_with_a_broken_library_names_it(site):
    (site / "math_verify.py").write_text("raise ImportError('no SymPy')")
    fault = in_child(probe_verification)
    assert isinstance(fault, Fault)
    assert fault.text.startswith("gar.verify.workers.WorkerError: the process that starts verification workers died")
    assert fault.text.endswith("(after ImportError: no SymPy)")
