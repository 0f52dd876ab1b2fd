"""Helpers of scripts/rehearse.sh: `python -m tests.engines.verl.job files FOLDER`, or `end NAME`."""

import signal
import sys
from pathlib import Path

import psutil
import torch

from gar.data.arithmetic import load_arithmetic
from gar.data.prepare import write_problems
from gar.models.embedded import load_embedded
from tests.support.vllm import named_vllm

SEGMENTS = "GAR_TEST_SEGMENTS"
"""Variable of a job's processes: how the names of its shared memory begin. vLLM leaves some behind."""
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def make_files(folder: Path) -> None:
    """A model, problems to train on and to evaluate on, and vLLM's CPU build under the name that verl looks for."""
    save_model(folder / "model")
    write_problems(load_arithmetic("train"), folder / "source.jsonl")
    write_problems(load_arithmetic("test")[:32], folder / "test.jsonl")
    named_vllm(folder / "vllm")


def save_model(path: Path) -> None:
    """The embedded model with what verl asks of a Qwen3: a chat template, and tokens that nothing writes."""
    model, tokenizer = load_embedded()
    tokenizer.add_tokens(["\n", "<|im_end|>"])
    tokenizer.chat_template = CHAT_TEMPLATE
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for matrix in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
            matrix[-2:] = matrix[tokenizer.unk_token_id]
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def end_job(segments: str) -> None:
    """Kill a job as a machine that goes down does. Ray's and vLLM's processes have sessions of their own."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(SEGMENTS) == segments:
                process.send_signal(signal.SIGKILL)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    for segment in Path("/dev/shm").glob(f"{segments}*"):
        segment.unlink()


if __name__ == "__main__":
    {"files": lambda folder: make_files(Path(folder)), "end": end_job}[sys.argv[1]](sys.argv[2])
