"""Graphs of cuDNN that the project does not use yet, drawn to see whether a GPU has plans for them."""

from __future__ import annotations

from math import prod
from typing import Any

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


def batch_norm(cudnn: Any, graph: Any, shape: tuple[int, ...] = IMAGES[0]) -> None:
    """Training: y, the batch's mean and inverse deviation, the running statistics."""
    per_channel = (1, shape[1], 1, 1)
    x = graph.tensor(name="x", uid=1, dim=list(shape), stride=channels_last(shape))
    scale, bias, mean, variance = (_floats(cudnn, graph, name, per_channel) for name in ("scale", "bias", "m", "v"))
    results = graph.batchnorm(
        input=x,
        scale=scale,
        bias=bias,
        in_running_mean=mean,
        in_running_var=variance,
        epsilon=_number(cudnn, graph, "epsilon"),
        momentum=_number(cudnn, graph, "momentum"),
    )
    _outputs(cudnn, results, [shape] + [per_channel] * 4, channels_last)


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
    one = [1, 1, 1, 1]
    return graph.tensor(name=name, dim=one, stride=one, data_type=cudnn.data_type.FLOAT, is_pass_by_value=True)


def _outputs(cudnn: Any, results: Any, shapes: list[tuple[int, ...]], strides: Any) -> None:
    """The first of the graph's type, the others float32."""
    for index, (result, shape) in enumerate(zip(results, shapes, strict=True)):
        result.set_output(True).set_dim(list(shape)).set_stride(strides(shape))
        if index:
            result.set_data_type(cudnn.data_type.FLOAT)
