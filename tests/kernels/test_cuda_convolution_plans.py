"""Convolutions by cuDNN: planned by the library itself for a described GPU, run by NumPy from what it was told.

What of it breaks or is refused, halves, and operands that are aligned less, are in `test_cuda_refusals.py`.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from test_convolution import SETTINGS, Setting, tensors

from host_kernels import OverNumPy
from host_libraries import TYPES, convolutions, missing
from host_loader import HostLoader, missing_to_run
from kernel_case import garbage, run
from layouts import PAIRS, c_order, channels_last, check, piece_of_channels_last, serves
from singa_lite.common.strides import laid_out
from singa_lite.kernels.built import of_specs
from singa_lite.kernels.cuda_kernels import depthwise
from singa_lite.kernels.cuda_kernels.libraries import cudnn_plan
from singa_lite.kernels.cuda_kernels.libraries.cudnn_call import GENERIC, Plan, engine_of
from singa_lite.kernels.cuda_kernels.libraries.cudnn_convolution import Convolutions
from singa_lite.kernels.cuda_kernels.libraries.cudnn_wrong_engines import wrong_engines
from singa_lite.kernels.cuda_kernels.routine import CudaKernel
from singa_lite.kernels.kernel_set import TensorSpec

#: Roundings of the largest element that sums in another order may differ by.
LONG_SUM = 128
PLAIN = SETTINGS["padded"]
#: Large enough that engines with and without a workspace are offered.
LARGE = Setting((16, 64, 56, 56), 64, (3, 3), pad=(1, 1, 1, 1))
MISSING = missing() or missing_to_run()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"wants {MISSING}")


def kernels(made: Convolutions) -> OverNumPy:
    """The builders as a set without a fallback."""
    builders = {name: of_specs(name, build) for name, build in made.builders.items()}
    return OverNumPy("cudnn", {name: CudaKernel(build, HostLoader()) for name, build in builders.items()})


@pytest.fixture(scope="module")
def cudnn() -> OverNumPy:
    """The set as it is by default."""
    return kernels(convolutions())


def calls(
    setting: Setting, dtype: Any = np.float32, x_like: Any = channels_last, y_like: Any = channels_last
) -> dict[str, tuple[str, list[Any], dict[str, Any]]]:
    """(kernel, tensors, settings) of every direction, filters channels last. x_like, y_like: layouts of images."""
    x, weight, bias, dy = tensors(setting, dtype)
    filters = channels_last(weight)

    def blank(shape: Any, like: Any) -> np.ndarray:
        return like(garbage(shape, dtype))

    fused = {**setting.settings, "activation": "relu"}
    return {
        "forward": ("conv2d", [x_like(x), filters, None, blank(setting.y, y_like)], setting.settings),
        "bias": ("conv2d", [x_like(x), filters, bias, blank(setting.y, y_like)], setting.settings),
        "relu": ("conv2d", [x_like(x), filters, None, blank(setting.y, y_like)], fused),
        "bias, relu": ("conv2d", [x_like(x), filters, bias, blank(setting.y, y_like)], fused),
        "derivative": ("conv2d_derivative", [y_like(dy), filters, blank(setting.x, x_like)], setting.settings),
        "gradient": (
            "conv2d_gradient",
            [x_like(x), y_like(dy), blank(setting.weight, channels_last)],
            setting.settings,
        ),
    }


DIRECTIONS = tuple(calls(PLAIN))


@pytest.mark.parametrize("name", SETTINGS)
def test_equals_the_reference(cudnn, name):
    for dtype in ("float32", "float64"):
        for call in calls(SETTINGS[name], dtype).values():
            checked(cudnn, *call)


@pytest.mark.parametrize("name", ["padded", "strided", "grouped", "pointwise"])
def test_layouts_equal_the_reference(cudnn, name):
    """Those that the library takes, with filters of both orders."""
    for pair in [pair for pair in PAIRS if pair != "turned"]:
        for kernel, operands, settings in calls(SETTINGS[name], np.float32, *PAIRS[pair]).values():
            if pair == "mixed":
                place = -1 if kernel == "conv2d_gradient" else 1
                operands[place] = c_order(operands[place])
            checked(cudnn, kernel, operands, settings)


def checked(cudnn: OverNumPy, name: str, operands: list[Any], settings: dict[str, Any]) -> None:
    if name == "conv2d_gradient" or not depthwise.is_depthwise(operands[1], settings["groups"]):
        check(cudnn, name, operands, settings, LONG_SUM)


def specs(
    setting: Setting, direction: str, dtype: str = "float32", like: Any = channels_last
) -> tuple[str, list[Any], dict[str, Any]]:
    """As `calls`, specs without memory. like: the layout of all tensors."""
    name = calls(PLAIN)[direction][0]
    order = range(4) if like is c_order else (0, 2, 3, 1)
    x, weight, y = (
        TensorSpec(shape, np.dtype(dtype), laid_out(shape, order, np.dtype(dtype).itemsize))
        for shape in (setting.x, setting.weight, setting.y)
    )
    bias = TensorSpec((setting.filters,), x.dtype, (x.dtype.itemsize,))
    fused = {"activation": "relu"} if "relu" in direction else {}
    operands = {
        "derivative": [y, weight, x],
        "gradient": [x, y, weight],
    }.get(direction, [x, weight, bias if "bias" in direction else None, y])
    return name, operands, {**setting.settings, **fused}


def levels(setting: Setting = LARGE, dtype: str = "float32", **knobs: Any) -> list[tuple[int, ...]]:
    """Of each direction, the bytes of scratch with which another engine begins."""
    made = kernels(convolutions(**knobs))
    return [made.scratch_levels(*specs(setting, direction, dtype)) for direction in DIRECTIONS]


def is_generic(plan: Plan) -> bool:
    return engine_of(plan.engine) == GENERIC


def test_workspaces_keep_to_their_limit():
    none, some, all_there_is = (levels(workspace_limit=limit) for limit in (0, 13 << 20, 1 << 40))
    assert set(none) == {(0,)}
    assert max(max(own) for own in some) <= 13 << 20
    assert max(max(own) for own in all_there_is) > 13 << 20


@pytest.mark.parametrize("tf32", [False, True])
def test_more_workspace_is_a_better_engine(tf32):
    """Each engine is the library's first within its bytes; what a call wants at least is of the best kind."""
    made = convolutions(allow_tf32=tf32)
    for direction in DIRECTIONS:
        name, operands, settings = specs(LARGE, direction)
        call = of_specs(name, made.builders[name])(*operands, **settings).steps[0].call
        assert call.levels == tuple(sorted({plan.workspace_bytes for plan in call.plans}))
        for level in call.levels:
            assert call.plan_within(level).workspace_bytes == level
            assert call.plan_within(level + 1).engine == call.plan_within(level).engine
        assert not is_generic(call.plan)
        assert not any(map(is_generic, call.plans[:-1]))
        assert (call.scratch_bytes > 0) == (tf32 or direction == "derivative"), "for tensor cores, or not to be generic"
        with pytest.raises(ValueError, match="-1"):
            call.plan_within(-1)


