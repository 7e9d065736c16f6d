"""PyTorch's operation for each kernel of the interface, called as its eager autograd calls it.

Each function takes the case's arrays as tensors by name, and its settings, and returns a function without arguments
that does the operation once and returns the result to compare, a tensor. PyTorch allocates its results at each call:
that is what a step pays for. What only prepares (transposed weights, saved indices) is done beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as f

from kernel_table import LRN_K

Tensors = dict[str, Any]
Settings = dict[str, Any]
Operation = Callable[[], torch.Tensor]

Maker = Callable[[Tensors, Settings], Operation]

aten = torch.ops.aten

#: By kernel.
OPERATIONS: dict[str, Maker] = {}


def _entered(function: Maker) -> Maker:
    OPERATIONS[function.__name__] = function
    return function


def _window(s: Settings) -> tuple[Any, ...]:
    """Kernel, stride, padding and dilation of a window that is padded alike on both sides."""
    window = s["window"]
    return window.kernel, window.stride, window.pad_before, window.dilation


@_entered
def conv2d(t: Tensors, s: Settings) -> Operation:
    """The convolution."""
    options = *_window(s)[1:], s["groups"]
    return lambda: f.conv2d(t["x"], t["weight"], t["bias"], *options)


def _convolution_backward(t: Tensors, s: Settings, index: int) -> Operation:
    options = *_window(s)[1:], False, [0, 0], s["groups"], [i == index for i in range(3)]
    return lambda: aten.convolution_backward(t["dy"], t["x"], t["weight"], None, *options)[index]


@_entered
def conv2d_derivative(t: Tensors, s: Settings) -> Operation:
    """Of the two derivatives that by the input alone; of x only the shape matters."""
    return _convolution_backward({**t, "x": torch.empty_like(t["dx"])}, s, 0)


@_entered
def conv2d_gradient(t: Tensors, s: Settings) -> Operation:
    """That by the weight alone; of the weight only the shape matters."""
    return _convolution_backward({**t, "weight": torch.empty_like(t["dweight"])}, s, 1)


@_entered
def linear(t: Tensors, s: Settings) -> Operation:
    """With the weight as PyTorch keeps it, (out, in)."""
    weight = t["weight"].T.contiguous()
    return lambda: f.linear(t["x"], weight, t["bias"])


@_entered
def matmul(t: Tensors, s: Settings) -> Operation:
    """Of views, as in the backward of linear, whose weight and whose weight's gradient are (out, in)."""
    if s["transpose_b"]:
        weight = t["b"].T.contiguous()
        return lambda: t["a"].mm(weight)
    return lambda: t["b"].T.mm(t["a"]).T


@_entered
def bias_gradient(t: Tensors, s: Settings) -> Operation:
    """The sum over all axes but one."""
    axes = [axis for axis in range(t["dy"].ndim) if axis != s["axis"]]
    return lambda: t["dy"].sum(axes)


@_entered
def batch_norm(t: Tensors, s: Settings, training: bool = True) -> Operation:
    """With the statistics of the batch."""
    given = [t[name] for name in ("x", "gamma", "beta", "running_mean", "running_var")]
    options = training, s.get("momentum", 0.0), s["epsilon"]
    return lambda: aten.native_batch_norm(*given, *options)[0]


@_entered
def batch_norm_inference(t: Tensors, s: Settings) -> Operation:
    """With running statistics."""
    return batch_norm(t, s, training=False)


@_entered
def batch_norm_derivative(t: Tensors, s: Settings) -> Operation:
    """All three derivatives, as ours."""
    given = t["dy"], t["x"], t["gamma"], None, None, t["mean"], t["inv_std"], True, 1e-5, [True] * 3
    return lambda: aten.native_batch_norm_backward(*given)[0]


@_entered
def layer_norm(t: Tensors, s: Settings) -> Operation:
    """Over the last axis."""
    given = t["x"], t["gamma"].shape, t["gamma"], t["beta"], s["epsilon"]
    return lambda: aten.native_layer_norm(*given)[0]


def _layer_norm_backward(t: Tensors, gamma: torch.Tensor, mask: list[bool]) -> Operation:
    rows = [t[name].unsqueeze(-1) for name in ("mean", "inv_std")]
    given = t["dy"], t["x"], gamma.shape, *rows, gamma, torch.zeros_like(gamma), mask
    return lambda: aten.native_layer_norm_backward(*given)[mask.index(True)]


@_entered
def layer_norm_derivative(t: Tensors, s: Settings) -> Operation:
    """That by x alone."""
    return _layer_norm_backward(t, t["gamma"], [True, False, False])


@_entered
def layer_norm_gradient(t: Tensors, s: Settings) -> Operation:
    """Those by gamma and beta alone."""
    return _layer_norm_backward(t, torch.ones_like(t["dgamma"]), [False, True, True])


@_entered
def rms_norm(t: Tensors, s: Settings) -> Operation:
    """Over the last axis."""
    return lambda: f.rms_norm(t["x"], t["gamma"].shape, t["gamma"], s["epsilon"])


@_entered
def embedding(t: Tensors, s: Settings) -> Operation:
    """Rows of a table."""
    return lambda: f.embedding(t["ids"], t["weight"])


@_entered
def embedding_gradient(t: Tensors, s: Settings) -> Operation:
    """The dense gradient of the table."""
    given = t["dy"], t["ids"], t["dweight"].shape[0], s["padding"], False
    return lambda: aten.embedding_dense_backward(*given)


@_entered
def lrn(t: Tensors, s: Settings) -> Operation:
    """Made of several operations there."""
    return lambda: f.local_response_norm(t["x"], s["size"], s["alpha"], s["beta"], s["k"])


