"""What NumPy's kernels compute, in plain NumPy: one formula a kernel, which every case of the tables is held to."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from kernel_case import Tensors
from kernel_cases_attention import reference
from kernel_cases_quantized import FORMULAS as QUANTIZED
from kernel_cases_stored import FORMULAS as STORED
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.window import Window

Array = np.ndarray
#: Takes tensors (and `_shape` of one that is written) and settings by their names in the interface, and gives what is
#: written or updated, in its order.
Formula = Callable[..., Any]


def results(name: str, tensors: Tensors, settings: Mapping[str, Any]) -> list[Array | None]:
    """What the formula makes of a call, in float64: an array for each tensor that the kernel writes or updates."""
    signature = SIGNATURES[name]
    given, outputs = dict(settings), []
    for label, role, t in zip(signature.tensors, signature.roles, tensors, strict=True):
        given[label] = t if t is None else t.astype(float) if t.dtype.kind == "f" else t.copy()
        if role != "Read":
            outputs.append(t)
            given[f"{label}_shape"] = t if t is None else t.shape
    wanted = inspect.signature(FORMULAS[name]).parameters
    made = FORMULAS[name](**{parameter: given[parameter] for parameter in wanted if parameter in given})
    made = made if isinstance(made, tuple) else (made,)
    return [None if t is None else fitted(np.asarray(m), t.shape) for m, t in zip(made, outputs, strict=True)]


def fitted(made: Array, shape: tuple[int, ...]) -> Array:
    """The result in the output's shape: axes of extent 1 may be left out, and others repeated."""
    return made.reshape(shape) if made.size == math.prod(shape) else np.broadcast_to(made, shape)


def by_number(function: Callable[[float], float]) -> Formula:
    """An activation of single numbers."""
    return lambda x: np.vectorize(function, otypes=[float])(x)


def along(vector: Array, x: Array, axis: int = 1) -> Array:
    """The vector as x's axis, to be broadcast over the others."""
    return vector.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


# ---- linear


def swapped(a, is_transposed):
    return a.swapaxes(-1, -2) if is_transposed else a


def matmul(a, b, transpose_a, transpose_b):
    return np.einsum("...ij,...jk->...ik", swapped(a, transpose_a), swapped(b, transpose_b), optimize=True)


def linear(x, weight, bias, activation=""):
    return activated(activation, x @ weight + (0 if bias is None else bias))


# ---- convolution: for each element of the window, the pixels that it meets


def met(x: Array, window: Window, groups: int) -> tuple[Array, dict[tuple[int, int], Any]]:
    """x with its padding, by groups, and the slices of it that each element of the window meets."""
    (top, bottom, left, right), extents = window.pad, window.positions("y", x.shape[2:])
    padded = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)])
    slices = {}
    for at in np.ndindex(*window.kernel):
        starts = [i * d for i, d in zip(at, window.dilation, strict=True)]
        each = zip(starts, extents, window.stride, strict=True)
        slices[at] = (..., *(slice(start, start + (e - 1) * step + 1, step) for start, e, step in each))
    return padded.reshape(len(x), groups, -1, *padded.shape[2:]), slices


def by_groups(a, groups, axis):
    return a.reshape(*a.shape[:axis], groups, -1, *a.shape[axis + 1 :])


def conv2d(x, weight, bias, window, groups, activation=""):
    padded, slices = met(x, window, groups)
    weight = by_groups(weight, groups, 0)
    terms = (
        np.einsum("ngchw,gkc->ngkhw", padded[where], weight[..., i, j], optimize=True)
        for (i, j), where in slices.items()
    )
    y = sum(terms)
    y = y.reshape(len(x), -1, *y.shape[3:]) + (0 if bias is None else bias[:, None, None])
    return activated(activation, y)


def conv2d_derivative(dy, weight, dx_shape, window, groups):
    padded, slices = met(np.zeros(dx_shape), window, groups)
    dy, weight = by_groups(dy, groups, 1), by_groups(weight, groups, 0)
    for (i, j), where in slices.items():
        padded[where] += np.einsum("ngkhw,gkc->ngchw", dy, weight[..., i, j], optimize=True)
    dx = padded.reshape(*dx_shape[:2], *padded.shape[3:])
    return dx[:, :, window.pad[0] :, window.pad[2] :][:, :, : dx_shape[2], : dx_shape[3]]


