"""Programs run in a process of their own, where libraries are loaded anew and nothing has warned yet.

Where that does not matter, `warm` starts them ten times as fast.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import singa_lite

ROOT = str(Path(singa_lite.__file__).parents[1])
#: What tests set, and what the tests of all set to 1.
UNSET = ("SINGA_LITE_THREADS", "SINGA_LITE_KERNELS", "SINGA_LITE_ONEDNN", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
UNSET += ("MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def start(*arguments: str, **variables: object) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, and these environment variables alone of those above."""
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment |= {"PYTHONPATH": ROOT, **{name: str(value) for name, value in variables.items()}}
    flags = ["-P"] if "-c" in arguments else []  # not the package of the present folder, which has no compiled loops
    return subprocess.run(
        [sys.executable, *flags, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )


def output(program: str, *arguments: str, **variables: object) -> str:
    """What the program prints; it must end well."""
    done = start("-c", program, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout
