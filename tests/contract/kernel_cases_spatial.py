"""Cases of the kernels of convolution, pooling, normalization, random and update."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from kernel_case import Case, Tensors, garbage
from singa_lite.kernels.interface.update import (
    AdafactorHyper,
    AdaGradHyper,
    AdamHyper,
    Hyper,
    LionHyper,
    MuonHyper,
    RmsPropHyper,
    SgdHyper,
)
from singa_lite.kernels.interface.window import Window

Made = tuple[Tensors, dict[str, Any]]
Shape = tuple[int, ...]


def normal(rng: np.random.Generator, shape: Shape, dtype: np.dtype) -> np.ndarray:
    """Normal numbers of any float dtype."""
    return rng.standard_normal(shape).astype(dtype)


def positive(rng: np.random.Generator, shape: Shape, dtype: np.dtype) -> np.ndarray:
    """Numbers in [0.5, 2)."""
    return rng.uniform(0.5, 2, shape).astype(dtype)


def convolution(
    direction: str,
    *,
    window: Window,
    small: Shape = (3, 4, 5, 7),
    big: Shape = (5, 12, 95, 117),
    filters: tuple[int, int] = (6, 18),
    groups: int = 1,
    with_bias: bool = True,
    **activation: Any,
) -> Case:
    """conv2d, its derivative or its gradient. small, big: x's shapes; filters: of each."""
    settings = {"window": window, "groups": groups, **activation}

    def build(rng: np.random.Generator, dtype: np.dtype, is_big: bool) -> Made:
        x_shape, k = (big if is_big else small), filters[is_big]
        weight_shape = k, x_shape[1] // groups, *window.kernel
        y_shape = x_shape[0], k, *window.positions("y", x_shape[2:])
        x, weight, y = (normal(rng, shape, dtype) for shape in (x_shape, weight_shape, y_shape))
        if direction == "conv2d":
            bias = normal(rng, (k,), dtype) if with_bias else None
            return [x, weight, bias, garbage(y_shape, dtype)], dict(settings)
        if direction == "conv2d_derivative":
            return [y, weight, garbage(x_shape, dtype)], dict(settings)
        return [x, y, garbage(weight_shape, dtype)], dict(settings)

    return Case(build)


#: Settings of convolutions that take different ways through a kernel.
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "": {"window": Window((3, 2), pad=(1, 1, 1, 0))},
    ":strided": {"window": Window((3, 2), (2, 3), (0, 2, 1, 1), (1, 2)), "with_bias": False},
    ":grouped": {"window": Window((3, 2), pad=(1, 0, 0, 1)), "groups": 2},
    ":depthwise": {
        "window": Window((3, 2), pad=(1, 1, 1, 1)),
        "groups": 12,
        "small": (3, 12, 5, 4),
        "filters": (12, 24),
    },
    ":pointwise": {"window": Window((1, 1)), "small": (3, 4, 5, 7)},
    ":images": {"window": Window((5, 3)), "small": (7, 2, 5, 3), "big": (531, 10, 9, 11), "filters": (5, 14)},
}


#: (small, big) shapes of images, and of those with a few more channels than positions.
IMAGES = (3, 5, 7, 9), (3, 11, 127, 129)

POOLINGS: dict[str, dict[str, Any]] = {
    "": {"window": Window((2, 3), (2, 3))},
    ":overlapping": {"window": Window((3, 2), (2, 1), (1, 2, 0, 1))},
    ":sparse": {"window": Window((1, 2), (3, 4), (0, 0, 1, 1))},
    ":global": {"window": Window((7, 9))},
    ":wide": {"window": Window((17, 19), (3, 4), (8, 9, 6, 7))},
}


