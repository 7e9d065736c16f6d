"""Adapters of low rank beside a layer's weight: their options, and the tensors that a layer has for them.

Hu and others, "LoRA: Low-Rank Adaptation of Large Language Models" (arXiv 2106.09685); names, scales and first values
are those of the package peft.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import sqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from singa_lite.autograd.ops.low_rank import Adapter
from singa_lite.autograd.ops.quantized import dequantize
from singa_lite.common.checks import is_int, real
from singa_lite.common.errors import GraphError
from singa_lite.layer.initializer import HeUniform
from singa_lite.tensor import Shape, to_numpy

#: A `LayerBase`, whose module imports this one.
AnyLayer: TypeAlias = Any

#: Of an adapter's parameters, and of the state of its dropout.
LORA_NAMES = A, B = "lora_a", "lora_b"
RANDOM = "random"


def is_adapter(name: object) -> bool:
    """Whether a parameter of this name is one of an adapter's."""
    return isinstance(name, str) and name.rpartition("/")[2] in LORA_NAMES


class Lora(NamedTuple):
    """Options of an adapter. y += alpha / rank * expand(reduce(dropout(x)))."""

    rank: int
    alpha: float
    dropout: float = 0.0

    @property
    def scale(self) -> float:
        """The factor of what the adapter adds."""
        return self.alpha / self.rank


class LoraForm(NamedTuple):
    """The shapes of an adapter's parameters. inputs: elements of x that one of reduce(x) depends on; layout: of both,
    as for `add_parameter`.
    """

    a: Shape
    b: Shape
    inputs: int
    layout: str = ""

    @property
    def full_rank(self) -> int:
        """The rank beyond which an adapter adds nothing: the lower of the weight's extents, as a matrix."""
        return min(self.inputs, self.b[-1] if len(self.b) == 2 else self.b[0])


def checked_lora(where: str, rank: object, alpha: object, dropout: object) -> Lora:
    """The options of an adapter. ValueError names one that is out of its range."""
    if not is_int(rank) or not 1 <= rank < 2**31:
        raise ValueError(f"{where}: wanted rank to be an integer of at least 1, received {rank!r:.100}")
    factor, share = real(alpha), real(dropout)
    if factor is None or not np.isfinite(factor) or factor <= 0:
        raise ValueError(f"{where}: wanted alpha to be a number above 0, received {alpha!r:.100}")
    if share is None or not 0 <= share < 1:
        raise ValueError(f"{where}: wanted dropout to be a number from 0 to below 1, received {dropout!r:.100}")
    return Lora(int(rank), factor, share)


def set_lora(layer: AnyLayer, given: object) -> None:
    """Gives the layer an adapter, whose parameters alone train, or takes it away; its other parameters stay frozen.

    GraphError for a layer that takes none, or has another.
    """
    where = f"layer {layer.path!r}: lora"
    if given is not None and not (isinstance(given, tuple) and len(given) == len(Lora._fields)):
        raise ValueError(f"{where}: wanted (rank, alpha, dropout) or None, received {given!r:.100}")
    wanted, before = None if given is None else checked_lora(where, *given), layer.lora
    if wanted == before:
        return
    if wanted is not None and before is not None:
        raise GraphError(f"{where}: wanted a layer without an adapter, received one with {before}")
    object.__setattr__(layer, "_lora", wanted)
    try:
        if wanted is not None and layer.output_sample_shape is not None:
            with _in_setup(layer):
                add_tensors(layer)
    except BaseException:
        object.__setattr__(layer, "_lora", None)
        raise
    finally:
        if layer.lora is None:
            for table, name in ((layer._parameters, A), (layer._parameters, B), (layer._states, RANDOM)):
                table.pop(name, None)
    layer.note_change("lora")


@contextmanager
def _in_setup(layer: AnyLayer) -> Iterator[None]:
    """Lets a layer that is set up make tensors as within `setup`."""
    shape, context = layer.output_sample_shape, layer._placed()
    try:
        layer.output_sample_shape = None
        with context.device.first_values():
            yield
    finally:
        layer.output_sample_shape = shape


def add_tensors(layer: AnyLayer) -> None:
    """Called at the end of `setup`: makes the parameters of the layer's adapter, if it has one, and freezes others."""
    lora = layer.lora
    if lora is None:
        return
    form = layer.lora_form(lora.rank)
    if form is None:
        raise GraphError(
            f"layer {layer.path!r}: wanted a layer that takes an adapter, a Dense or a convolution of one group, "
            f"received {type(layer).__name__}"
        )
    for tensor in layer._parameters.values():
        tensor.stores_grad = False
    spread = HeUniform(gain=1 / sqrt(6))  # of peft, whose kaiming_uniform_(a=sqrt(5)) draws from ±1 / sqrt(inputs)
    layer.add_parameter(A, form.a, spread, (form.inputs, lora.rank), form.layout)
    layer.add_parameter(B, form.b, 0.0, layout=form.layout)
    if lora.dropout:
        layer.add_state(RANDOM, (3,), dtype=np.uint64).copy_from_numpy(layer.random_key(RANDOM))


def adapter_of(layer: AnyLayer, training: bool) -> Adapter | None:
    """The tensors of the layer's adapter, as `forward` applies them; None: it has none."""
    lora = layer.lora
    if lora is None:
        return None
    a, b = (layer._parameters[name] for name in LORA_NAMES)
    return Adapter(a, b, lora.scale, lora.dropout if training else 0.0, layer._states.get(RANDOM))


#: {path: (trainable, its adapter)} of a layer and those in it, and {name: stores_grad} of their parameters.
TrainingState: TypeAlias = tuple[dict[str, tuple[bool, Lora | None]], dict[str, bool]]


def training_state(layer: AnyLayer) -> TrainingState:
    """What of a layer, and of those in it, trains."""
    layers = {each.path: (each.trainable, each.lora) for each in layer.with_sublayers()}
    return layers, {name: tensor.stores_grad for name, tensor in layer.parameters.items()}


def restore_training_state(layer: AnyLayer, before: TrainingState) -> None:
    """Lets the same train of a layer that was set up anew, whose layers may have been made anew by that."""
    layers, tensors = before
    for each in layer.with_sublayers():
        vars(each)["trainable"], each.lora = layers[each.path]
    for name, tensor in layer.parameters.items():
        tensor.stores_grad = tensors[name]


def merge(layer: AnyLayer) -> None:
    """Adds to the layer's weight what its adapter adds. A quantised weight becomes a parameter that does not train."""
    a, b = (to_numpy(layer._parameters[name]) for name in LORA_NAMES)
    product = a @ b if a.ndim == 2 else b.reshape(len(b), -1) @ a.reshape(len(a), -1)
    quantised = layer._frozen.get("weight")
    if quantised is None:
        weight = layer._parameters["weight"]
        values = to_numpy(weight)
    else:
        values = to_numpy(dequantize(quantised, format=layer.weight_format, dtype=layer.dtype)).T
        layer.become_float()
        with _in_setup(layer):
            weight = layer.add_parameter("weight", values.shape, 0.0)
        weight.stores_grad = False
    weight.copy_from_numpy(values + product.reshape(values.shape) * values.dtype.type(layer.lora.scale))