def conv2d_gradient(x, dy, window, groups):
    padded, slices = met(x, window, groups)
    dy = by_groups(dy, groups, 1)
    parts = [np.einsum("ngkhw,ngchw->gkc", dy, padded[where], optimize=True) for where in slices.values()]
    return np.stack(parts, -1).reshape(-1, parts[0].shape[2], *window.kernel)


# ---- normalization


def normalized(x, axes, epsilon):
    """(x - mean) / sqrt(var + epsilon), the mean and 1 / sqrt(var + epsilon)."""
    mean, inv_std = x.mean(axes, keepdims=True), 1 / np.sqrt(x.var(axes, keepdims=True) + epsilon)
    return (x - mean) * inv_std, mean, inv_std


def batch_norm(x, gamma, beta, running_mean, running_var, momentum, epsilon, other=None, activation=""):
    axes = (0, *range(2, x.ndim))
    z, mean, inv_std = normalized(x, axes, epsilon)
    variance = x.var(axes, ddof=1 if x.size > x.shape[1] else 0)
    running = (1 - momentum) * running_mean + momentum * mean.ravel(), (1 - momentum) * running_var
    y = activated(activation, along(gamma, x) * z + along(beta, x) + (0 if other is None else other))
    return running[0], running[1] + momentum * variance, y, mean, inv_std


def batch_normalize(x, gamma, beta, mean, inv_std, other=None, activation=""):
    z = along(gamma * inv_std, x) * (x - along(mean, x)) + along(beta, x)
    return activated(activation, z + (0 if other is None else other))


def batch_norm_derivative(dy, x, gamma, beta, mean, inv_std, other=None, activation=""):
    if activation:
        z = batch_normalize(x, gamma, beta, mean, inv_std)
        dy = np.where((z > 0) & ((z < 6) | (activation != "relu6")), dy, 0)
    axes, xhat = (0, *range(2, x.ndim)), (x - along(mean, x)) * along(inv_std, x)
    dgamma, dbeta, m = (dy * xhat).sum(axes), dy.sum(axes), x.size / x.shape[1]
    dx = along(gamma * inv_std, x) * (dy - along(dbeta, x) / m - xhat * along(dgamma, x) / m)
    return dx + (0 if other is None else other), dgamma, dbeta


def layer_norm(x, gamma, beta, epsilon):
    z, *statistics = normalized(x, tuple(range(x.ndim - gamma.ndim, x.ndim)), epsilon)
    return gamma * z + beta, *statistics


def group_norm(x, gamma, beta, mean_shape, epsilon):
    z, *statistics = normalized(x.reshape(*mean_shape, -1), (2,), epsilon)
    return along(gamma, x) * z.reshape(x.shape) + along(beta, x), *statistics


def rms_norm(x, gamma, epsilon):
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    inv_rms = 1 / np.sqrt((x**2).mean(axes, keepdims=True) + epsilon)
    return gamma * x * inv_rms, inv_rms