def pooling(name: str, **settings: Any) -> Case:
    """A pooling kernel; count_pad among the settings if it averages. index: of an input of its own."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        x_shape = IMAGES[big]
        window = settings["window"]
        if big and window.kernel == (7, 9):
            x_shape = 23, 401, 7, 9
        y_shape = *x_shape[:2], *window.positions("y", x_shape[2:])
        index = garbage(y_shape, np.uint8 if window.taps <= 256 else np.int32)
        if name == "max_pool2d":
            return [normal(rng, x_shape, dtype), garbage(y_shape, dtype), index], settings
        if name == "avg_pool2d":
            return [normal(rng, x_shape, dtype), garbage(y_shape, dtype)], settings
        dy, dx = normal(rng, y_shape, dtype), garbage(x_shape, dtype)
        if name == "max_pool2d_derivative":
            return [dy, rng.integers(0, window.taps, y_shape, dtype=index.dtype), dx], settings
        return [dy, dx], settings

    return Case(build)


def without_index(case: Case) -> Case:
    """max_pool2d where no derivative will be asked for."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        (x, y, _), settings = case.build(rng, dtype, big)
        return [x, y, None], settings

    return Case(build)


def pooling_cases() -> dict[str, Case]:
    """Every pooling kernel with every setting."""
    cases = {}
    for label, settings in POOLINGS.items():
        for name in ("max_pool2d", "max_pool2d_derivative"):
            cases[name + label] = pooling(name, **settings)
        for name in ("avg_pool2d", "avg_pool2d_derivative"):
            cases[name + label] = pooling(name, count_pad=bool(label == ""), **settings)
    cases["max_pool2d:no_index"] = without_index(cases["max_pool2d:overlapping"])
    cases["avg_pool2d:padded"] = pooling("avg_pool2d", count_pad=True, **POOLINGS[":overlapping"])
    return cases


#: (small, big) shapes by the number of axes behind the channels.
CHANNELS = {0: ((9, 7), (1037, 511)), 1: ((3, 5, 7), (5, 17, 6151)), 2: ((3, 5, 7, 2), (3, 11, 127, 129))}


def batch(name: str, trailing: int = 2, summed: bool = False, **settings: Any) -> Case:
    """A kernel of batch normalization over x with so many axes behind the channels. summed: with a sum behind it."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = CHANNELS[trailing][big]
        dy, x, out = normal(rng, shape, dtype), 3 + 2 * normal(rng, shape, dtype), garbage(shape, dtype)
        channels = shape[1:2]
        gamma, beta, mean = (normal(rng, channels, dtype) for _ in range(3))
        variance, beyond = positive(rng, channels, dtype), normal(rng, shape, dtype)
        blank, spare = garbage(channels, dtype), garbage(channels, dtype)
        other, masking = beyond if summed else None, beta if settings.get("activation") else None
        tensors: dict[str, Tensors] = {
            "batch_norm": [x, gamma, beta, mean, variance, other, out, blank, spare],
            "batch_normalize": [x, gamma, beta, mean, variance, other, out],
            "batch_norm_inference": [x, gamma, beta, mean, variance, out],
            "batch_norm_derivative": [dy, x, gamma, masking, mean, variance, other, out, blank, spare],
            "batch_norm_gradient": [dy, x, mean, variance, blank, spare],
        }
        return tensors[name], settings

    return Case(build)


#: (small, big) (rows, features) of layer normalization: short rows, long rows, one row without an axis.
ROWS: dict[str, tuple[tuple[Shape, Shape], tuple[Shape, Shape]]] = {
    "": (((3, 5), (7,)), ((37, 211), (67,))),
    ":images": (((3,), (5, 7, 2)), ((11,), (13, 57, 64))),
    ":single": (((), (5, 7)), ((), (501, 1003))),
}


def layer(name: str, label: str, **settings: Any) -> Case:
    """A kernel of layer normalization."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        rows, features = ROWS[label][big]
        shape = rows + features
        dy, x, out = normal(rng, shape, dtype), 3 + 2 * normal(rng, shape, dtype), garbage(shape, dtype)
        gamma, beta = normal(rng, features, dtype), normal(rng, features, dtype)
        mean, inv_std = np.asarray(normal(rng, rows, dtype)), np.asarray(positive(rng, rows, dtype))
        tensors: dict[str, Tensors] = {
            "layer_norm": [x, gamma, beta, out, garbage(rows, dtype), garbage(rows, dtype)],
            "layer_norm_derivative": [dy, x, gamma, mean, inv_std, out],
            "layer_norm_gradient": [dy, x, mean, inv_std, garbage(features, dtype), garbage(features, dtype)],
        }
        return tensors[name], settings

    return Case(build)


