"""`shim.c`, compiled and put in front of libc."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def preload() -> None:
    """Start this program again with `shim.c` in front of libc, unless that is so already."""
    if hasattr(ctypes.CDLL(None), "faults_arm") or "tests.faults" not in sys.orig_argv:  # a test reads its arguments
        return
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("needs a C compiler (cc), to watch writes below Python")
    folder = tempfile.mkdtemp(prefix="gar-shim-")
    library = os.path.join(folder, "shim.so")
    source = Path(__file__).with_name("shim.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-D_LARGEFILE64_SOURCE", "-o", library, source, "-ldl"],
        check=True,
        timeout=600,
    )
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"LD_PRELOAD": library})
