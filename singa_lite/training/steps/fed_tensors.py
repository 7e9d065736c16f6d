"""Tensors that hold a batch: images lie as the layer that is fed reads them, so that no call has to convert them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from singa_lite.common.array_types import DType, Shaped
from singa_lite.data.loading.batch import as_tensors, untaped
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.tensor import Shape, Tensor, as_tensor
from singa_lite.training.steps.recorded_steps import Feeds, StepForm

#: {"input" or "target": {layer: (shape, dtype)}} of a batch that need not be there.
Forms = Mapping[str, Mapping[str, tuple[Shape, DType]]]


def make_feeds(layers: LayerGraph, make: Callable[..., Tensor], forms: Forms) -> dict[str, dict[str, Tensor]]:
    """Tensors that batches of these forms are copied into. make: of the layers' device."""
    held = layers.device.runtime.feed_layout

    def layout(kind: str, name: str, shape: Shape) -> str:
        if held and len(shape) == 4:
            return held
        return _feed_layout(layers, name, shape) if kind == "input" else ""

    return {
        kind: {name: make(shape, dtype, layout(kind, name, shape)) for name, (shape, dtype) in given.items()}
        for kind, given in forms.items()
    }


def forms_of(feeds: Feeds) -> Forms:
    """The shapes and dtypes of a batch."""
    return {kind: {name: (a.shape, _dtype(a)) for name, a in arrays.items()} for kind, arrays in feeds.items()}


def form(forms: Forms) -> StepForm:
    """As `form_of` a batch says it."""
    return tuple(
        (kind, name, tuple(shape), str(np.dtype(dtype)))
        for kind, given in forms.items()
        for name, (shape, dtype) in given.items()
    )


def filled(layers: LayerGraph, feeds: Feeds) -> dict[str, dict[str, Tensor]]:
    """The batch as tensors apart from any tape, for operations that are done at once."""
    return {
        kind: untaped(inputs(layers, arrays) if kind == "input" else as_tensors(arrays, layers.device))
        for kind, arrays in feeds.items()
    }


def inputs(layers: LayerGraph, arrays: Mapping[str, Shaped]) -> dict[str, Tensor]:
    """Each array as a tensor that lies as its layer reads it; a tensor stays as it lies, and on its tape."""
    return {name: _input(layers, name, array) for name, array in arrays.items()}


def _input(layers: LayerGraph, name: str, array: Shaped) -> Tensor:
    layout = _feed_layout(layers, name, array.shape)
    if not layout or isinstance(array, Tensor):
        return as_tensor(array, layers.device)
    tensor: Tensor = layers.device.empty(array.shape, _dtype(array), layout)
    layers.device.feed(tensor, array)
    return tensor


def _feed_layout(layers: LayerGraph, name: str, shape: Shape) -> str:
    """The kind of tensor that the layer wants to be fed with, for `Device.empty`; "" for C order."""
    return layers.layers[name].feed_layout if len(shape) == 4 else ""


def _dtype(array: Shaped) -> DType:
    return np.dtype(str(array.dtype).removeprefix("torch."))