#: Engines that read outside their tensors where paddings are unequal: of gradients by filters.
READ_OUTSIDE = {"eng1", "eng18", "eng20"}


def read_off(kernel: str, is_unequal: bool, in_c_order: bool, dtype: str) -> set[str]:
    """The engines that were wrong on a GPU."""
    rows = [
        ("conv2d_gradient", is_unequal, READ_OUTSIDE),
        ("conv2d_gradient", in_c_order and dtype in ("float16", "bfloat16"), {"eng70"}),
        ("conv2d_derivative", in_c_order and dtype in ("float16", "bfloat16"), {"eng78"}),
        ("conv2d_derivative", is_unequal and dtype == "float32", {"eng50"}),
    ]
    return {engine for name, is_so, engines in rows if name == kernel and is_so for engine in engines}


@pytest.mark.parametrize("dtype", [np.dtype(TYPES[name]).name for name in TYPES])
def test_engines_that_are_wrong_are_in_no_plan(dtype):
    """At whatever workspace; and each of those calls has a plan, which is one of the others."""
    chosen = set()
    for pad, in_c_order in product([(1, 1, 1, 1), (0, 1, 0, 1), (1, 1, 1, 0)], (False, True)):
        setting = Setting((4, 16, 13, 15), 24, (3, 3), pad=pad)
        for knobs, direction in product(({}, {"deterministic": False}, {"allow_tf32": True}), DIRECTIONS):
            made = convolutions(**knobs)
            name, operands, settings = specs(setting, direction, dtype, c_order if in_c_order else channels_last)
            for plan in of_specs(name, made.builders[name])(*operands, **settings).steps[0].call.plans:
                banned = read_off(name, pad != (1, 1, 1, 1), in_c_order, dtype)
                assert set(wrong_engines(plan.graph, dtype)) == banned
                assert engine_of(plan.engine) not in banned
                chosen |= {engine_of(plan.engine)} if name == "conv2d_gradient" else set()
    assert chosen & READ_OUTSIDE, "where paddings are equal they are as good as others"