#: As `CHANNELS`, of channels that groups divide.
GROUPED = {0: ((9, 6), (1037, 512)), 1: ((3, 6, 7), (5, 18, 6151)), 2: ((3, 6, 7, 2), (3, 12, 127, 129))}


def group(name: str, trailing: int = 2, groups: int | None = None, **settings: Any) -> Case:
    """A kernel of group normalization. groups: None for as many as channels."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = GROUPED[trailing][big]
        rows, channels = (shape[0], groups or shape[1]), shape[1:2]
        dy, x, out = normal(rng, shape, dtype), 3 + 2 * normal(rng, shape, dtype), garbage(shape, dtype)
        gamma, beta = normal(rng, channels, dtype), normal(rng, channels, dtype)
        mean, inv_std = normal(rng, rows, dtype), positive(rng, rows, dtype)
        tensors: dict[str, Tensors] = {
            "group_norm": [x, gamma, beta, out, garbage(rows, dtype), garbage(rows, dtype)],
            "group_norm_derivative": [dy, x, gamma, mean, inv_std, out],
            "group_norm_gradient": [dy, x, mean, inv_std, garbage(channels, dtype), garbage(channels, dtype)],
        }
        return tensors[name], settings

    return Case(build)


def response(name: str, trailing: int = 2, size: int = 5) -> Case:
    """Local response normalization or its derivative."""
    settings = {"size": size, "alpha": 0.3, "beta": 0.75}

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = CHANNELS[trailing][big]
        dy, x, out = normal(rng, shape, dtype), normal(rng, shape, dtype), garbage(shape, dtype)
        if name == "lrn":
            return [x, out, garbage(shape, dtype)], {**settings, "k": 1.5}
        return [dy, x, positive(rng, shape, dtype), out], settings

    return Case(build)


def l2(name: str, trailing: int = 2) -> Case:
    """L2 normalization or its derivative."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = CHANNELS[trailing][big]
        dy, x, out = normal(rng, shape, dtype), normal(rng, shape, dtype), garbage(shape, dtype)
        if name == "l2_norm":
            return [x, out, garbage(shape[:1], dtype)], {"epsilon": 1e-6}
        return [dy, x, positive(rng, shape[:1], dtype), out], {}

    return Case(build)


def key(counter: int = 5) -> np.ndarray:
    """A random key."""
    return np.array([17, 2**64 - 3, counter], np.uint64)