@_entered
def lrn_derivative(t: Tensors, s: Settings) -> Operation:
    """By autograd, of a forward done beforehand."""
    x = t["x"].requires_grad_()
    y = f.local_response_norm(x, s["size"], s["alpha"], s["beta"], LRN_K)
    return lambda: torch.autograd.grad(y, x, t["dy"], retain_graph=True)[0]


@_entered
def max_pool2d(t: Tensors, s: Settings) -> Operation:
    """With the indices that the backward needs."""
    options = _window(s)[:3]
    return lambda: aten.max_pool2d_with_indices(t["x"], *options)[0]


@_entered
def max_pool2d_derivative(t: Tensors, s: Settings) -> Operation:
    """At the winners of the values that the cases' own index was made from."""
    options = _window(s)[:3]
    index = aten.max_pool2d_with_indices(t["dx"], *options)[1]
    backward = aten.max_pool2d_with_indices_backward
    return lambda: backward(t["dy"], t["dx"], *options, [1, 1], False, index)


@_entered
def avg_pool2d(t: Tensors, s: Settings) -> Operation:
    """The average."""
    options = *_window(s)[:3], False, s["count_pad"]
    return lambda: f.avg_pool2d(t["x"], *options)


@_entered
def avg_pool2d_derivative(t: Tensors, s: Settings) -> Operation:
    """Of x only the shape matters."""
    options = *_window(s)[:3], False, s["count_pad"], None
    return lambda: aten.avg_pool2d_backward(t["dy"], t["dx"], *options)


@_entered
def reduce_sum(t: Tensors, s: Settings) -> Operation:
    """A mean."""
    return lambda: t["x"].mean(s["axes"])


@_entered
def relu_derivative(t: Tensors, s: Settings) -> Operation:
    """What autograd calls for it."""
    return lambda: aten.threshold_backward(t["dy"], t["y"], 0)


@_entered
def relu6(t: Tensors, s: Settings) -> Operation:
    """A clip."""
    return lambda: f.hardtanh(t["x"], 0.0, 6.0)


@_entered
def relu6_derivative(t: Tensors, s: Settings) -> Operation:
    """What autograd calls for it."""
    return lambda: aten.hardtanh_backward(t["dy"], t["y"], 0.0, 6.0)


@_entered
def copy(t: Tensors, s: Settings) -> Operation:
    """Into the given memory, since that is what concatenation and slicing do."""
    return lambda: t["y"].copy_(t["x"])


@_entered
def dropout(t: Tensors, s: Settings) -> Operation:
    """With the mask that the backward needs."""
    return lambda: aten.native_dropout(t["x"], s["p"], True)[0]


@_entered
def softmax(t: Tensors, s: Settings) -> Operation:
    """Along one axis."""
    return lambda: t["x"].softmax(s["axis"])


@_entered
def softmax_cross_entropy(t: Tensors, s: Settings) -> Operation:
    """One value a sample."""
    axes = list(range(1, t["target"].ndim))

    def operation() -> torch.Tensor:
        losses = f.cross_entropy(t["x"], t["target"], reduction="none")
        return losses.mean(axes) if axes else losses

    return operation


@_entered
def softmax_cross_entropy_derivative(t: Tensors, s: Settings) -> Operation:
    """By autograd, of a forward done beforehand from the same scores."""
    x = t["p"].requires_grad_()
    losses = f.cross_entropy(x, t["target"], reduction="none")
    dy = torch.ones_like(losses)
    return lambda: torch.autograd.grad(losses, x, dy, retain_graph=True)[0]


def _step(optimizer: torch.optim.Optimizer, value: torch.nn.Parameter, t: Tensors) -> Operation:
    value.grad = t["gradient"]

    def operation() -> torch.Tensor:
        optimizer.step()
        return value.detach()

    return operation


@_entered
def sgd(t: Tensors, s: Settings) -> Operation:
    """The optimizer's step on one parameter, its state as the case has it."""
    value = torch.nn.Parameter(t["value"])
    optimizer = torch.optim.SGD([value], 0.001, s["hyper"].momentum)
    optimizer.state[value]["momentum_buffer"] = t["velocity"]
    return _step(optimizer, value, t)


@_entered
def adam(t: Tensors, s: Settings) -> Operation:
    """AdamW's step on one parameter, its state as the case has it."""
    value = torch.nn.Parameter(t["value"])
    optimizer = torch.optim.AdamW([value], 0.001, weight_decay=s["hyper"].weight_decay)
    state = {"step": torch.tensor(float(t["count"])), "exp_avg": t["first_moment"], "exp_avg_sq": t["second_moment"]}
    optimizer.state[value].update(state)
    return _step(optimizer, value, t)


def _unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Maker:
    return lambda t, s: lambda: function(t["x"])


def _binary(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Maker:
    return lambda t, s: lambda: function(t["a"], t["b"])


def _backward(function: Callable[..., torch.Tensor], saved: str) -> Maker:
    return lambda t, s: lambda: function(t["dy"], t[saved])


OPERATIONS |= {name: _unary(getattr(torch, name)) for name in ("relu", "sigmoid", "tanh")}
OPERATIONS |= {name: _unary(getattr(f, name)) for name in ("gelu", "silu")}
OPERATIONS |= {"add": _binary(torch.add), "multiply": _binary(torch.mul)}
for _name, _saved in (("sigmoid", "y"), ("tanh", "y"), ("gelu", "x"), ("silu", "x")):
    OPERATIONS[f"{_name}_derivative"] = _backward(getattr(aten, f"{_name}_backward"), _saved)
