"""What only a GPU can answer, in one run with a deadline, from a bare checkout: nothing is installed.

    python benchmarks/gpu_first.py --prepare prepared.gz                       # before, on a machine without a GPU
    python benchmarks/gpu_first.py --out DIR --expected prepared.gz --cache DIR/cache.tar.gz --deadline 520 --part 1
    python benchmarks/gpu_first.py --out DIR --expected prepared.gz --again results.jsonl --part 2

Part 1: versions, one kernel, all sources compiled, every kernel against the prepared results, cuBLASLt and cuDNN,
training against the prepared losses, ResNet-50 beside PyTorch. Part 2: what failed again in more detail, the time of
each kernel of ours at the shapes of five nets, attention, both ways around each threshold. Part 3: compute-sanitizer,
Nsight Compute, the table of all nets beside PyTorch. Part 4: GPT-2 of 124 million parameters at 8 x 1,024 in bfloat16
beside PyTorch, with fused attention and AdamW, compiled or not: milliseconds and peak bytes.
`gpu_figures.py` makes tables of the results, with our ratios.

Items run one after the other in one worker process. Each writes one line of JSON to DIR/results.jsonl, and some write
a line for each row before. After an error that breaks the CUDA context, a crash or a hang, a new worker begins at the
next item; where a kind of items costs five workers, its others come last. DIR gets at most 8 files: results.jsonl,
summary.txt, worker.log, the compile cache and what items add. Parts may share one DIR: they add to its files.

--expected: the file that --prepare made. --again: results.jsonl of an earlier part. --cache: the compiled kernels, read
if the file is there, written in the end. --only PATTERN: items whose names match it, with * and ?. --stand-in: kernels
compiled for the host and NumPy in the place of the libraries (pip install ".[cudatest]"); --tiny: small nets.

cuDNN needs its Python frontend: unpack the wheel nvidia-cudnn-frontend 1.28 into a folder and name it in PYTHONPATH.

Exit status: 0; 1 if an item failed or was cut off; 2 for wrong arguments; 3 where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (".", "benchmarks", "tests", "tests/contract", "tests/cuda_host", "tests/kernels")
sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]
sys.path += [str(Path(folder).resolve()) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]

from first_run import worker  # noqa: E402
from first_run.cache import CompileCache  # noqa: E402
from first_run.catalogue import items_of  # noqa: E402
from first_run.item import Options  # noqa: E402
from first_run.prepared import prepare  # noqa: E402
from first_run.summary import summary  # noqa: E402
from first_run.supervisor import Supervisor  # noqa: E402

FAILED, WRONG_ARGUMENTS, NO_GPU = 1, 2, 3


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", metavar="FILE", help="write the expected results, and stop")
    parser.add_argument("--out", type=Path, help="folder of the results; may be empty")
    parser.add_argument("--expected", metavar="FILE", help="the file that --prepare made")
    parser.add_argument("--part", type=int, choices=(1, 2, 3, 4), default=1)
    parser.add_argument("--deadline", type=float, default=520, help="seconds for everything")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="archive of compiled kernels")
    parser.add_argument("--again", metavar="FILE", help="results.jsonl of an earlier part")
    parser.add_argument("--only", metavar="PATTERN", help="items whose names match it")
    parser.add_argument("--stand-in", action="store_true", help="the host in the place of the GPU")
    parser.add_argument("--tiny", action="store_true", help="small nets and few steps")
    parser.add_argument("--alone", metavar="NAME", nargs="+", help="do these items in this process, print their lines")
    parser.add_argument("--kernel", default="", help="the only kernel that `kernels/NET` times")
    parser.add_argument("--own", action="store_true", help="contract cases by our own kernels only, no libraries")
    parser.add_argument("--worker", metavar="SIDE", help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str] | None = None, program: str = __file__) -> int:
    """Run the part. program: the script that workers are started with."""
    asked = arguments(given)
    if asked.prepare:
        nbytes = prepare(asked.prepare, asked.tiny)
        print(f"gpu_first.py: {asked.prepare}: {nbytes / 2**20:.1f} MiB")
        return 0
    if asked.out is None or asked.expected is None or not Path(asked.expected).is_file():
        wanted = "wanted --out FOLDER and --expected FILE, which --prepare makes"
        print(f"gpu_first.py: {wanted}, received {asked.out} and {asked.expected}", file=sys.stderr)
        return WRONG_ARGUMENTS
    asked.out.mkdir(parents=True, exist_ok=True)
    options = Options.of(asked, str(Path(program).resolve()))
    if asked.worker:
        return worker.run_requested(options, asked.worker)
    if asked.alone:
        return worker.run_named(options, asked.alone)
    if not asked.stand_in and (missing := _no_gpu()):
        print(f"gpu_first.py: nothing was run: {missing}", file=sys.stderr)
        return NO_GPU
    with CompileCache(asked.cache) as cache:
        if said := cache.unpack():
            print(f"gpu_first.py: {said}", file=sys.stderr)
        results = Supervisor(options, asked.deadline, cache).run(items_of(options))
    text = summary(results)
    with (asked.out / "summary.txt").open("a") as file:
        file.write(f"Part {asked.part}\n{text}\n")
    print(text)
    return FAILED if any(one["status"] not in ("ok", "skipped") for one in results) else 0


def _no_gpu() -> str:
    """Why there is no GPU here; "" if there is one. CUDA is not initialized, which a worker does."""
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
