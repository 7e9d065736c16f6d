"""Batch normalisation in bfloat16, of which the library sums pieces: float64's values, however images lie."""

import numpy as np
import pytest

import skips
from layouts import at_an_odd_place, channels_last
from singa_lite.kernels.choice import find_onednn
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import specs_of
from singa_lite.kernels.numpy_kernels import NUMPY

ml_dtypes = skips.library("ml_dtypes")
NARROW = np.dtype(ml_dtypes.bfloat16)
MOMENTS = {"momentum": 0.1, "epsilon": 1e-5}
CALLS = [
    ("batch_norm", MOMENTS),
    ("batch_norm_activation", {**MOMENTS, "activation": "relu6"}),
    ("batch_norm_add", {**MOMENTS, "activation": "relu"}),
    ("batch_norm_derivative", {}),
    ("batch_norm_derivative_add", {}),
    ("batch_norm_activation_derivative", {"activation": "relu"}),
    ("batch_norm_gradient", {}),
]
#: (n, c, h, w): whole registers of channels, or of several pixels' channels; the last piece is shorter.
SHAPES = [(3, 16, 14, 10), (2, 24, 9, 8), (5, 48, 7, 3), (4, 4, 6, 5)]


LAYOUTS = {"c": np.ascontiguousarray, "last": channels_last, "within": at_an_odd_place}


@pytest.fixture
def kernels(monkeypatch):
    """A set of its own, which takes short pieces."""
    found = find_onednn()
    if isinstance(found, str):
        pytest.skip(f"{found}; pip install onednn-cpu-gomp")
    from singa_lite.kernels.onednn_kernels import bfloat16, onednn, piece_sums

    if not bfloat16.multiplies():
        pytest.skip("this system's processor has no products in bfloat16, as AVX512-BF16 and AMX have")
    monkeypatch.setattr(piece_sums, "PIECE_BYTES", 1 << 10)
    return onednn.__wrapped__(NUMPY)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name, settings", CALLS, ids=[name for name, _ in CALLS])
@pytest.mark.parametrize("x_lies, dy_lies", [("last", "last"), ("last", "c"), ("within", "last"), ("last", "within")])
def test_as_in_float64(name, settings, shape, x_lies, dy_lies, kernels):
    random = np.random.default_rng(5)
    given = {}
    for label in SIGNATURES[name].tensors:
        if label in ("x", "dy", "y", "dx", "other"):
            values = random.normal(3.0 if label == "x" else 0.1, 1.5, shape).astype(NARROW)
            given[label] = LAYOUTS[dy_lies if label in ("dy", "other") else x_lies](values)
        else:
            given[label] = random.uniform(0.5, 1.5, shape[1]).astype(np.float32)
    exact = {label: values.astype(np.float64) for label, values in given.items()}
    for of, tensors in ((kernels, given), (NUMPY, exact)):
        specs = specs_of(tensors.values())
        scratch = np.full(of.scratch_bytes(name, specs, settings), 255, np.uint8)
        of.prepare(name, tuple(tensors.values()), scratch, settings)()
    mixes = name == "batch_norm_gradient" and dy_lies == "c"
    assert kernels.takes_narrow(name, specs_of(given.values()), settings) is not mixes
    for label, role in zip(given, SIGNATURES[name].roles, strict=True):
        if role == "Read":
            continue
        wanted, got = exact[label], given[label].astype(np.float64)
        rtol = 2.0**-8 if given[label].dtype == NARROW else 2e-6
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max(), err_msg=label)
