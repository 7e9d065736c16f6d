"""What the oneDNN set does by pieces or in place, over numbers so many that it does so; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from kernel_case import garbage, run
from layouts import c_order, channels_last, check, piece_in_c_order, piece_of_channels_last, serves
from nets import bits
from singa_lite.kernels.onednn_kernels import channel_sums, line, one_thread, running_sums
from test_activation_values import FORWARD, applied
from test_normalization_values import FORWARD as MOMENTS
from test_normalization_values import empty, normal, vectors
from test_update_values import arguments, changed, every_update, steps

Array = np.ndarray
#: Large enough to be served.
IMAGES = (3, 40, 58, 39)
UFUNCS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
LAYOUTS = {"channels last": channels_last, "c order": c_order}


@pytest.mark.parametrize("name", [name for name in FORWARD if name != "softplus"])
def test_one_thread_or_more_give_equal_bits(onednn, name):
    x = 3 * normal(3, 50_001)
    rows = [applied(onednn, name, row, **FORWARD[name]) for row in x]
    assert bits(applied(onednn, name, x, **FORWARD[name])) == bits(np.array(rows))


# ---- element by element


def is_exact(onednn: Any, name: str, a: Array, b: Array) -> None:
    wanted, y = UFUNCS[name](a, b), garbage(a.shape, a.dtype)
    y = channels_last(y) if a.ndim == 4 and not a.flags.c_contiguous else y
    run(onednn, name, [a, b, y], {})
    np.testing.assert_array_equal(y, wanted)
    over_a = a.copy(order="K")
    run(onednn, name, [over_a, b, over_a], {})
    assert bits(over_a) == bits(wanted)


def test_operations_of_large_tensors_and_what_is_broadcast_to_them(onednn):
    shapes = [IMAGES, (40, 1, 1), (1, 40, 1, 1), (3, 40, 1, 1), (1, 1, 1, 1), (), (1,)]
    rows = [(lay(normal(*IMAGES)), shape) for lay in LAYOUTS.values() for shape in shapes]
    rows += [(normal(531, 521), shape) for shape in ((521,), (1, 521), (531, 1))]
    given = [(a, np.asarray(normal(*shape, seed=4), np.float32)) for a, shape in rows]
    given = [(a, channels_last(b) if b.shape == IMAGES and not a.flags.c_contiguous else b) for a, b in given]
    over_rows(is_exact, ((f"{name} {b.shape}", (onednn, name, a, b)) for name in UFUNCS for a, b in given))


def test_comparisons_of_large_tensors(onednn):
    a = np.round(normal(531, 521))
    for relation in ("equal", "not_equal", "less", "less_equal"):
        for shape in ((531, 521), (521,), (531, 1)):
            b, y = np.round(normal(*shape, seed=4)), garbage(a.shape, a.dtype)
            run(onednn, "compare", [a, b, y], {"relation": relation})
            np.testing.assert_array_equal(y, getattr(np, relation)(a, b))


def test_copies_between_layouts_and_into_and_out_of_a_concatenation(onednn):
    x = normal(*IMAGES)
    x[1, 2, 3, 4:8] = np.nan, np.inf, -np.inf, -0.0
    layouts = (channels_last, c_order, piece_of_channels_last, piece_in_c_order)
    for source in layouts:
        for target in layouts:
            y = target(garbage(IMAGES, np.float32))
            run(onednn, "copy", [source(x), y], {})
            assert bits(y) == bits(x)
            if target is piece_in_c_order:  # which lies among zeros
                y.fill(0)
                assert not y.base.any()


@pytest.mark.parametrize("lay", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("over", [None, 0, 1], ids=["apart", "over a", "over b"])
def test_a_sum_is_rectified_to_the_bits_of_the_two_kernels(onednn, lay, over):
    edges = np.array([0.0, -0.0, np.nan, np.inf, 1e-45, -1e-45, 3e38, -3e38, 1, -1, 2e-38], np.float32)
    a, b = lay(normal(*IMAGES)), lay(normal(*IMAGES, seed=4))
    a[0, 0, 0, : len(edges)], b[0, 0, 0, : len(edges)] = -np.inf, edges
    for row, edge in enumerate(edges, 1):
        a[0, 0, row, : len(edges)], b[0, 0, row, : len(edges)] = edge, edges
    apart = lay(garbage(IMAGES, np.float32))
    run(onednn, "add", [a, b, apart], {})
    run(onednn, "relu", [apart, apart], {})
    given = [a.copy(order="K"), b.copy(order="K")]
    y = lay(garbage(IMAGES, np.float32)) if over is None else given[over]
    assert serves(onednn, "add_activation", [*given, y], {"activation": "relu"})
    run(onednn, "add_activation", [*given, y], {"activation": "relu"})
    assert bits(y) == bits(apart)
    assert np.isnan(y).sum() == 2 * len(edges) + 1, "of each NaN, and of infinity less infinity"


# ---- sums


def is_sum(onednn: Any, x: Array, y: Array, name: str, axes: tuple[int, ...], settings: Any) -> None:
    """To 4 roundings of the sum of what is added."""
    assert serves(onednn, name, [x, y], settings)
    run(onednn, name, [x, y], settings)
    wanted, whole = (np.asarray(each.sum(axes, dtype=np.float64)) for each in (x, np.abs(x)))
    assert np.all(np.abs(y.reshape(wanted.shape) - wanted) <= 4 * np.finfo(np.float32).eps * whole)


def test_sums_of_large_tensors(onednn):
    rows: dict[str, tuple[Any, ...]] = {}
    for shape in ((64, 2048), (96, 1000), (8, 4096)):
        rows[f"dense {shape}"] = normal(*shape), empty(shape[1]), "bias_gradient", (0,), {"axis": 1}
    for kind, lay in LAYOUTS.items():
        for shape in ((16, 64, 28, 28), (4, 5, 64, 80), (3, 7, 211, 17), (2, 96, 9, 13)):
            x = lay(normal(*shape))
            rows[f"{kind} {shape}"] = x, empty(shape[1]), "bias_gradient", (0, 2, 3), {"axis": 1}
        for axes in ((2, 3), (0,), (1,), (0, 2, 3), (3,), (0, 1, 2, 3), (0, 1)):
            y = lay(empty(*(1 if i in axes else extent for i, extent in enumerate((6, 20, 14, 18)))))
            x = lay(normal(6, 20, 14, 18))
            rows[f"{kind} {axes}"] = x, y, "reduce_sum", axes, {"axes": axes, "alpha": 1.0}
        # The derivative of an image made larger: each pixel takes the sum of a block of them.
        dy = lay(normal(2, 32, 24, 30))
        n, c, h, w = dy.strides
        blocks = np.lib.stride_tricks.as_strided(dy, (2, 32, 8, 3, 15, 2), (n, c, 3 * h, h, 2 * w, w))
        rows[f"{kind}, blocks"] = blocks, lay(empty(2, 32, 8, 15)), "reduce_sum", (3, 5), {"axes": (3, 5), "alpha": 1.0}
    some = normal(3, 16, 18, 40).transpose(0, 3, 1, 2)[:, 5:26]
    rows["some channels"] = some, empty(21), "bias_gradient", (0, 2, 3), {"axis": 1}
    for axes in ((2, 3), (1,)):
        y = empty(*(extent for axis, extent in enumerate((6, 20, 14, 18)) if axis not in axes))
        x = channels_last(normal(6, 20, 14, 18))
        rows[f"left out {axes}"] = x, y, "reduce_sum", axes, {"axes": axes, "alpha": 1.0}
    over_rows(is_sum, ((label, (onednn, *row)) for label, row in rows.items()))


# ---- statistics


@pytest.mark.parametrize("mean", [0, 1000])
def test_a_last_group_of_one_short_piece(onednn, monkeypatch, mean):
    """Five images as pieces of two, groups of two pieces: the last group is one piece, which is one image."""
    shape, c = (5, 6, 11, 13), 6  # no other test's: a routine once built is kept
    monkeypatch.setattr(running_sums, "_PIECE", 2 * 6 * 11 * 13)
    monkeypatch.setattr(channel_sums, "_PIECES", 2)
    x = (mean + normal(*shape)).astype(np.float32)
    check(onednn, "batch_norm", [x, *vectors(c, 4), empty(*shape), empty(c), empty(c)], MOMENTS, roundings=128)


@pytest.mark.parametrize("layout", [channels_last, piece_of_channels_last])
def test_in_place_gives_equal_bits(onednn, layout):
    shape, c = (3, 16, 25, 70), 16

    def forward(x: Array, y: Array) -> bytes:
        run(onednn, "batch_norm", [x, *vectors(c, 4), y, empty(c), empty(c)], MOMENTS)
        return y.tobytes()

    def backward(dy: Array, dx: Array) -> bytes:
        x = layout(normal(*shape, seed=2))
        run(onednn, "batch_norm_derivative", [dy, x, *vectors(c, 3), dx, empty(c), empty(c)], {})
        return dx.tobytes()

    for step in (forward, backward):
        apart, source = layout(empty(*shape)), layout(normal(*shape))
        assert step(source, apart) == step(source, source)


# ---- updates


@every_update
def test_a_tensor_is_updated_alike_as_a_whole_and_by_rows(onednn, name, states, settings):
    shape = (line.PIECE // 512 + 5, 517)
    whole, cut = (arguments(states, shape) for _ in range(2))
    assert whole[0].size > line.PIECE
    steps(onednn, name, whole, settings)
    for part in (slice(0, 3), slice(3, 1021), slice(1021, None)):
        some = [a if a is None or a.ndim == 0 else a[part] for a in cut]
        steps(onednn, name, [*some[:-1], some[-1].copy()], settings)
    for a, b in zip(changed(whole), changed(cut), strict=True):
        assert bits(a) == bits(b)


def test_small_work_is_done_by_one_thread_and_the_number_comes_back(onednn):
    get, put = one_thread._openmp()
    before = get()
    put(3)
    try:
        seen: list[int] = []
        one_thread.running(lambda: seen.append(get()))()
        with one_thread.making():
            seen.append(get())
        assert (seen, get()) == ([1, 1], 3)
        with pytest.raises(ZeroDivisionError):
            one_thread.running(lambda: 1 // 0)()
        assert get() == 3
    finally:
        put(before)
