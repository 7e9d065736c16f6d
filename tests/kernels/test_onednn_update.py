"""Updates of the oneDNN set: layouts, pieces, first updates, NaN, threads; the contract shows the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_onednn_linear import normal

from kernel_case import run
from nets import bits
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, Hyper, RmsPropHyper, SgdHyper
from singa_lite.kernels.kernel_set import KernelSet, specs_of
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.kernels.onednn_kernels import line, one_thread

Array = np.ndarray
Settings = dict[str, Any]

SGD = SgdHyper(momentum=0.9, dampening=0.0, nesterov=False, weight_decay=0.0, lr_mult=0.5)
RMS_PROP = RmsPropHyper(rho=0.9, epsilon=1e-3, weight_decay=0.0, lr_mult=0.5)
ADA_GRAD = AdaGradHyper(epsilon=1e-3, weight_decay=0.0, lr_mult=0.5)
ADAM = AdamHyper(beta_1=0.9, beta_2=0.99, epsilon=1e-3, weight_decay=0.0, decoupled=False, lr_mult=0.5)
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
}
every_update = pytest.mark.parametrize(
    "name, states, settings",
    [(name, states, {"hyper": hyper}) for name, states, hyper in UPDATES.values()],
    ids=UPDATES,
)


def c_order(a: Array) -> Array:
    return a.copy()


def kernels_last(a: Array) -> Array:
    """Filters with the kernels innermost."""
    return np.ascontiguousarray(a.transpose(2, 3, 1, 0)).transpose(3, 2, 0, 1)


def rows(a: Array) -> Array:
    """Some rows of a taller tensor."""
    taller = np.concatenate([a, a, a])
    return taller[len(a) : 2 * len(a)]


def arguments(states: int, shape: tuple[int, ...], lay: Callable[[Array], Array] = c_order) -> list[Any]:
    """The tensors of a third update; the state is not negative."""
    gradient, value, *state = (lay(normal(*shape, seed=i)) for i in range(2 + states))
    for tensor in state:
        np.abs(tensor, out=tensor)
    return [gradient, np.array(0.1), value, *(state or [None]), np.array(2)]


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


def serves(kernels: KernelSet, name: str, call: list[Any], settings: Settings) -> bool:
    return kernels.kernels[name].serves(specs_of(call), settings)


@every_update
@pytest.mark.parametrize("shape, lay", [((6, 5, 3, 3), kernels_last), ((7, 41), rows), ((67, 1000), c_order)])
def test_updates_in_every_layout(onednn, name, states, settings, shape, lay):
    call = arguments(states, shape, lay)
    exact = [None if a is None else a.astype(np.float64) if a.dtype.kind == "f" else a.copy() for a in call]
    assert serves(onednn, name, call, settings)
    steps(onednn, name, call, settings)
    steps(NUMPY, name, exact, settings)
    assert call[-1] == exact[-1] == 5
    for got, wanted in zip(changed(call), changed(exact), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


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


@pytest.mark.parametrize("hyper", [SGD, replace(SGD, dampening=0.5)], ids=["plain", "dampening"])
def test_the_first_update_takes_the_gradient_whatever_the_velocity_held(onednn, hyper):
    gradient, value, velocity = normal(3, 5), np.zeros((3, 5), np.float32), np.full((3, 5), np.nan, np.float32)
    run(onednn, "sgd", [gradient, np.array(2.0), value, velocity, np.array(0)], {"hyper": hyper})
    np.testing.assert_array_equal(velocity, gradient)
    np.testing.assert_array_equal(value, -gradient)


@every_update
def test_nan_stays_where_it_is(onednn, name, states, settings):
    call = arguments(states, (5, 29))
    call[0][2, 3] = np.nan
    steps(onednn, name, call, settings)
    for tensor in changed(call):
        np.testing.assert_array_equal(np.argwhere(np.isnan(tensor)), [[2, 3]])


@pytest.mark.parametrize("size", [83, line.PIECE + 1])
def test_clip_elements_keeps_nan(onednn, size):
    y = np.resize(np.array([np.nan, 2, -2, np.inf, -np.inf, 0.25, -0.25], np.float32), size)
    run(onednn, "clip_elements", [y], {"threshold": 0.5})
    wanted = np.resize(np.array([np.nan, 0.5, -0.5, 0.5, -0.5, 0.25, -0.25], np.float32), size)
    np.testing.assert_array_equal(y, wanted)


def test_add_scaled(onednn):
    x, y = kernels_last(normal(6, 5, 3, 3)), kernels_last(normal(6, 5, 3, 3, seed=4))
    wanted = y.astype(np.float64) - 0.75 * x
    run(onednn, "add_scaled", [x, y], {"alpha": -0.75})
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-6)


@every_update
@pytest.mark.parametrize("shape, lay", [((512, 512, 3, 3), kernels_last), ((2048, 1000), c_order), ((64,), c_order)])
def test_parameters_of_real_nets_are_served(onednn, name, states, settings, shape, lay):
    parameter = lay(np.empty(shape, np.float32))
    call = [parameter if a is not None and a.ndim else a for a in arguments(states, (1,))]
    assert serves(onednn, name, call, settings)


def test_other_forms_are_left_to_the_next_set(onednn):
    call = arguments(1, (6, 5, 3, 3))
    other_order = [kernels_last(call[0]), *call[1:]]
    gaps = [a if a is None or a.ndim == 0 else a[:, 1:3] for a in call]
    double = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in call]
    for refused in (other_order, gaps, double):
        assert not serves(onednn, "sgd", refused, {"hyper": SGD})
    assert not serves(onednn, "add_scaled", [call[0], other_order[0]], {"alpha": 1.0})
    assert not serves(onednn, "clip_elements", [gaps[0]], {"threshold": 1.0})


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
