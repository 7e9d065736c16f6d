"""What the oneDNN set does by pieces or in place, over numbers so many that it does so; the contract shows the rest."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from kernel_case import garbage, run
from layouts import c_order, channels_last, piece_in_c_order, piece_of_channels_last, serves
from nets import bits
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import memories, memory_descs
from singa_lite.kernels.onednn_kernels.library.handles import Handle
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.sums import line
from test_activation_values import FORWARD, applied
from test_normalization_values import empty, normal
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
    assert serves(onednn, "add", [*given, y], {"activation": "relu"})
    run(onednn, "add", [*given, y], {"activation": "relu"})
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


# --- what the launches of a step hold of the library

NAME, SETTINGS = "conv2d", {"window": Window((3, 3), pad=(1, 1, 1, 1)), "groups": 1, "activation": "relu"}


def call(seed: int) -> list[Array]:
    """x and y are some channels of larger tensors."""
    x, y = (piece_of_channels_last(normal(3, 16, 30, 40, seed=seed + n)) for n in (0, 1))
    return [x, normal(16, 16, 3, 3, seed=seed + 2), normal(16, seed=seed + 3), y]


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
def test_launches_that_share_objects_give_the_bits_of_launches_by_themselves(onednn, sharing, own):
    sharing(own)
    alone, together = ([call(seed) for seed in (1, 5, 9)] for _ in range(2))
    for arrays in alone:
        bound(onednn, arrays)()
    with onednn.turns()():
        launches = [bound(onednn, arrays) for arrays in together]
    for _ in range(2):
        for launch, arrays, wanted in [*zip(launches, together, alone, strict=True)][::-1]:
            for result in arrays[-1:]:
                result.fill(np.nan)
            launch()
            for result, right in zip(arrays[-1:], wanted[-1:], strict=True):
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
