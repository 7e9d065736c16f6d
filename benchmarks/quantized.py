"""How fast quantised weights become numbers, and what products with them take beside those with float32 weights.

    python benchmarks/quantized.py [--rows 256]

Products are of SmolLM2-135M's shapes: x (rows, columns) @ weight^T, and its derivative by x. Figures are the least of
all runs, with as many threads as there are cores.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from singa_lite import device
from singa_lite.kernels.interface.quantized import FORMATS
from tiny import parsed, size

#: (rows, columns) of weights: outputs and inputs of a product.
WEIGHTS = size(((576, 576), (1536, 576), (576, 1536), (8192, 576)), ((64, 256),))
NUMBERS = size((576, 1536), (8, 256))
KERNELS = device.cpu().kernels


def least(runs: int, kernel: str, *tensors: np.ndarray | None, **settings: object) -> float:
    """Seconds of the fastest call."""
    scratch = np.zeros(KERNELS.scratch_bytes(kernel, tensors, settings) + 64, np.uint8)
    launch = KERNELS.prepare(kernel, tensors, scratch[-scratch.ctypes.data % 64 :], settings)
    found = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        launch()
        found.append(time.perf_counter() - start)
    return min(found[1:])


def blocks(rows: int, columns: int, format: str) -> np.ndarray:
    """Bytes of which any two are a float16 of moderate size."""
    shape = rows, FORMATS[format].row_bytes(columns)
    return np.random.default_rng(0).integers(0x20, 0x3C, shape, np.uint8)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256, help="of x")
    parser.add_argument("--runs", type=int, default=20)
    options = parsed(parser, rows=16, runs=2)
    print("| format | million numbers a second |\n|---|---|")
    for format in FORMATS:
        y = np.empty(NUMBERS, np.float32)
        seconds = least(options.runs, "dequantize", blocks(*NUMBERS, format), y, format=format)
        print(f"| `{format}` | {y.size / seconds / 1e6:,.0f} |")
    print("\n| weight | ms: float32 | `q4_1` | back: float32 | `q4_1` |\n|---|---|---|---|---|")
    plain = {"transpose_a": False, "transpose_b": False}
    for rows, columns in WEIGHTS:
        weight, packed = np.ones((rows, columns), np.float32), blocks(rows, columns, "q4_1")
        x, y = np.ones((options.rows, columns), np.float32), np.ones((options.rows, rows), np.float32)
        found = (
            least(options.runs, "linear", x, weight.T, None, y),
            least(options.runs, "quantized_linear", x, packed, None, y, format="q4_1"),
            least(options.runs, "matmul", y, weight, x, **plain),
            least(options.runs, "quantized_linear_derivative", y, packed, x, format="q4_1"),
        )
        print(f"| {rows:,} x {columns:,} | " + " | ".join(f"{1e3 * seconds:.2f}" for seconds in found) + " |")


if __name__ == "__main__":
    main()
