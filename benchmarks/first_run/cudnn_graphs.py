"""Graphs of cuDNN that the project does not use yet, drawn to see whether a GPU has plans for them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

#: Shapes of ResNet-50's normalizations at batch 32, first and last; of rows and heads as transformers have them.
IMAGES = ((32, 64, 112, 112), (32, 2048, 7, 7))
ROWS = (4096, 1024)
HEADS = (8, 16, 512, 64)  # batch, heads, positions, width of a head


def channels_last(shape: tuple[int, ...]) -> list[int]:
    """Strides of (n, c, h, w) with channels innermost."""
    _, c, h, w = shape
    return [c * h * w, 1, c * w, c]


def c_order(shape: tuple[int, ...]) -> list[int]:
    """Strides of C order."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


#: Tensors of batch_norm: inputs have uids 1 to 5, numbers of the host 6 and 7, results 8 to 12.
_INPUTS, _NUMBERS = ("x", "scale", "bias", "m", "v"), {"epsilon": 1e-5, "momentum": 0.1}


def batch_norm(cudnn: Any, graph: Any, shape: tuple[int, ...] = IMAGES[0]) -> None:
    """Training: y, the batch's mean and inverse deviation, the running statistics."""
    per_channel = (1, shape[1], 1, 1)
    x = graph.tensor(name="x", uid=1, dim=list(shape), stride=channels_last(shape))
    scale, bias, mean, variance = (_floats(cudnn, graph, name, per_channel) for name in _INPUTS[1:])
    results = graph.batchnorm(
        input=x,
        scale=scale,
        bias=bias,
        in_running_mean=mean,
        in_running_var=variance,
        epsilon=_number(cudnn, graph, "epsilon"),
        momentum=_number(cudnn, graph, "momentum"),
    )
    for uid, tensor in enumerate((scale, bias, mean, variance), 2):
        tensor.set_uid(uid)
    _outputs(cudnn, results, [shape] + [per_channel] * 4, channels_last)
    for uid, tensor in enumerate(results, 8):
        tensor.set_uid(uid)


def timed(machine: Any, handle: Any, plan: Any, shape: tuple[int, ...]) -> float:
    """Microseconds of a planned batch_norm over numbers of 1."""
    import cupy

    whole, channels = prod(shape), shape[1]
    with machine.on.runtime.here():
        uids = (1, 2, 3, 4, 5, 8, 9, 10, 11, 12)
        arrays = [cupy.ones(whole if uid in (1, 8) else channels, np.float32) for uid in uids]
        workspace = cupy.empty(max(plan.workspace_bytes, 1), np.uint8)
        numbers = {uid: np.array(value, np.float32) for uid, value in zip((6, 7), _NUMBERS.values(), strict=True)}
        named = dict(zip(uids, (a.data.ptr for a in arrays), strict=True))
        named |= {uid: number.ctypes.data for uid, number in numbers.items()}
        launch = handle.bind(plan.graph, named, workspace.data.ptr)
        return float(machine.captured_microseconds(launch, 24))


def layer_norm(cudnn: Any, graph: Any, shape: tuple[int, int] = ROWS) -> None:
    """Training: y, each row's mean and inverse deviation."""
    n, features = shape
    whole, row, one = (n, features, 1, 1), (1, features, 1, 1), (n, 1, 1, 1)
    results = graph.layernorm(
        norm_forward_phase=cudnn.norm_forward_phase.TRAINING,
        input=graph.tensor(name="x", uid=1, dim=list(whole), stride=channels_last(whole)),
        scale=_floats(cudnn, graph, "scale", row),
        bias=_floats(cudnn, graph, "bias", row),
        epsilon=_number(cudnn, graph, "epsilon"),
    )
    _outputs(cudnn, results, [whole, one, one], channels_last)


def attention(cudnn: Any, graph: Any, shape: tuple[int, ...] = HEADS) -> None:
    """softmax(q k^T / 8, causal) v, with the statistics that its derivative wants."""
    q, k, v = (graph.tensor(name=name, dim=list(shape), stride=c_order(shape)) for name in "qkv")
    results = graph.sdpa(
        name="sdpa", q=q, k=k, v=v, generate_stats=True, attn_scale=shape[-1] ** -0.5, use_causal_mask=True
    )
    _outputs(cudnn, results, [shape, (*shape[:-1], 1)], c_order)


def _floats(cudnn: Any, graph: Any, name: str, shape: tuple[int, ...]) -> Any:
    return graph.tensor(name=name, dim=list(shape), stride=channels_last(shape), data_type=cudnn.data_type.FLOAT)


def _number(cudnn: Any, graph: Any, name: str) -> Any:
    """A float of the host."""
    one, uid = [1, 1, 1, 1], 6 + list(_NUMBERS).index(name)
    return graph.tensor(name=name, uid=uid, dim=one, stride=one, data_type=cudnn.data_type.FLOAT, is_pass_by_value=True)


def _outputs(cudnn: Any, results: Any, shapes: list[tuple[int, ...]], strides: Any) -> None:
    """The first of the graph's type, the others float32."""
    for index, (result, shape) in enumerate(zip(results, shapes, strict=True)):
        result.set_output(True).set_dim(list(shape)).set_stride(strides(shape))
        if index:
            result.set_data_type(cudnn.data_type.FLOAT)
