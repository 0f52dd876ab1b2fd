"""Settings every test relies on: an empty home, no network, one thread, reproducible examples, and the real data."""

import atexit
import os
import shutil
import signal
import tempfile

# Before the other imports: Hugging Face and matplotlib read these once. A test must not find what somebody fetched or
# cached before. Workers and commands inherit the home of the process that made it.
if "GAR_TEST_HOME" not in os.environ:
    os.environ["GAR_TEST_HOME"] = tempfile.mkdtemp(prefix="gar-test-home-")
    atexit.register(shutil.rmtree, os.environ["GAR_TEST_HOME"], ignore_errors=True)
os.environ["HOME"] = os.environ["GAR_TEST_HOME"]
for _name in (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR", "TORCH_HOME"),
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ASSETS_CACHE", "HF_DATASETS_CACHE", "HF_MODULES_CACHE"),
):
    os.environ.pop(_name, None)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
signal.signal(signal.SIGINT, signal.default_int_handler)  # the background jobs of a shell ignore it

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import settings

from tests.support.files import write_jsonl

torch.set_num_threads(1)  # the models here are so small that a second thread costs more than it gives

# The same examples everywhere: a failure seen in CI is seen at home. HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def _environment():
    """A command that a test runs in this process may set variables, which processes of later tests would inherit."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., str]:
    """`write_rows(row, "bad line", name="rows.jsonl")` writes a JSONL file and gives its path."""
    return lambda *rows, name="rows.jsonl": write_jsonl(tmp_path / name, rows)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder with real data, named by GAR_TEST_DATA. Nothing in it belongs to this project."""
    value = os.environ.get("GAR_TEST_DATA")
    if not value:
        pytest.skip("GAR_TEST_DATA is not set: it names the folder with real data (gsm8k_train_2000.jsonl, ...)")
    folder = Path(value)
    if not folder.is_dir():
        pytest.fail(f"GAR_TEST_DATA={value} is not a folder")  # set but wrong: a mistake, not an absence
    return folder
