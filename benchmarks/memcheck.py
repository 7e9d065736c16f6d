"""Kernels under valgrind's memcheck: reads and writes beyond memory, and objects that are destroyed twice.

    python benchmarks/memcheck.py                       # the oneDNN kernels' contract, small sizes; about an hour
    python benchmarks/memcheck.py tests/test_copies.py  # any of pytest's arguments

Wants valgrind (apt install valgrind). It knows no AVX-512 and no AMX, so the libraries are told to do without. Only
reports that name oneDNN, code that it made (frames without a name), NumPy or a library of singa_lite's are shown: the
dynamic loader's own are known to be harmless. The exit status is pytest's, or 1 where there are reports.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CONTRACT = ["tests/contract/test_kernels.py", "-k", "onednn and scratch_held"]
ENVIRONMENT = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OMP_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONMALLOC": "malloc",  # each object a block of its own
}
#: Values that were never written are not looked for: Python and the loader use many, harmlessly.
OPTIONS = ["--undef-value-errors=no", "--smc-check=all-non-file", "--error-limit=no", "--fair-sched=yes"]
HARMLESS = ("dl-load.c", "dl-deps.c", "dl-open.c")


def reports(log: str) -> list[str]:
    """Valgrind's reports of wrong accesses, less those of the dynamic loader."""
    lines = [line.partition("== ")[2] for line in log.splitlines() if line.startswith("==")]
    blocks = "\n".join(lines).split("\n\n")
    wrong = [block for block in blocks if block.startswith(("Invalid", "Mismatched", "Source and destination"))]
    return [block for block in wrong if not any(name in block for name in HARMLESS)]


def main(arguments: list[str]) -> int:
    """Run pytest with these arguments under memcheck; print the reports."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("memcheck: wanted valgrind, apt install valgrind")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        pytest = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
        command = [valgrind, *OPTIONS, f"--log-file={log}", *pytest, *(arguments or CONTRACT)]
        status = subprocess.run(command, env=os.environ | ENVIRONMENT, check=False).returncode
        found = reports(log.read_text(errors="replace"))
    print(f"memcheck: {len(found)} reports")
    for report in found:
        print(report, end="\n\n")
    return status or bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