def test_an_engine_is_left_out_by_its_whole_name(monkeypatch):
    """The library's own list of engines to leave out takes eng10 for eng1."""
    monkeypatch.setattr(cudnn_plan, "wrong_engines", lambda graph, dtype: ["eng1", "eng4"])
    name, operands, settings = specs(LARGE, "gradient", "bfloat16")
    made = convolutions()
    plans = of_specs(name, made.builders[name])(*operands, **settings).steps[0].call.plans
    assert {"eng10", "eng49"} <= {engine_of(plan.engine) for plan in plans}


def test_depthwise_convolutions_of_32_bits_are_left_to_our_kernels(cudnn):
    setting = Setting((2, 24, 9, 7), 24, (3, 3), pad=(1, 1, 1, 1), groups=24)
    for dtype in ("float16", "float32"):
        served = [
            cudnn.kernels[name].supports(tuple(o), s) for name, o, s in (specs(setting, d, dtype) for d in DIRECTIONS)
        ]
        assert served == [dtype == "float16" or direction == "gradient" for direction in DIRECTIONS]


def test_tf32_and_being_deterministic_are_knobs():
    assert levels() == levels(allow_tf32=False) == levels(deterministic=True)
    assert levels() != levels(allow_tf32=True)
    assert levels() != levels(deterministic=False)


def test_leaves_what_the_library_is_not_asked_for(cudnn):
    name, operands, settings = calls(PLAIN)["bias"]
    x, weight, bias, y = operands
    assert serves(cudnn, name, operands, settings)
    for refused in (
        [np.asfortranarray(x), weight, bias, y],
        [np.broadcast_to(x[:1], x.shape), weight, bias, y],
        [x, piece_of_channels_last(weight), bias, y],
        [x, weight, np.repeat(bias, 2)[::2], y],
        [x.astype(np.float64), weight, bias, y],
        [t.astype(np.int32) for t in (x, weight, bias, np.zeros(y.shape))],
    ):
        assert not serves(cudnn, name, refused, settings)
    name, operands, settings = calls(PLAIN)["bias, relu"]
    assert not serves(cudnn, name, operands, {**settings, "activation": "sigmoid"})


@pytest.mark.parametrize(("dtype", "offset"), [("float32", 4), ("float32", 12), ("float64", 8), ("float16", 2)])
def test_a_plan_is_asked_for_by_the_alignment_that_an_address_has(monkeypatch, dtype, offset):
    made, wishes = convolutions(), []
    plan = made.planner.plan

    def noted(draw: Any, of: str, wish: Any = None) -> Plan | None:
        wishes.append(wish)
        return plan(draw, of, wish)

    monkeypatch.setattr(made.planner, "plan", noted)
    name, (x, *others), settings = calls(PLAIN._replace(x=(2, 8, 5, 7), filters=8), dtype)["forward"]
    memory = np.zeros(x.nbytes + 32, np.uint8)
    odd = np.ndarray(x.shape, x.dtype, memory, -memory.ctypes.data % 16 + offset, x.strides)
    run(kernels(made), name, [odd, *others], settings)
    assert [wish.alignments for wish in wishes if wish][-1] == {1: offset & -offset}
