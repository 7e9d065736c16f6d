"""Every kernel at the shapes of real nets, against the same operation of PyTorch; names the ten slowest.

    pip install ".[onednn,peer]" && python benchmarks/kernels.py [--kernel NAME] [--rounds N]

Each library has a process of its own, so that the threads of the one never wait beside those of the other; a case is
timed in the one, then in the other, so often as there are rounds. Time of a visit: the fastest call after two others,
since on a shared machine the other calls tell of the others' work. Ratio: ours by PyTorch's, the median over the
rounds, with its spread. Ours lies as our nets lay it out; PyTorch's is the faster of its own layout and channels last,
and allocates its results, as it does in a step, where ours writes into memory that the step's plan gives. The results
must be equal in the mean, or the exit status is 1. Rows that were taken beside other work, or whose rounds are too far
apart, are not in the table, and the exit status is 4, unless --anyway is given (quiet.py).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import quiet
from kernel_table import LRN_K, Case, cases
from peers.process import environment
from report import Spread, spread
from tiny import parsed, size

#: Seconds that a visit times a case for, at least, and calls.
SECONDS, CALLS = size((0.2, 3), (0.0, 1))
#: Seconds of a call from which on its rounds must be close to each other: where shorter ones' memory lies shows.
LONG = 1e-3
LIBRARIES = ("singa_lite", "torch")
Operation = Callable[[], Any]
#: How far the means of the results' magnitudes may be apart, relatively: the check that both did the same. Float32 sums
#: of up to 10**8 terms in another order stay well below, another formula does not.
TOLERANCE = 1e-4


class Row(NamedTuple):
    """A case's outcome. ours, theirs: fastest calls, seconds; equal: whether the results are; trouble: of its times."""

    case: Case
    ours: float
    theirs: float
    ratio: Spread
    equal: bool
    trouble: str = ""


def bind_singa_lite(case: Case) -> list[Operation]:
    """The kernel of the default device, over tensors that lie as its nets' do."""
    from singa_lite import device

    kernels = device.default().kernels
    arrays = case.arrays(kernels.layouts)

    def launch(kernel: str, given: tuple[Any, ...], settings: dict[str, Any]) -> Callable[[], Any]:
        scratch = np.empty(kernels.scratch_bytes(kernel, given, settings), np.uint8)
        return kernels.prepare(kernel, given, scratch, settings)

    # What these get from their forward kernels has to be of the same x as PyTorch's.
    if case.kernel == "max_pool2d_derivative":
        x, y = (np.copy(arrays[name], order="K") for name in ("dx", "dy"))
        launch("max_pool2d", (x, y, arrays["index"]), case.settings)()
    if case.kernel == "lrn_derivative":
        y = np.empty_like(arrays["x"])
        launch("lrn", (arrays["x"], y, arrays["scale"]), {**case.settings, "k": LRN_K})()
    bound, result = launch(case.kernel, tuple(arrays.values()), case.settings), arrays.get(case.result)

    def operation() -> Any:
        bound()
        return result

    return [operation]


def bind_torch(case: Case) -> list[Operation]:
    """The operation in PyTorch's own layout and, if there are images, channels last."""
    import torch

    from peers.torch_kernels import OPERATIONS

    def bound(layouts: dict[str, tuple[int, ...]]) -> Operation:
        arrays = case.arrays(layouts)
        tensors = {name: None if array is None else torch.from_numpy(array) for name, array in arrays.items()}
        operation = OPERATIONS[case.kernel](tensors, case.settings)
        return lambda: operation().detach()

    last = {"image": (0, 2, 3, 1), "filters": (0, 2, 3, 1)}
    images = any(shape is not None and len(shape) == 4 for shape in case.tensors.values())
    return [bound(layouts) for layouts in ([{}, last] if images else [{}])]


def visit(operations: Sequence[Operation], compared: bool) -> dict[str, float]:
    """Time bound forms of a case, of which the fastest counts. mean: of the magnitudes after one call, if compared."""
    mean = [float(np.abs(np.asarray(operation())).mean(dtype=float)) if compared else 0.0 for operation in operations]
    return {"seconds": min(_best(operation) for operation in operations), "mean": mean[0]}


def _best(operation: Operation) -> float:
    operation()
    seconds: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(seconds) < CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        operation()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def serve(library: str, threads: int) -> None:
    """Answer each number of a case that comes in with a visit."""
    if library == "torch":
        import torch

        torch.set_num_threads(threads)
    bind = {"singa_lite": bind_singa_lite, "torch": bind_torch}[library]
    every = list(cases())
    for line in sys.stdin:
        case = every[int(line)]
        print(json.dumps(visit(bind(case), bool(case.result))), flush=True)


class Server:
    """A process that serves one library."""

    def __init__(self, library: str, threads: int) -> None:
        command = [sys.executable, __file__, "--serve", library, "--threads", str(threads)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment(threads), **pipes)

    def visit(self, number: int) -> dict[str, float]:
        """One visit. RuntimeError if the process has ended; what it said is on stderr."""
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"case {number}: wanted an answer, but the process has ended")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def measure(number: int, case: Case, servers: Sequence[Server], rounds: int, watch: quiet.Watch) -> Row:
    """All rounds of a case."""
    visits = [[server.visit(number) for server in servers] for _ in range(rounds)]
    ours, theirs = ([pair[side]["seconds"] for pair in visits] for side in (0, 1))
    ratio = spread([a["seconds"] / b["seconds"] for a, b in visits])
    equal = all(math.isclose(a["mean"], b["mean"], rel_tol=TOLERANCE) for a, b in visits)
    sides = (ours, theirs) if min(*ours, *theirs) >= LONG else ()
    return Row(case, min(ours), min(theirs), ratio, equal, watch.trouble(*sides))


def write(watch: quiet.Watch, rows: Sequence[Row]) -> None:
    """The table in Markdown, slowest first."""
    print("| kernel, shape | ours, ms | PyTorch, ms | ours / PyTorch (spread) |\n|---|---|---|---|")
    for row in sorted(rows, key=lambda row: -row.ratio.median):
        remark = "" if row.equal else " **results differ**"
        line = f"| {row.case} | {row.ours * 1e3:.3f} | {row.theirs * 1e3:.3f} | {row.ratio}{remark} |"
        watch.write(line, row.trouble)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", action="append", help="only this kernel; may be repeated")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side; default all")
    parser.add_argument("--rounds", type=int, default=5)
    quiet.add_option(parser)
    parser.add_argument("--serve", choices=LIBRARIES, help=argparse.SUPPRESS)
    return parsed(parser, kernel=["softmax"], rounds=1)


def main() -> int:
    """Measure, print; 1 if results differ."""
    options = arguments()
    if options.serve:
        serve(options.serve, options.threads)
        return 0
    watch = quiet.Watch(options.anyway)
    servers = [Server(library, options.threads) for library in LIBRARIES]
    rows = []
    for number, case in enumerate(cases()):
        if not options.kernel or case.kernel in options.kernel:
            rows.append(measure(number, case, servers, options.rounds, watch))
            print(f"{rows[-1].ratio}  {case}", file=sys.stderr, flush=True)
    for server in servers:
        server.close()
    write(watch, rows)
    slowest = sorted((row for row in rows if options.anyway or not row.trouble), key=lambda row: -row.ratio.median)[:10]
    print("\nThe slowest ten: " + "; ".join(f"{row.case} ({row.ratio.median:.1f})" for row in slowest))
    return int(not all(row.equal for row in rows)) or watch.status


if __name__ == "__main__":
    sys.exit(main())
