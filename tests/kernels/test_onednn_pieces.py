"""What the oneDNN set does by pieces or in place, over numbers so many that it does so; the contract shows the rest."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from kernel_case import garbage, run
from layouts import Layout, c_order, channels_last, check, piece_in_c_order, piece_of_channels_last, serves
from nets import bits
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import memories, memory_descs
from singa_lite.kernels.onednn_kernels.library.handles import Handle
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.sums import channel_sums, line, running_sums
from test_activation_values import FORWARD, applied
from test_normalization_values import FORWARD as MOMENTS
from test_normalization_values import empty, normal, vectors
from test_update_values import arguments, changed, every_update, steps

Array = np.ndarray
#: Large enough to be served.
IMAGES = (3, 40, 58, 39)
UFUNCS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
LAYOUTS = {"channels last": channels_last, "c order": c_order}


@pytest.mark.parametrize("name", FORWARD)
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


# --- a few channels have a large mean: these alone are summed again, in float64

ROUNDING = 2.0**-24
NAMES = "running_mean", "running_var", "y", "mean", "inv_std"
FORMS = [channels_last, c_order, piece_of_channels_last]
every_layout = pytest.mark.parametrize("lay", FORMS, ids=lambda lay: lay.__name__)


def with_means(shape: tuple[int, ...], means: dict[int, float]) -> Array:
    """Numbers around 0, but for these channels."""
    x = normal(*shape)
    for channel, mean in means.items():
        x[:, channel] += np.float32(mean)
    return x


def statistics(onednn, x: Array, lay: Layout, into: Layout = channels_last) -> dict[str, Array]:
    c = x.shape[1]
    ones, zeros = np.ones(c, np.float32), np.zeros(c, np.float32)
    results = [np.zeros(c, np.float32), np.zeros(c, np.float32), into(empty(*x.shape)), empty(c), empty(c)]
    with np.errstate(invalid="ignore"):  # NumPy warns of what infinity less infinity is
        run(onednn, "batch_norm", [lay(x), ones, zeros, *results], {"momentum": 1.0, "epsilon": 1e-5})
    return dict(zip(NAMES, results, strict=True))


def assert_right(got: dict[str, Array], x: Array) -> None:
    """As good as sums of numbers around 0 are (`test_exact_sums.py`)."""
    wide, count = x.astype(np.float64), x.size // x.shape[1]
    axes = (0, *range(2, x.ndim))
    mean, variance = wide.mean(axes), wide.var(axes)
    assert np.all(np.abs(got["mean"] - mean) <= ROUNDING * (np.sqrt(variance) + np.abs(mean)))
    np.testing.assert_allclose(got["running_var"], variance * count / (count - 1), rtol=17 * ROUNDING)
    np.testing.assert_allclose(got["inv_std"], 1 / np.sqrt(variance + 1e-5), rtol=17 * ROUNDING)


@every_layout
@pytest.mark.parametrize("shape", [(3, 65, 9, 7), (5, 96, 31, 27), (37, 64, 3, 1)], ids=str)
@pytest.mark.parametrize("means", [{5: 1e4}, {0: 30.0, 63: -1e6}], ids=str)
def test_few_far_channels(onednn, lay, shape, means):
    x = with_means(shape, means)
    assert_right(statistics(onednn, x, lay), x)


@every_layout
def test_the_other_channels_have_the_bits_that_they_have_without(onednn, lay):
    shape, means = (5, 96, 31, 27), {5: 1e4, 40: -300.0}
    got, without = (statistics(onednn, with_means(shape, m), lay) for m in (means, {}))
    for name in ("running_mean", "running_var", "mean", "inv_std"):
        near, wanted = (np.delete(each[name], list(means)) for each in (got, without))
        np.testing.assert_array_equal(near, wanted, err_msg=name)
        assert not np.array_equal(got[name], without[name])


@pytest.mark.parametrize("shape", [(5, 96, 31, 27), (7, 64, 13), (83, 64)], ids=str)
def test_gaps_change_no_bit(onednn, shape):
    """Where y has some too, x is read where it lies; else a copy without is, that the sums made."""
    x = with_means(shape, {5: 1e4, 40: -300.0})
    wanted = statistics(onednn, x, channels_last)
    for lay, into in product((channels_last, piece_of_channels_last), repeat=2):
        got = statistics(onednn, x, lay, into)
        for name in NAMES:
            np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)


@pytest.mark.parametrize("spoilt", [np.nan, np.inf, -np.inf])
def test_a_spoilt_channel_beside_a_far_one(onednn, spoilt):
    x = with_means((3, 64, 9, 7), {5: 1e4})
    x[1, 8, 2, 3] = spoilt
    got = statistics(onednn, x, channels_last)
    assert not any(np.isfinite(got[name][8]) for name in ("mean", "running_var", "inv_std"))
    whole = {name: np.delete(value, 8, axis=value.ndim > 1) for name, value in got.items()}
    assert_right(whole, np.delete(x, 8, axis=1))


def test_images_that_are_too_large_to_work_in(onednn, monkeypatch):
    monkeypatch.setattr(running_sums, "_PIECE", 1 << 11)
    x = with_means((2, 32, 41, 43), {5: 1e4})  # no other test's: a routine once built is kept
    assert_right(statistics(onednn, x, channels_last), x)


# --- what the launches of a step hold of the library

CUT_SHAPE, C = (3, 16, 90, 70), 16
NAME, SETTINGS = "batch_norm_activation_derivative", {"activation": "relu"}


def call(seed: int, mean: float = 0.0) -> list[Array]:
    """dy, x and dx are some channels of larger tensors, and pieces of several lengths; mean: of x."""
    dy, x = (piece_of_channels_last(normal(*CUT_SHAPE, seed=seed + n)) for n in (0, 1))
    x += mean
    gamma, beta, inv_std = vectors(C, 3)
    means = np.full(C, mean, np.float32)
    return [dy, x, gamma, beta, means, inv_std, piece_of_channels_last(empty(*CUT_SHAPE)), empty(C), empty(C)]


def bound(kernels: KernelSet, arrays: list[Array]) -> Launch:
    scratch = np.empty(kernels.scratch_bytes(NAME, arrays, SETTINGS), np.uint8)
    return kernels.prepare(NAME, tuple(arrays), scratch, SETTINGS)


def held(kind: type) -> int:
    return sum(issubclass(type(each), kind) for each in gc.get_objects())  # `isinstance` asks the objects themselves


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """So many arguments have objects of their own."""
    return lambda own: monkeypatch.setattr(memories, "OWN", own)


@pytest.mark.parametrize("own", [0, 40])
@pytest.mark.parametrize("mean", [0.0, 1000.0])  # of which steps on a condition that few nets meet are bound in the run
def test_launches_that_share_objects_give_the_bits_of_launches_by_themselves(onednn, sharing, own, mean):
    sharing(own)
    alone, together = ([call(seed, mean) for seed in (1, 5, 9)] for _ in range(2))
    for arrays in alone:
        bound(onednn, arrays)()
    with onednn.turns()():
        launches = [bound(onednn, arrays) for arrays in together]
    for _ in range(2):
        for launch, arrays, wanted in [*zip(launches, together, alone, strict=True)][::-1]:
            for result in arrays[-3:]:
                result.fill(np.nan)
            launch()
            for result, right in zip(arrays[-3:], wanted[-3:], strict=True):
                assert result.tobytes() == right.tobytes()


def test_further_launches_of_a_call_take_no_further_objects(onednn, sharing):
    sharing(0)
    turns, launches, counts = onednn.turns(), [], []
    for seed in range(4):
        with turns():
            launches.append(bound(onednn, call(10 * seed)))
        counts.append(held(Handle))
    assert counts[1:] == counts[:1] * 3


def product_of(rows: int) -> Primitive:
    """One whose scratch grows with the number of threads that it is made for."""
    shapes = (rows, 130), (130, 260), (rows, 260)
    left, right, result = map(memory_descs.dense, shapes)
    return Primitive("matmul", left, right, None, result)


@pytest.mark.parametrize("first", [1, 3])
def test_code_takes_the_scratch_of_its_own_number_of_threads(onednn, first):
    """Of equal primitives for one thread and for three; all code is made later, while another number is set."""
    made = []
    for threads in (first, 4 - first):
        with one_thread.thread_count(threads):
            made.append(product_of(40 + first))
    assert len({each.scratch_bytes for each in made}) == 2
    for each in made:
        with one_thread.thread_count(2):
            assert each.shared.primitive
        assert each.memory_desc(f.SCRATCHPAD).nbytes == each.scratch_bytes