def build_draw_key(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """A key has three words, whatever size is asked for."""
    return [key(), garbage((3,), np.uint64)], {}


def random(**settings: Any) -> Case:
    """A kernel that fills y from a key."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        return [key(), garbage(IMAGES[big], dtype)], settings

    return Case(build)


def build_dropout(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, key, y."""
    x = normal(rng, IMAGES[big], dtype)
    return [x, key(), garbage(x.shape, dtype)], {"p": 0.4}


#: Shapes of parameters.
PARAMETERS = (5, 7, 11), (57, 83, 129)


def update(hyper: Hyper, states: int, count: int = 0, has_state: bool = True) -> Case:
    """An optimizer's update with so many state tensors of the value's shape, after `count` earlier ones."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = PARAMETERS[big]
        gradient, value = normal(rng, shape, dtype), normal(rng, shape, dtype)
        state: Tensors = [positive(rng, shape, dtype) if has_state else None for _ in range(states)]
        state += [None] * (isinstance(hyper, AdamHyper) and states == 2)  # no largest second moment
        rate, counter = np.array(0.03, np.float64), np.array(count, np.int64)
        return [gradient, rate, value, *state, counter], {"hyper": hyper}

    return Case(build)


ADAFACTOR = AdafactorHyper(beta_2_decay=-0.8, epsilon_1=1e-3, epsilon_2=1e-2, d=1.0, weight_decay=0.1, lr_mult=0.5)


def adafactor(kernel: str, hyper: AdafactorHyper = ADAFACTOR, of_vector: bool = False) -> Case:
    """Sums over a gradient, or the steps by them, after three earlier updates."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = (prod(PARAMETERS[big]),) if of_vector else PARAMETERS[big]
        gradient, value, variance = normal(rng, shape, dtype), normal(rng, shape, dtype), positive(rng, shape, dtype)
        rows, columns = (*shape[:-1], 1), (*shape[:-2], 1, *shape[-1:])
        means = [None, None, variance] if of_vector else [*(positive(rng, s, dtype) for s in (rows, columns)), None]
        rate, count, factor = np.array(0.03, np.float64), np.array(3, np.int64), np.array(0.02, np.float64)
        if kernel == "adafactor_step":
            return [gradient, rate, value, *means, factor, count], {"hyper": hyper}
        scale = None if of_vector else garbage(rows, dtype)
        return [gradient, rate, value, *means, count, scale, garbage((), np.float64)], {"hyper": hyper}

    return Case(build)


def build_add_scaled(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, y."""
    shape = PARAMETERS[big]
    return [normal(rng, shape, dtype), normal(rng, shape, dtype)], {"alpha": -0.7}


def clip(threshold: float) -> Case:
    """y, clipped."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        return [normal(rng, PARAMETERS[big], dtype)], {"threshold": threshold}

    return Case(build)


def build_add_squares(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, the total so far."""
    return [normal(rng, PARAMETERS[big], dtype), np.array(2.5, np.float64)], {}


def build_clip_factor(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """The total, and where norm and factor go."""
    return [np.array(6.25, np.float64), garbage((), np.float64), garbage((), np.float64)], {"limit": 2.0}


def unscaled(total: float) -> Case:
    """total, rate, scale, and where norm, factor and applied rate go."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        given = [np.array(number, np.float64) for number in (total, 0.1, 512.0)]
        return [*given, *(garbage((), np.float64) for _ in range(3))], {"limit": 0.002}

    return Case(build)


def next_scale(applied: float) -> Case:
    """The applied rate, the scale, good and skipped steps."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        counts = np.array(6, np.int64), np.array(2, np.int64)
        return [np.array(applied, np.float64), np.array(512.0, np.float64), *counts], {"interval": 7}

    return Case(build)


def taken_back(applied: float) -> Case:
    """The applied rate, before, y."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        tensors = [normal(rng, PARAMETERS[big], dtype) for _ in range(2)]
        return [np.array(applied, np.float64), *tensors], {}

    return Case(build)


def scaled(factor: float) -> Case:
    """factor, y."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        return [np.array(factor, np.float64), normal(rng, PARAMETERS[big], dtype)], {}

    return Case(build)


#: What stands behind a batch normalization.
NORM_OPTIONS: dict[str, dict[str, Any]] = {
    "relu": {"activation": "relu"},
    "relu6": {"activation": "relu6"},
    "sum": {"summed": True},
    "sum and relu": {"summed": True, "activation": "relu"},
    "sum and relu6": {"summed": True, "activation": "relu6"},
}
MOMENTS = {"momentum": 0.1, "epsilon": 1e-3}
SGD = SgdHyper(momentum=0.9, dampening=0.0, nesterov=False, weight_decay=0.01, lr_mult=0.5)
MUON = MuonHyper(
    **{"momentum": 0.9, "nesterov": True, "ns_steps": 3, "a": 3.4445, "b": -4.775, "c": 2.0315},
    **{"epsilon": 1e-7, "scale": 1.5, "weight_decay": 0.1, "lr_mult": 0.5},
)
ADAM = AdamHyper(beta_1=0.9, beta_2=0.99, epsilon=1e-3, weight_decay=0.1, decoupled=False, lr_mult=0.5)

CASES: dict[str, Case] = {
    **{
        direction + label: convolution(direction, **settings)
        for direction in ("conv2d", "conv2d_derivative", "conv2d_gradient")
        for label, settings in CONVOLUTIONS.items()
    },
    "conv2d:relu": convolution("conv2d", activation="relu", **CONVOLUTIONS[""]),
    "conv2d:grouped sigmoid": convolution("conv2d", activation="sigmoid", **CONVOLUTIONS[":grouped"]),
    **pooling_cases(),
    **{
        name + label: batch(name, trailing, **settings)
        for name, settings in {
            "batch_norm": MOMENTS,
            "batch_normalize": {},
            "batch_norm_inference": {"epsilon": 1e-3},
            "batch_norm_derivative": {},
            "batch_norm_gradient": {},
        }.items()
        for trailing, label in enumerate((":flat", ":sequence", ""))
    },
    **{
        f"{name}:{option}{label}": batch(name, trailing, **settings, **given)
        for name, settings in {"batch_norm": MOMENTS, "batch_normalize": {}, "batch_norm_derivative": {}}.items()
        for option, given in NORM_OPTIONS.items()
        for trailing, label in enumerate((" flat", " sequence", ""))
        if name != "batch_norm_derivative" or len(given) == 1  # which takes one of them
    },
    **{
        name + label: layer(name, label, **settings)
        for name, settings in {
            "layer_norm": {"epsilon": 1e-3},
            "layer_norm_derivative": {},
            "layer_norm_gradient": {},
        }.items()
        for label in ROWS
    },
    **{
        name + label: group(name, trailing, groups, **settings)
        for name, settings in {
            "group_norm": {"epsilon": 1e-3},
            "group_norm_derivative": {},
            "group_norm_gradient": {},
        }.items()
        for label, trailing, groups in (("", 2, 3), (":flat", 0, 2), (":sequence", 1, 1), (":instances", 2, None))
    },
    "lrn": response("lrn"),
    "lrn:flat": response("lrn", 0, size=9),
    "lrn:narrow": response("lrn", 1, size=1),
    "lrn_derivative": response("lrn_derivative"),
    "lrn_derivative:flat": response("lrn_derivative", 0, size=9),
    "lrn_derivative:narrow": response("lrn_derivative", 1, size=1),
    "l2_norm": l2("l2_norm"),
    "l2_norm:flat": l2("l2_norm", 0),
    "l2_norm_derivative": l2("l2_norm_derivative"),
    "l2_norm_derivative:flat": l2("l2_norm_derivative", 0),
    "draw_key": Case(build_draw_key),
    "dropout": Case(build_dropout),
    "uniform": random(low=-1.5, high=2.5),
    "normal": random(mean=0.7, std=2.0),
    "truncated_normal": random(mean=0.7, std=2.0),
    "sgd": update(SGD, 1, 3),
    "sgd:first": update(replace(SGD, dampening=0.3), 1),
    "sgd:nesterov": update(replace(SGD, nesterov=True, dampening=0.3), 1, 3),
    "sgd:plain": update(replace(SGD, momentum=0.0, weight_decay=0.0), 1, 3, has_state=False),
    "rms_prop": update(RmsPropHyper(rho=0.9, epsilon=1e-3, weight_decay=0.01, lr_mult=0.5), 1, 3),
    "ada_grad": update(AdaGradHyper(epsilon=1e-3, weight_decay=0.01, lr_mult=0.5), 1, 3),
    "adam": update(ADAM, 2, 3),
    "adam:decoupled": update(replace(ADAM, decoupled=True), 2),
    "adam:largest": update(ADAM, 3, 3),
    "adam:largest, decoupled": update(replace(ADAM, decoupled=True), 3),
    "lion": update(LionHyper(beta_1=0.9, beta_2=0.99, weight_decay=0.1, lr_mult=0.5), 1, 3),
    "muon": update(MUON, 1, 3),
    "muon:plain": update(replace(MUON, nesterov=False), 1, 3),
    "adafactor": adafactor("adafactor"),
    "adafactor:clipped": adafactor("adafactor", replace(ADAFACTOR, d=1.1, epsilon_2=2.0)),
    "adafactor:vector": adafactor("adafactor", of_vector=True),
    "adafactor_step": adafactor("adafactor_step"),
    "adafactor_step:vector": adafactor("adafactor_step", replace(ADAFACTOR, weight_decay=0.0), of_vector=True),
    "add_scaled": Case(build_add_scaled),
    "clip_elements": clip(0.5),
    "clip_norm": clip(3.0),
    "clip_norm:short": clip(1e6),
    "add_squares": Case(build_add_squares),
    "clip_factor": Case(build_clip_factor),
    "scale_by": scaled(0.3),
    "scale_by:one": scaled(1.0),
    "unscale_factor": unscaled(6.25),
    "next_loss_scale": next_scale(0.1),
    "next_loss_scale:skipped": next_scale(np.nan),
    "take_back": taken_back(np.nan),
    "take_back:kept": taken_back(0.1),
}