def lrn(x, size, alpha, beta, k):
    neighbours = [x[:, max(0, c - size // 2) : c + size // 2 + 1] for c in range(x.shape[1])]
    scale = k + alpha / size * np.stack([(each**2).sum(1) for each in neighbours], 1)
    return x * scale**-beta, scale


def l2_norm(x, epsilon):
    norm = np.sqrt((x**2).sum(tuple(range(1, x.ndim)), keepdims=True) + epsilon)
    return x / norm, norm


# ---- losses


def softmax(x, axis):
    powers = np.exp(x)
    return powers / powers.sum(axis, keepdims=True)


def weights_of(target, x):
    """Rows of weights with a sum of 1: one for the class of an id."""
    rows = target.astype(float) if target.shape == x.shape else np.moveaxis(np.eye(x.shape[1])[target], -1, 1)
    return rows / rows.sum(1, keepdims=True)


def softmax_cross_entropy(x, target):
    p = softmax(x, 1)
    return mean_of_samples(-(weights_of(target, x) * np.log(p)).sum(1)), p


def mean_of_samples(values):
    return values.reshape(len(values), -1).mean(1)


def sigmoid_cross_entropy(x, target):
    p = 1 / (1 + np.exp(-x))
    return mean_of_samples(-target * np.log(p) - (1 - target) * np.log(1 - p))


def huber(x, target, delta):
    r = np.abs(x - target)
    return mean_of_samples(np.where(r <= delta, r**2 / 2, delta * (r - delta / 2)))


def smooth_labels(x, target, losses, share):
    return losses + share * (x[np.arange(len(x)), target] - x.mean(1))


def softmax_classes_derivative(dlosses, x, lse, target, first, classes, share):
    t = weights_of(target, np.empty((len(x), classes)))[:, first : first + x.shape[1]]
    return dlosses[:, None] * (np.exp(x - lse[:, None]) - (1 - share) * t - share / classes)


def target_weights(target, ignored):
    counts = target != ignored
    return np.where(counts, target, 0), counts * len(target) / max(counts.sum(), 1)


# ---- sequences


def embedding_gradient(ids, dy, dweight_shape, first, padding):
    dweight = np.zeros(dweight_shape)
    for row in range(len(dweight)):
        if row + first != padding:
            dweight[row] = dy[ids == row + first].sum(0)
    return dweight


def sgd_rows(ids, dy, rate, value, count, hyper, padding):
    return value - rate * hyper.lr_mult * embedding_gradient(ids, dy, value.shape, 0, padding), count + 1


def rotary(x, table, axis, inverse):
    half = x.shape[-1] // 2
    z = x[..., :half] + 1j * x[..., half:]
    turns = table[0] + (-1j if inverse else 1j) * table[1]
    shape = [-1 if i == axis % x.ndim else half if i == x.ndim - 1 else 1 for i in range(x.ndim)]
    turned = z * turns.reshape(shape)
    return np.concatenate([turned.real, turned.imag], -1)


def read_at(x, position, y_shape):
    return x[:, position[0] : position[0] + y_shape[1]]


def write_at(x, position, y):
    y[:, position[0] : position[0] + x.shape[1]] = x
    return y


def cached_attention(q, keys, values, mask, first, position, scale):
    """The last rows of causal attention over what is kept."""
    m, stop = q.shape[1], position[0] + q.shape[1]
    whole = np.concatenate([np.zeros((len(q), position[0], *q.shape[2:])), q], 1)
    seen = None if mask is None else mask[:, :stop]
    begins = None if first is None else np.pad(first, [(0, 0), (position[0], 0)])
    return reference(whole, keys[:, :stop], values[:, :stop], seen, True, scale, begins)[0][:, -m:]


# ---- updates, as PyTorch has them


def gradient_of(gradient, value, decay):
    return gradient + decay * value if decay else gradient


def sgd(gradient, rate, value, velocity, count, hyper):
    step = g = gradient_of(gradient, value, hyper.weight_decay)
    if hyper.momentum:
        velocity = g if count == 0 else hyper.momentum * velocity + (1 - hyper.dampening) * g
        step = g + hyper.momentum * velocity if hyper.nesterov else velocity
    return value - rate * hyper.lr_mult * step, velocity, count + 1


def rms_prop(gradient, rate, value, square_average, count, hyper):
    g = gradient_of(gradient, value, hyper.weight_decay)
    square_average = hyper.rho * square_average + (1 - hyper.rho) * g**2
    return value - rate * hyper.lr_mult * g / (np.sqrt(square_average) + hyper.epsilon), square_average, count + 1


def ada_grad(gradient, rate, value, square_sum, count, hyper):
    g = gradient_of(gradient, value, hyper.weight_decay)
    square_sum = square_sum + g**2
    return value - rate * hyper.lr_mult * g / (np.sqrt(square_sum) + hyper.epsilon), square_sum, count + 1


def adam(gradient, rate, value, first_moment, second_moment, max_second_moment, count, hyper):
    b1, b2, epsilon, decay = (asdict(hyper)[name] for name in ("beta_1", "beta_2", "epsilon", "weight_decay"))
    lr, t = rate * hyper.lr_mult, count + 1
    g = gradient if hyper.decoupled else gradient_of(gradient, value, decay)
    value = value * (1 - lr * decay) if hyper.decoupled else value
    moments = b1 * first_moment + (1 - b1) * g, b2 * second_moment + (1 - b2) * g**2
    largest = moments[1] if max_second_moment is None else np.maximum(max_second_moment, moments[1])
    step = moments[0] / (1 - b1**t) / (np.sqrt(largest / (1 - b2**t)) + epsilon)
    return value - lr * step, *moments, largest, t


def lion(gradient, rate, value, momentum, count, hyper):
    lr, step = rate * hyper.lr_mult, np.sign(hyper.beta_1 * momentum + (1 - hyper.beta_1) * gradient)
    momentum = hyper.beta_2 * momentum + (1 - hyper.beta_2) * gradient
    return value - lr * (step + hyper.weight_decay * value), momentum, count + 1


def muon(gradient, rate, value, momentum, count, hyper):
    lr, m = rate * hyper.lr_mult, hyper.momentum
    momentum = m * momentum + (1 - m) * gradient
    step = m * momentum + (1 - m) * gradient if hyper.nesterov else momentum
    x = (step / max(np.linalg.norm(step), hyper.epsilon)).reshape(len(step), -1)
    for _ in range(hyper.ns_steps):
        gram = x @ x.T
        x = hyper.a * x + (hyper.b * gram + hyper.c * gram @ gram) @ x
    return value - lr * (hyper.scale * x.reshape(value.shape) + hyper.weight_decay * value), momentum, count + 1


def adafactor(gradient, value, rate, row_var, col_var, variance, count, hyper):
    t = int(count) + 1
    b, least = t**hyper.beta_2_decay, hyper.epsilon_1
    if variance is None:
        row_var = row_var + b * ((gradient**2).mean(-1, keepdims=True) - row_var)
        col_var = col_var + b * ((gradient**2).mean(-2, keepdims=True) - col_var)
        scale = row_var / np.maximum(row_var.mean(-2, keepdims=True), least)
        u = gradient / np.maximum(np.sqrt(scale * col_var), least)
    else:
        scale, variance = None, variance + b * (gradient**2 - variance)
        u = gradient / np.maximum(np.sqrt(variance), least)
    clip = max(1, np.sqrt((u**2).mean()) / hyper.d)
    size = max(hyper.epsilon_2, np.sqrt((value**2).mean()))
    return row_var, col_var, variance, scale, size * min(rate * hyper.lr_mult, t**-0.5) / clip


def adafactor_step(gradient, rate, value, scale, col_var, variance, factor, count, hyper):
    estimate = scale * col_var if variance is None else variance
    u = gradient / np.maximum(np.sqrt(estimate), hyper.epsilon_1)
    return (1 - rate * hyper.lr_mult * hyper.weight_decay) * value - factor * u, count + 1


# ---- all


ACTIVATIONS: dict[str, Formula] = {
    "relu": by_number(lambda x: max(x, 0.0)),
    "relu6": by_number(lambda x: min(max(x, 0.0), 6.0)),
    "leaky_relu": lambda x, slope: np.where(x > 0, x, slope * x),
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "sigmoid": by_number(lambda x: 1 / (1 + math.exp(-x))),
    "tanh": by_number(math.tanh),
    "gelu": by_number(lambda x: x * math.erfc(-x / math.sqrt(2)) / 2),
    "gelu_tanh": by_number(lambda x: x / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "silu": by_number(lambda x: x / (1 + math.exp(-x))),
    "softplus": by_number(lambda x: math.log1p(math.exp(x))),
}


def activated(activation: str, x: Array) -> Array:
    """x itself where there is no activation."""
    return ACTIVATIONS[activation](x) if activation else x


FORMULAS: dict[str, Formula] = {
    **ACTIVATIONS,
    **QUANTIZED,
    **STORED,
    "copy": lambda x: x,
    "fill": lambda value: value,
    "add": lambda a, b, activation="": activated(activation, a + b),
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "scale": lambda x, alpha, beta: alpha * x + beta,
    "power": lambda x, exponent: x**exponent,
    "exp": lambda x: math.e**x,
    "log": by_number(math.log),
    "absolute": lambda x: np.where(x < 0, -x, x),
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "maximum": lambda a, b: np.where(a > b, a, b),
    "minimum": lambda a, b: np.where(a < b, a, b),
    "maximum_derivative": lambda dy, a, b: dy * ((a > b) + 0.5 * (a == b)),
    "compare": lambda a, b, relation: getattr(np, relation)(a, b),
    "where": lambda condition, a, b: condition * a + (1 - condition) * b,
    "flip": lambda x, axes: x[tuple(slice(None, None, -1 if i in axes else 1) for i in range(x.ndim))],
    "reduce_max": lambda x, axes: np.sort(spread(x, axes), -1)[..., -1],
    "reduce_min": lambda x, axes: np.sort(spread(x, axes), -1)[..., 0],
    "reduce_sum": lambda x, axes, alpha: alpha * spread(x, axes).sum(-1),
    "bias_gradient": lambda dy, axis: np.moveaxis(dy, axis, 0).reshape(dy.shape[axis], -1).sum(1),
    "matmul": matmul,
    "matmul_add": lambda a, b, y, transpose_a, transpose_b: y + matmul(a, b, transpose_a, transpose_b),
    "low_rank_add": lambda x, a, b, y, scale: (scale * x @ a, y + scale * x @ a @ b),
    "low_rank_add_derivative": lambda dy, x, a, b, h, dx, scale: (
        scale * dy @ b.T,
        x.T @ (scale * dy @ b.T),
        h.T @ dy,
        None if dx is None else dx + scale * dy @ b.T @ a.T,
    ),
    "linear": linear,
    "linear_gradient": lambda x, dy: (x.T @ dy, dy.sum(0)),
    "add_bias": lambda x, bias, axis: x + along(bias, x, axis),
    "conv2d": conv2d,
    "conv2d_derivative": conv2d_derivative,
    "conv2d_gradient": conv2d_gradient,
    "softmax": softmax,
    "softmax_cross_entropy": softmax_cross_entropy,
    "sigmoid_cross_entropy": sigmoid_cross_entropy,
    "squared_error": lambda x, target: (x - target) ** 2 / 2,
    "huber": huber,
    "log_sum_exp": lambda x: np.log(np.exp(x).sum(1)),
    "smooth_labels": smooth_labels,
    "softmax_classes_derivative": softmax_classes_derivative,
    "target_weights": target_weights,
    "weigh": lambda x, weights: x * weights,
    "differs": lambda x, value: x != value,
    "batch_norm": batch_norm,
    "batch_normalize": batch_normalize,
    "batch_norm_inference": lambda x, gamma, beta, running_mean, running_var, epsilon: batch_normalize(
        x, gamma, beta, running_mean, 1 / np.sqrt(running_var + epsilon)
    ),
    "batch_norm_derivative": batch_norm_derivative,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "rms_norm": rms_norm,
    "lrn": lrn,
    "l2_norm": l2_norm,
    "embedding": lambda ids, weight: weight[ids],
    "embedding_gradient": embedding_gradient,
    "embedding_gradient_add": lambda ids, dy, dweight, first, padding: (
        dweight + embedding_gradient(ids, dy, dweight.shape, first, padding)
    ),
    "sgd_rows": sgd_rows,
    "rotary": rotary,
    "read_at": read_at,
    "write_at": write_at,
    "cached_attention": cached_attention,
    "sgd": sgd,
    "rms_prop": rms_prop,
    "ada_grad": ada_grad,
    "adam": adam,
    "lion": lion,
    "muon": muon,
    "adafactor": adafactor,
    "adafactor_step": adafactor_step,
    "add_scaled": lambda x, y, alpha: y + alpha * x,
    "clip_elements": lambda y, threshold: np.minimum(np.maximum(y, -threshold), threshold),
    "clip_norm": lambda y, threshold: y * min(1, threshold / np.sqrt((y**2).sum())),
    "add_squares": lambda x, total: total + (x**2).sum(),
    "scale_by": lambda factor, y: factor * y,
    "take_back": lambda applied, before, y: before if np.isnan(applied) else y,
}


def spread(x: Array, axes: tuple[int, ...]) -> Array:
    """The axes as one, the last."""
    rest = [i for i in range(x.ndim) if i not in {axis % x.ndim for axis in axes}]
    others = x.transpose(*rest, *(axis % x.ndim for axis in axes))
    return others.reshape(*(x.shape[i] for i in rest), -1)
