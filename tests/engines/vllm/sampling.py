"""vLLM's answers beside those of transformers, as a program: python -m tests.engines.vllm.sampling OUT.json"""

import json
import sys
from pathlib import Path

from gar.evaluation.engines import VllmEngine, load_engine
from gar.evaluation.job import GenerateJob
from gar.models.generate import Sampling
from gar.settings import ModelSettings
from tests.engines.vllm import shim  # noqa: F401  it changes vLLM

JOB = GenerateJob(model=ModelSettings(path="embedded"), benchmark=("arithmetic",))


def main() -> None:
    """Sample with several seeds, and without drawing anything."""
    engine, other = VllmEngine(JOB), load_engine(JOB)
    prompts = [engine.tokenizer(f"{number}+4*7=")["input_ids"] for number in range(8)]
    drawn = {
        name: Sampling(max_new_tokens=48, temperature=temperature, seed=seed)
        for name, temperature, seed in (("drawn", 1.0, 1), ("again", 1.0, 1), ("other", 1.0, 2), ("greedy", 0.0, 1))
    }
    texts = {name: [each.text for (each,) in engine.respond(prompts, sampling)] for name, sampling in drawn.items()}
    texts["transformers"] = [each.text for (each,) in other.respond(prompts, drawn["greedy"])]
    Path(sys.argv[1]).write_text(json.dumps(texts))


if __name__ == "__main__":
    main()
