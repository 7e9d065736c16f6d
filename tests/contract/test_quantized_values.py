"""Numbers of quantised blocks: to the bit those of the package that defines the files."""

from __future__ import annotations

import numpy as np
import pytest

import skips
from every_set import every_own_set
from kernel_case import garbage, run
from singa_lite.kernels.interface.quantized import FORMATS

gguf = skips.library("gguf")


def numbers() -> np.ndarray:
    """Rows of numbers of all sizes: small and large scales, one sign alone, zeros alone."""
    rng = np.random.default_rng(5)
    made = rng.standard_normal((29, 768)) * np.exp(rng.uniform(-9, 5, (29, 1)))
    made[3] = 0
    made[4], made[5] = np.abs(made[4]), -np.abs(made[5])
    return made.astype(np.float32)


def blocks(format: str) -> np.ndarray:
    """Quantised by the package where it can; else bytes of which any two are a float16 of moderate size."""
    kind = gguf.GGMLQuantizationType[format.upper()]
    try:
        return gguf.quantize(numbers(), kind).view(np.uint8)
    except NotImplementedError:
        made = np.random.default_rng(3).integers(0, 256, (29, FORMATS[format].row_bytes(768)), np.uint8)
        halves = made.reshape(29, -1, FORMATS[format].nbytes)
        for high in (209,) if format == "q6_k" else (1, 3):  # a sign, and exponents of finite numbers
            halves[..., high] = halves[..., high] & 0x83 | 0x30
        return made


@pytest.mark.peer
@pytest.mark.parametrize("format", FORMATS)
@every_own_set
def test_numbers_have_the_bits_of_the_package(kernels, format):
    given = blocks(format)
    wanted = gguf.dequantize(given, gguf.GGMLQuantizationType[format.upper()])
    y = garbage(wanted.shape, np.float32)
    run(kernels, "dequantize", [given, y], {"format": format})
    assert y.tobytes() == wanted.astype(np.float32).tobytes()
    ids = np.array([[4, 28, 0], [4, 11, 3]])
    rows = garbage((2, 3, 768), np.float32)
    run(kernels, "quantized_embedding", [ids, given, rows], {"format": format})
    assert rows.tobytes() == wanted[ids].astype(np.float32).tobytes()
