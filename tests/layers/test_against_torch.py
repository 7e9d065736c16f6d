"""Layers that the random nets of `test_peer_nets.py` do not draw against PyTorch's, from equal weights."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import skips
from run_layer import RNG, random_layer, run, state
from singa_lite import autograd, layers, tensor
from singa_lite.layer import Layer

pytestmark = pytest.mark.peer


def tape(layer: Layer, x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Output in training mode, and the gradients of its product with `weight` by "x" and the parameters."""
    given = tensor.from_numpy(x)
    given.stores_grad, given.name = True, "layer/x"
    y = layer.forward(True, given)
    gradients = autograd.backward(y, tensor.from_numpy(weight))
    return tensor.to_numpy(y), {p.name.split("/")[1]: tensor.to_numpy(g) for p, g in gradients}


def compare(torch: Any, layer: Layer, theirs: Any, parameters: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Output and all gradients equal; `parameters`: PyTorch's tensors by our names."""
    x = RNG.standard_normal((2, *shape))
    for name, parameter in parameters.items():
        value = tensor.to_numpy(layer.parameters[name])
        parameter.data = torch.from_numpy(value.reshape(tuple(parameter.shape)))
    foreign = torch.from_numpy(x.copy()).requires_grad_()
    output = theirs(foreign)
    weight = RNG.standard_normal(tuple(output.shape))
    (output * torch.from_numpy(weight)).sum().backward()
    y, gradients = tape(layer, x, weight)
    np.testing.assert_allclose(y, output.detach().numpy(), rtol=1e-10, atol=1e-10)
    assert set(gradients) == {"x", *parameters}
    for name, leaf in {"x": foreign, **parameters}.items():
        wanted = leaf.grad.numpy().reshape(gradients[name].shape)
        np.testing.assert_allclose(gradients[name], wanted, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, or a skip where it is not installed."""
    return skips.library("torch")


@pytest.mark.parametrize("shape", [(3,), (3, 5), (3, 5, 4)])
def test_batch_normalization_equals_torch(torch, shape):
    layer, _ = random_layer(layers.BatchNormalization, shape, momentum=0.3)
    cls = [torch.nn.BatchNorm1d, torch.nn.BatchNorm1d, torch.nn.BatchNorm2d][len(shape) - 1]
    theirs = cls(3, momentum=0.3, dtype=torch.float64)
    compare(torch, layer, theirs, {"gamma": theirs.weight, "beta": theirs.bias}, shape)
    for name in ("running_mean", "running_var"):
        np.testing.assert_allclose(state(layer, name), getattr(theirs, name).numpy(), rtol=1e-12)
    x = RNG.standard_normal((2, *shape))
    with torch.no_grad():
        wanted = theirs.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(run(layer, x), wanted, rtol=1e-12, atol=1e-12)


#: Lengths that leave nothing, leave something, would begin in the padding behind, or are shorter than the kernel.
CEILED = [
    (7, 3, 2, 0),
    (8, 3, 2, 1),
    (5, 2, 4, 0),
    (4, 2, 3, 1),
    (5, 3, 6, 1),
    (2, 3, 2, 0),
    (1, 2, 5, 1),
    (8, 5, 3, 2),
]


@pytest.mark.parametrize(("length", "kernel", "stride", "pad"), CEILED)
def test_poolings_rounded_up_equal_torch(torch, length, kernel, stride, pad):
    ours, theirs = {"kernel": kernel, "stride": stride, "pad": pad, "ceil_mode": True}, (kernel, stride, pad)
    for shape in ((3, length), (3, length, 6)):
        axes = len(shape) - 1
        layer, _ = random_layer(getattr(layers, f"MaxPooling{axes}D"), shape, **ours)
        compare(torch, layer, getattr(torch.nn, f"MaxPool{axes}d")(*theirs, ceil_mode=True), {}, shape)
        for counted in (True, False):
            layer, _ = random_layer(getattr(layers, f"AvgPooling{axes}D"), shape, **ours, count_pad=counted)
            pool = getattr(torch.nn, f"AvgPool{axes}d")(*theirs, True, counted)
            compare(torch, layer, pool, {}, shape)


TRANSPOSED_OPTIONS = [
    {"kernel": kernel, "stride": stride, "pad": pad, "output_padding": extra, "dilation": dilation, "groups": groups,
     "use_bias": bias}
    for (kernel, stride, pad, extra), (dilation, groups), bias in product(
        [((3, 2), 1, 0, 0), (3, (2, 3), (1, 2), (1, 2)), (1, 2, 0, 1)], [(1, 1), ((1, 2), 2)], [True, False]
    )
]  # fmt: skip


@pytest.mark.parametrize("options", TRANSPOSED_OPTIONS, ids=str)
def test_conv2d_transpose_equals_torch(torch, options):
    shape = (4, 3, 5)
    layer, _ = random_layer(layers.Conv2DTranspose, shape, nb_kernels=6, **options)
    theirs = torch.nn.ConvTranspose2d(
        4, 6, options["kernel"], options["stride"], options["pad"], options["output_padding"], options["groups"],
        options["use_bias"], options["dilation"], dtype=torch.float64,
    )  # fmt: skip
    compare(torch, layer, theirs, dict(theirs.named_parameters()), shape)


def test_conv1d_transpose_equals_torch(torch):
    layer, _ = random_layer(layers.Conv1DTranspose, (4, 5), nb_kernels=6, kernel=3, stride=2, dilation=2, groups=2)
    theirs = torch.nn.ConvTranspose1d(4, 6, 3, 2, 2, 1, 2, dilation=2, dtype=torch.float64)
    compare(torch, layer, theirs, dict(theirs.named_parameters()), (4, 5))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_normalization_equals_torch(torch, groups):
    for shape in ((6,), (6, 5), (6, 5, 4)):
        layer, _ = random_layer(layers.GroupNormalization, shape, groups=groups, epsilon=0.01)
        theirs = torch.nn.GroupNorm(groups, 6, 0.01, dtype=torch.float64)
        if groups == 6 and shape == (6,):  # a group of one number: PyTorch refuses what has no variance
            continue
        compare(torch, layer, theirs, {"gamma": theirs.weight, "beta": theirs.bias}, shape)
