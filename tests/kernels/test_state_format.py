"""Updates whose state is kept in fewer bits: formats worked by hand, every kernel set, pieces, rounding by chance."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from every_set import ON_CPU, parameter
from kernel_case import run
from layouts import c_order, turned
from singa_lite.kernels.interface.state_format import Blocks, blocked_shape, dynamic_tree
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY
from test_activation_values import normal
from test_update_values import ADAM, SGD, UPDATES, changed, gaps

Array = np.ndarray
NAN, INF = np.nan, np.inf
COMPACT = {name: case for name, case in UPDATES.items() if case[1]}
every_update = pytest.mark.parametrize("name, states, hyper", COMPACT.values(), ids=COMPACT)
#: CUDA's leaves such calls to the next set.
every_set = pytest.mark.parametrize("kernels", [parameter(kernels) for kernels in ON_CPU])
#: Rows of fewer than 2048 elements, some to a block; single ones; longer ones, in 2 and 9 blocks; a long line.
SHAPES = [(67, 71), (5, 1500), (3, 2049), (2, 9, 1999), (4100,)]
#: The states that are never below 0.
SQUARES = {"rms_prop": (True,), "ada_grad": (True,), "adam": (False, True, True), "sgd": (False,), "lion": (False,)}


def bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def cut(bits: Array) -> Array:
    """The upper half of each float32."""
    return (bits.view(np.uint32) >> 16).astype(np.uint16)


def blocks_of(shape: tuple[int, ...]) -> list[Array]:
    """Indices into the flat value of each block's elements: some whole rows, or an equal part of one."""
    columns = prod(shape[1:])
    index = np.arange(prod(shape)).reshape(shape[0], columns)
    if columns <= 2048:
        return [index[i : i + 2048 // columns].reshape(-1) for i in range(0, shape[0], 2048 // columns)]
    most = -(-columns // -(-columns // 2048))
    return [row[i : i + most] for row in index for i in range(0, columns, most)]


def places(shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(group, byte of the scale, byte of the first code) of each block."""
    form, count = Blocks.of(shape), len(blocks_of(shape))
    numbers = [divmod(number, form.blocks) for number in range(count)]
    return [(g, 4 * b, 4 * form.blocks + b * form.elements) for g, b in numbers]


def decoded(kept: Array, shape: tuple[int, ...], squares: bool) -> Array:
    """float64, one element after the other."""
    table, out = dynamic_tree(not squares).astype(np.float64), np.zeros(prod(shape))
    for index, (group, scale, first) in zip(blocks_of(shape), places(shape), strict=True):
        of_block = kept[group, scale : scale + 4].copy().view(np.float32)[0]
        out[index] = table[kept[group, first : first + len(index)]] * of_block
    return out.reshape(shape)


def encoded(x: Array, squares: bool) -> Array:
    """By the distance to every one of the 256 numbers."""
    kept, table = np.zeros(blocked_shape(x.shape), np.uint8), dynamic_tree(not squares).astype(np.float64)
    for index, (group, scale, first) in zip(blocks_of(x.shape), places(x.shape), strict=True):
        values = x.reshape(-1)[index].astype(np.float64)
        largest = np.abs(values).max()
        kept[group, scale : scale + 4] = np.array([largest], np.float32).view(np.uint8)
        codes = np.abs(values[:, None] / largest - table).argmin(axis=1)
        kept[group, first : first + len(index)] = np.where((codes == 0) & (values > 0) & squares, 1, codes)
    return kept


def call_of(name: str, states: int, shape: tuple[int, ...], kind: str, lay: Any = c_order) -> list[Any]:
    """The tensors of a third update, the state kept as `kind` says, squares not negative."""
    gradient, value, *floats = (normal(*shape, seed=i) for i in range(2 + states))
    squares, left_out = SQUARES[name][:states], [None] * (len(SQUARES[name]) - states)
    floats = [np.abs(x) * np.float32(1e-3) if s else x for x, s in zip(floats, squares, strict=True)]
    if kind == "int8":
        kept = [encoded(x, s) for x, s in zip(floats, squares, strict=True)]
    elif kind == "float32":
        kept = [lay(x) for x in floats]
    else:
        kept = [lay(cut(x)) for x in floats]
    return [lay(gradient), np.array(0.1), lay(value), *kept, *left_out, np.array(2)]


def exact_of(name: str, call: list[Any], kind: str) -> list[Any]:
    """The same call with the state in float64."""
    gradient, rate, value, *kept, count = call
    states = [
        None if x is None else (decoded(x, value.shape, s) if kind == "int8" else bfloat16(x)).astype(np.float64)
        for x, s in zip(kept, SQUARES[name], strict=True)
    ]
    return [gradient.astype(np.float64), rate.copy(), value.astype(np.float64), *states, count.copy()]


def test_the_tree_has_the_numbers_of_the_paper():
    """Seven decades; the middles of equal parts of 0.1 to 1, of twice as many where there is no sign; 0 and 1."""
    signed, unsigned = dynamic_tree(True), dynamic_tree(False)
    assert signed.dtype == np.float32
    for table in (signed, unsigned):
        assert table.shape == (256,)
        assert (np.diff(table) > 0).all()
    np.testing.assert_allclose(signed[127:134], [0, 5.5e-7, 3.25e-6, 7.75e-6, 2.125e-5, 4.375e-5, 6.625e-5], rtol=1e-6)
    np.testing.assert_allclose(signed[-3:], [1 - 0.9 / 64 * 1.5, 1 - 0.9 / 128, 1], rtol=1e-6)
    np.testing.assert_array_equal(signed[:127], -signed[128:255][::-1])
    np.testing.assert_allclose(unsigned[:4], [0, 3.25e-7, 7.75e-7, 2.125e-6], rtol=1e-6)
    np.testing.assert_allclose(unsigned[-2:], [1 - 0.9 / 256, 1], rtol=1e-6)


@every_set
@every_update
@pytest.mark.parametrize("shape", SHAPES)
def test_8_bits_are_read_and_written_as_worked_out(kernels: KernelSet, name, states, hyper, shape):
    """The value moves as by the exact state; the new state has each element's nearest number."""
    call = call_of(name, states, shape, "int8")
    exact = exact_of(name, call, "int8")
    run(kernels, name, call, {"hyper": hyper})
    run(NUMPY, name, exact, {"hyper": hyper})
    assert call[-1] == exact[-1] == 3
    np.testing.assert_allclose(call[2], exact[2], rtol=0, atol=2e-5)
    for got, wanted, squares in zip(call[3:-1], exact[3:-1], SQUARES[name], strict=True):
        if got is None:
            continue
        nearest = encoded(wanted, squares)
        got, nearest = decoded(got, shape, squares), decoded(nearest, shape, squares)
        differ = np.abs(got - nearest) > 1e-6 * np.abs(nearest)  # half way between two numbers
        assert differ.mean() < 0.002
        np.testing.assert_allclose(got[differ] / nearest[differ], 1, atol=0.1)


@every_set
@every_update
@pytest.mark.parametrize("lay", [c_order, turned, gaps])
def test_bfloat16_is_a_neighbour_of_the_exact_state(kernels: KernelSet, name, states, hyper, lay):
    call = call_of(name, states, (51, 97), "bfloat16", lay)
    exact = exact_of(name, call, "bfloat16")
    run(kernels, name, call, {"hyper": hyper})
    run(NUMPY, name, exact, {"hyper": hyper})
    np.testing.assert_allclose(call[2], exact[2], rtol=0, atol=2e-5)
    for got, wanted in zip(call[3 : 3 + states], exact[3 : 3 + states], strict=True):
        error = np.abs(bfloat16(got) - wanted)
        assert (error <= 2.0**-7 * np.abs(wanted) * 1.001 + 1e-7).all()
        assert 0.2 < (error / np.abs(wanted)).mean() * 2**8 < 0.8


@every_set
@every_update
@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
@pytest.mark.parametrize("shape", [(67, 71), (7, 2049)])
def test_tiles_of_rows_give_equal_bits(kernels: KernelSet, name, states, hyper, kind, shape):
    """Cut where blocks end; each tile counts by itself, as the pass has it."""
    whole, call = call_of(name, states, shape, kind), call_of(name, states, shape, kind)
    run(kernels, name, whole, {"hyper": hyper})
    rows = Blocks.of(shape).rows
    counts = []
    for start in range(0, shape[0], 2 * rows):
        stop, count = min(start + 2 * rows, shape[0]), call[-1].copy()
        groups = slice(start // rows, -(-stop // rows)) if kind == "int8" else slice(start, stop)
        tile = [
            call[0][start:stop],
            call[1],
            call[2][start:stop],
            *(x if x is None else x[groups] for x in call[3:-1]),
            count,
        ]
        run(kernels, name, tile, {"hyper": hyper})
        counts.append(int(count))
    assert set(counts) == {3}
    assert [x.tobytes() for x in changed(call)] == [x.tobytes() for x in changed(whole)]


@every_set
@every_update
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("shape", [(67, 71), (3, 2049), (40, 2048)])
def test_every_set_has_the_bits_of_numpy(kernels: KernelSet, name, states, hyper, kind, shape):
    """Over gradients of many magnitudes, so that all codes occur, some of which are zeros."""
    calls = [call_of(name, states, shape, kind) for _ in range(2)]
    for one, call in zip((kernels, NUMPY), calls, strict=True):
        call[0] *= np.exp(4 * normal(*shape, seed=9))
        call[0][::5] = 0
        for _ in range(2):
            run(one, name, call, {"hyper": hyper})
    assert [x.tobytes() for x in changed(calls[0])] == [x.tobytes() for x in changed(calls[1])]


@every_set
def test_where_numbers_are_not_finite(kernels: KernelSet):
    """bfloat16: the element alone. 8 bits: the value's element now, and the whole block at the next update."""
    hyper, shape = {"hyper": replace(SGD, nesterov=True)}, (67, 71)
    for bad in (NAN, INF, -INF):
        for kind in ("bfloat16", "int8"):
            call = call_of("sgd", 1, shape, kind)
            call[0][40, 5] = bad
            run(kernels, "sgd", call, hyper)
            np.testing.assert_array_equal(np.argwhere(~np.isfinite(call[2])), [[40, 5]])
            call[0][40, 5] = 0
            run(kernels, "sgd", call, hyper)
            found = np.flatnonzero(~np.isfinite(call[2]))
            rows = range(28, 56) if kind == "int8" else range(0)  # 2048 // 71 rows a block
            wanted = [r * 71 + c for r in rows for c in range(71)] or [40 * 71 + 5]
            np.testing.assert_array_equal(found, wanted)
    for pattern in (0x7FFFFFFF, 0xFFFFFFFF):  # NaN whose bits would overflow
        call = [np.full((2, 3), pattern, np.uint32).view(np.float32), np.array(0.1), np.zeros((2, 3), np.float32)]
        call += [np.zeros((2, 3), np.uint16), np.array(0)]
        run(kernels, "sgd", call, {"hyper": SGD})
        assert np.isnan(bfloat16(call[3])).all()


@every_set
def test_small_squares_beside_large_ones_do_not_become_zero(kernels: KernelSet):
    """Else a later step would be divided by epsilon alone."""
    gradient = np.full((3, 1400), 1e-6, np.float32)
    gradient[:, 7] = 1
    kept = np.zeros(blocked_shape(gradient.shape), np.uint8)
    call = [gradient, np.array(0.1), np.zeros((3, 1400), np.float32), kept.copy(), kept, None, np.array(0)]
    run(kernels, "adam", call, {"hyper": ADAM})
    assert (decoded(call[4], gradient.shape, squares=True) > 0).all()


@every_set
def test_a_second_moment_in_bfloat16_follows_where_rounding_to_nearest_stands_still(kernels: KernelSet):
    """beta_2 = 0.999 and squares of 1: float64 comes to 1 - 0.999**t, rounded to nearest it stays below a half."""
    hyper = replace(ADAM, beta_2=0.999)
    shape, steps = (16, 64), 2000
    gradient = np.where(normal(*shape) > 0, 1, -1).astype(np.float32)
    call = [gradient, np.array(0.0), np.zeros(shape, np.float32), *np.zeros((2, *shape), np.uint16), None, np.array(0)]
    scratch = np.zeros(kernels.scratch_bytes("adam", call, {"hyper": hyper}), np.uint8)
    launch = kernels.prepare("adam", tuple(call), scratch, {"hyper": hyper})
    nearest = np.float32(0)
    for _ in range(steps):
        launch()
        moved = np.float32(0.999) * nearest + np.float32(0.001)
        nearest = ((moved.view(np.uint32) + np.uint32(0x7FFF)) >> np.uint32(16) << np.uint32(16)).view(np.float32)
    wanted = 1 - 0.999**steps
    assert nearest < 0.6 * wanted
    found = bfloat16(call[4])
    assert abs(found.mean() - wanted) < 0.01 * wanted
    assert found.std() < 0.1 * wanted
