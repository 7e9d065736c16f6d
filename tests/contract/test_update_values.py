"""Updates by every kernel set: layouts, several steps by one launch, first updates, NaN; clipping of extremes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from every_set import ON_CPU, every_own_set, parameter
from joined_cases import JOINED
from kernel_case import run
from layouts import c_order, turned
from singa_lite.kernels.interface import SIGNATURES, joined_name, joined_of
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, Hyper, LionHyper, RmsPropHyper, SgdHyper
from singa_lite.kernels.kernel_set import KernelSet, split_operands
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.testing.kernel_call import Calls, allocates_nothing, scratch_rule_needs_forms_alone
from test_activation_values import normal

Array = np.ndarray
Settings = dict[str, Any]
NAN, INF = np.nan, np.inf

SGD = SgdHyper(momentum=0.9, dampening=0.0, nesterov=False, weight_decay=0.0, lr_mult=0.5)
RMS_PROP = RmsPropHyper(rho=0.9, epsilon=1e-3, weight_decay=0.0, lr_mult=0.5)
ADA_GRAD = AdaGradHyper(epsilon=1e-3, weight_decay=0.0, lr_mult=0.5)
ADAM = AdamHyper(beta_1=0.9, beta_2=0.99, epsilon=1e-3, weight_decay=0.0, decoupled=False, lr_mult=0.5)
LION = LionHyper(beta_1=0.9, beta_2=0.99, weight_decay=0.0, lr_mult=0.5)
DECAY = {"weight_decay": 0.1}

#: {case: (kernel, tensors of state, hyperparameters)}.
UPDATES: dict[str, tuple[str, int, Hyper]] = {
    "sgd": ("sgd", 0, replace(SGD, momentum=0.0)),
    "sgd decay": ("sgd", 0, replace(SGD, **DECAY, momentum=0.0)),
    "momentum": ("sgd", 1, SGD),
    "momentum decay": ("sgd", 1, replace(SGD, **DECAY)),
    "dampening": ("sgd", 1, replace(SGD, **DECAY, dampening=0.3)),
    "nesterov": ("sgd", 1, replace(SGD, nesterov=True)),
    "nesterov decay": ("sgd", 1, replace(SGD, **DECAY, nesterov=True)),
    "rms_prop": ("rms_prop", 1, RMS_PROP),
    "rms_prop decay": ("rms_prop", 1, replace(RMS_PROP, **DECAY)),
    "ada_grad": ("ada_grad", 1, ADA_GRAD),
    "ada_grad decay": ("ada_grad", 1, replace(ADA_GRAD, **DECAY)),
    "adam": ("adam", 2, ADAM),
    "adam decay": ("adam", 2, replace(ADAM, **DECAY)),
    "adam_w": ("adam", 2, replace(ADAM, **DECAY, decoupled=True)),
    "ams_grad": ("adam", 3, ADAM),
    "ams_grad decay": ("adam", 3, replace(ADAM, **DECAY)),
    "ams_grad_w": ("adam", 3, replace(ADAM, **DECAY, decoupled=True)),
    "lion": ("lion", 1, LION),
    "lion decay": ("lion", 1, replace(LION, **DECAY)),
}
every_update = pytest.mark.parametrize(
    "name, states, settings",
    [(name, states, {"hyper": hyper}) for name, states, hyper in UPDATES.values()],
    ids=UPDATES,
)


def kernels_last(a: Array) -> Array:
    """Filters with the kernels innermost."""
    return np.ascontiguousarray(a.transpose(2, 3, 1, 0)).transpose(3, 2, 0, 1)


def rows(a: Array) -> Array:
    """Some rows of a taller tensor."""
    taller = np.concatenate([a, a, a])
    return taller[len(a) : 2 * len(a)]


def gaps(a: Array) -> Array:
    """Every other row of a taller tensor."""
    return np.repeat(a, 2, axis=0)[::2]


def arguments(states: int, shape: tuple[int, ...], lay: Callable[[Array], Array] = c_order) -> list[Any]:
    """The tensors of a third update; the state is not negative."""
    gradient, value, *state = (lay(normal(*shape, seed=i)) for i in range(2 + states))
    for tensor in state:
        np.abs(tensor, out=tensor)
    left_out = [None] * (states in (0, 2))  # the velocity, or Adam's largest second moment
    return [gradient, np.array(0.1), value, *state, *left_out, np.array(2)]


def steps(kernels: KernelSet, name: str, call: list[Any], settings: Settings) -> None:
    """Three updates at falling rates, by one launch."""
    scratch = np.full(kernels.scratch_bytes(name, call, settings), 0xFF, np.uint8)
    launch = kernels.prepare(name, tuple(call), scratch, settings)
    for rate in (0.1, 0.05, 0.02):
        call[1][...] = rate
        launch()


def changed(call: list[Any]) -> list[Array]:
    """value and state."""
    return [tensor for tensor in call[2:-1] if tensor is not None]


def check(kernels: KernelSet, name: str, settings: Settings, call: list[Any], atol: float = 1e-6) -> None:
    """Three updates by one launch are those of the reference in float64."""
    exact = [None if a is None else a.astype(np.float64) if a.dtype.kind == "f" else a.copy() for a in call]
    steps(kernels, name, call, settings)
    steps(NUMPY, name, exact, settings)
    assert call[-1] == exact[-1]
    for got, wanted in zip(changed(call), changed(exact), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol * np.abs(wanted).max())


@every_own_set
@every_update
def test_from_the_first_update_on(kernels: KernelSet, name, states, settings):
    call = arguments(states, (37,))
    call[-1][...] = 0
    for tensor in changed(call)[1:]:
        tensor.fill(0)
    check(kernels, name, settings, call)


@every_own_set
@every_update
def test_nan_stays_where_it_is(kernels: KernelSet, name, states, settings):
    call = arguments(states, (5, 29))
    call[0][2, 3] = NAN
    steps(kernels, name, call, settings)
    for tensor in changed(call):
        np.testing.assert_array_equal(np.argwhere(np.isnan(tensor)), [[2, 3]])


@every_own_set
@every_update
def test_at_a_rate_that_is_nan_nothing_changes(kernels: KernelSet, name, states, settings):
    """And the next update of the same launch goes on from there."""
    call = arguments(states, (5, 29))
    scratch = np.full(kernels.scratch_bytes(name, call, settings), 0xFF, np.uint8)
    launch = kernels.prepare(name, tuple(call), scratch, settings)
    before = [tensor.tobytes() for tensor in (*changed(call), call[-1])]
    call[0][2, 3], call[1][...] = NAN, NAN
    launch()
    assert [tensor.tobytes() for tensor in (*changed(call), call[-1])] == before
    call[0][2, 3], call[1][...] = 1.0, 0.1
    launch()
    assert call[-1] == 3 and all(np.isfinite(tensor).all() for tensor in changed(call))
    assert changed(call)[0].tobytes() != before[0]


@every_own_set
@pytest.mark.parametrize("hyper", [SGD, replace(SGD, dampening=0.5)], ids=["plain", "dampening"])
def test_the_first_velocity_is_the_gradient_whatever_it_held(kernels: KernelSet, hyper):
    gradient, value, velocity = normal(3, 5), np.zeros((3, 5), np.float32), np.full((3, 5), NAN, np.float32)
    run(kernels, "sgd", [gradient, np.array(2.0), value, velocity, np.array(0)], {"hyper": hyper})
    np.testing.assert_array_equal(velocity, gradient)
    np.testing.assert_array_equal(value, -gradient)
    infinite = np.full(5, INF, np.float32)  # which stays: without decay it is no part of the gradient
    tensors = [normal(5), np.array(2.0), infinite, None, np.array(0)]
    run(kernels, "sgd", tensors, {"hyper": replace(SGD, momentum=0.0)})
    np.testing.assert_array_equal(infinite, INF)


@every_own_set
def test_add_scaled_over_other_strides(kernels: KernelSet):
    for one, other in ((kernels_last, kernels_last), (turned, gaps)):
        x, y = one(normal(6, 5, 3, 3)), other(normal(6, 5, 3, 3, seed=4))
        wanted = y.astype(np.float64) - 0.75 * x
        run(kernels, "add_scaled", [x, y], {"alpha": -0.75})
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-6)


@every_own_set
@pytest.mark.parametrize("dtype, rtol", [(np.float32, 1e-6), (np.float64, 1e-12)])
@pytest.mark.parametrize("lay", [c_order, gaps, turned])
@pytest.mark.parametrize("shape", [(1, 1), (1, 1025), (51, 1021)])
def test_clip_norm(kernels: KernelSet, shape, lay, dtype, rtol):
    y = lay(normal(*shape, dtype=dtype))
    norm = np.linalg.norm(y.astype(np.float64))
    for threshold in (0.7 * norm, 1.1 * norm):  # the second one changes nothing
        wanted = y.astype(np.float64) * min(1, threshold / np.linalg.norm(y.astype(np.float64)))
        run(kernels, "clip_norm", [y], {"threshold": float(threshold)})
        np.testing.assert_allclose(y, wanted, rtol=rtol, atol=np.finfo(dtype).smallest_subnormal)


@every_own_set
@pytest.mark.parametrize(
    "y, wanted",
    [
        ([3e30, -4e30], [3, -4]),
        ([3e-30, 4e-30], [3e-30, 4e-30]),
        ([3, NAN], [3, NAN]),
        ([3, INF], [0, NAN]),
        ([3, 4], [3, 4]),
        ([3, 0, -4.5], [3, 0, -4.5]),
    ],
)
def test_clip_norm_of_extremes(kernels: KernelSet, y, wanted):
    """What is not longer than the threshold stays, and so does all where the norm is no number."""
    held = np.array(y, np.float32)
    with np.errstate(invalid="ignore"):  # NumPy warns of infinity times 0
        run(kernels, "clip_norm", [held], {"threshold": 5.0 if len(y) == 2 else 5.5})
    np.testing.assert_allclose(held, wanted, rtol=1e-6)


@every_own_set
@pytest.mark.parametrize("lay", [c_order, gaps, turned])
@pytest.mark.parametrize("shape", [(1, 1), (3, 1025), (51, 1021)])
def test_squares_are_added_in_float64(kernels: KernelSet, shape, lay):
    """Of numbers whose squares float32 cannot hold, too."""
    for size in (1.0, 1e25, 1e-25):
        x, total = lay(normal(*shape)) * np.float32(size), np.array(0.25 * size**2)
        wanted = 0.25 * size**2 + np.sum(x.astype(np.float64) ** 2)
        run(kernels, "add_squares", [x, total], {})
        np.testing.assert_allclose(total, wanted, rtol=1e-13)


#: (kernel, numbers that it reads and updates, settings, numbers that it makes or updates, the last ones).
SCALARS: list[tuple[str, list[float], Settings, tuple[float, ...]]] = [
    *(  # total and limit; the norm and the factor
        ("clip_factor", [total], {"limit": limit}, (np.sqrt(total), factor))
        for total, limit, factor in (
            (6.25, 2.0, 2.0 / 2.500001),
            (6.25, 2.5, 2.5 / 2.500001),  # as PyTorch, which adds 1e-6 to a norm that is the limit too
            (6.25, 3.0, 1.0),
            (0.0, 1e-9, 1e-3),
            (0.0, 1.0, 1.0),
            (INF, 2.0, 0.0),
            (NAN, 2.0, NAN),
            (6.25, INF, 1.0),
            (INF, INF, NAN),
        )
    ),
    *(  # total and limit at a rate of 0.1 and a scale of 4; the norm, the factor and the rate that is applied
        ("unscale_factor", [total, 0.1, 4.0], {"limit": limit}, wanted)
        for total, limit, wanted in (
            (64.0, INF, (2.0, 0.25, 0.1)),
            (64.0, 1.0, (2.0, 0.25 / 2.000001, 0.1)),
            (64.0, 3.0, (2.0, 0.25, 0.1)),
            (0.0, 3.0, (0.0, 0.25, 0.1)),
            (INF, 1.0, (INF, 1.0, NAN)),
            (NAN, INF, (NAN, 1.0, NAN)),
        )
    ),
    *(  # the applied rate, the scale, good steps and skipped ones; the last three behind it
        ("next_loss_scale", [applied, *before], {"interval": interval}, wanted)
        for applied, interval, before, wanted in (
            (0.1, 3, (8.0, 0, 5), (8.0, 1, 5)),
            (0.0, 3, (8.0, 2, 5), (16.0, 0, 5)),
            (NAN, 3, (8.0, 2, 5), (4.0, 0, 6)),
            (NAN, 0, (8.0, 2, 5), (8.0, 0, 6)),
            (0.1, 0, (8.0, 2, 5), (8.0, 3, 5)),
            (0.1, 1, (2.0**126, 0, 0), (2.0**126, 0, 0)),
            (NAN, 1, (2.0**-126, 0, 0), (2.0**-126, 0, 1)),
        )
    ),
]


@every_own_set
def test_kernels_of_single_numbers(kernels: KernelSet):
    for name, given, settings, wanted in SCALARS:
        made = len(SIGNATURES[name].tensors) - len(given)
        tensors = [np.array(number) for number in (*given, *[7.0] * made)]
        run(kernels, name, tensors, settings)
        np.testing.assert_allclose(tensors[-len(wanted) :], wanted, rtol=1e-14, err_msg=f"{name} {given} {settings}")


@every_own_set
@pytest.mark.parametrize("lay", [c_order, gaps, turned])
def test_scaled_by_a_factor_in_memory(kernels: KernelSet, lay):
    y = lay(normal(51, 67))
    y[0, :3] = NAN, INF, -INF
    for factor in (0.3, 1.0, NAN):
        wanted = y * np.float32(factor)
        run(kernels, "scale_by", [np.array(factor), y], {})
        np.testing.assert_array_equal(y, wanted)


@every_own_set
@pytest.mark.parametrize("lay", [c_order, gaps, turned])
def test_taken_back_only_where_the_rate_is_nan(kernels: KernelSet, lay):
    before, y = lay(normal(5, 7)), lay(normal(5, 7, seed=4))
    kept = y.copy()
    run(kernels, "take_back", [np.array(0.0), before, y], {})
    np.testing.assert_array_equal(y, kept)
    y[0, 1] = NAN
    run(kernels, "take_back", [np.array(NAN), before, y], {})
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize("kernels", [parameter(kernels) for kernels in ON_CPU])
@pytest.mark.parametrize("shape", [(37, 41), (5, 9001), (700, 1), (5000, 3)])
def test_squares_by_pieces_of_rows_give_equal_bits(kernels: KernelSet, shape):
    """As a large gradient is squared tile by tile."""
    x = normal(*shape)
    for lay in (lambda a: a, lambda a: np.asfortranarray(a.T)):
        laid, whole = lay(x), np.array(0.3)
        axis = int(laid.strides[1] > laid.strides[0])
        run(kernels, "add_squares", [laid, whole], {})
        for rows in (1, 3, 19):
            total = np.array(0.3)
            for start in range(0, laid.shape[axis], rows):
                piece = laid[start : start + rows] if axis == 0 else laid[:, start : start + rows]
                run(kernels, "add_squares", [piece, total], {})
            assert total.tobytes() == whole.tobytes()


# --- joined updates do, bit for bit, what the single ones do

every_case = pytest.mark.parametrize("case", JOINED)


def joined_built(case: str, dtype: Any = np.float32) -> tuple[str, list[Any], dict[str, Any]]:
    """Name of the joined calls, tensors and settings."""
    return case.split(":")[0], *JOINED[case].build(np.random.default_rng(7), np.dtype(dtype), False)


def singly(kernels: KernelSet, name: str, tensors: list[Any], settings: dict[str, Any]) -> list[Any]:
    """The tensors behind single calls."""
    for one in split_operands(joined_of(name)[0], tensors):
        run(kernels, joined_of(name)[0], list(one), settings)
    return tensors


def assert_same(got: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(got, wanted, strict=True):
        assert (one is None) == (other is None)
        assert one is None or one.tobytes() == other.tobytes()


@every_own_set
@every_case
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_they_make_what_single_calls_make(kernels: KernelSet, case, dtype):
    name, tensors, settings = joined_built(case, dtype)
    wanted = singly(kernels, name, joined_built(case, dtype)[1], settings)
    assert wanted[2].tobytes() != tensors[2].tobytes()
    run(kernels, name, tensors, settings)
    assert_same(tensors, wanted)


@every_own_set
@every_case
def test_they_keep_the_promises_of_every_kernel(kernels: KernelSet, case):
    make = Calls(kernels, *joined_built(case))
    over_rows(lambda one: one(make), [(p.__name__, (p,)) for p in (allocates_nothing, scratch_rule_needs_forms_alone)])


@every_own_set
@every_update
@pytest.mark.parametrize("lay", [c_order, turned, gaps])
def test_other_layouts_and_rates_that_are_no_number(kernels: KernelSet, name, states, settings, lay):
    """And one update that does not count."""

    def given() -> list[Any]:
        first, second, third = arguments(states, (5, 29)), arguments(states, (6, 4), lay), arguments(states, (31,))
        third[1][...] = np.nan
        return [*first, *second, *third]

    found = given()
    run(kernels, joined_name(name, 3), found, settings)
    assert_same(found, singly(kernels, joined_name(name, 3), given(), settings))
    assert_same(split_operands(name, found)[2][2:], split_operands(name, given())[2][2:])
