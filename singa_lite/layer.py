"""Layer: parameters, state, setup and forward; backward comes from the tape."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import islice
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from singa_lite import initializer, names
from singa_lite.array_types import DType
from singa_lite.device import Device
from singa_lite.errors import GraphError, ShapeError
from singa_lite.sample_shape import InputShape as InputShape
from singa_lite.sample_shape import SampleShape as SampleShape
from singa_lite.sample_shape import checked_inputs, checked_output
from singa_lite.table import Table
from singa_lite.tensor import Shape, Tensor, from_numpy, full

#: One value, or a list or a dict of several, or None. Which of them a user gets depends on the net that the script has
#: built; a union would make the script ask at each use.
OneOrMore: TypeAlias = Any
#: What a layer gives: a list of tensors where it has several outputs.
LayerOutput: TypeAlias = Tensor | list[Tensor]


class Context(NamedTuple):
    """What a net gives its layers: where their tensors live, of which dtype, and the seed of their numbers."""

    device: Device
    dtype: DType
    seed: int


class Layer:
    """Base of all layers. A subclass gives `setup` and `forward`:

    setup(*shapes) gets the sample shapes of the inputs (no batch axis), makes parameters with `add_parameter` and
    state with `add_state`, and returns the output's sample shape, or a list of them for several outputs.
    forward(training, *inputs) composes operations of `autograd`; it returns a Tensor, or a list of them.

    name: unique in its net, one that every snapshot format can hold (`names`); it stays as it is. input_sample_shape:
    the sample shape of the input, for a layer that has no source to take it from (a list of shapes for several inputs).

    gives: "softmax" or "sigmoid" if the output is that of something, for losses that would take it a second time.
    keeps_values: whether the output has the input's elements, no others, under whatever shape.
    """

    _name: str
    setup: Callable[..., SampleShape]
    forward: Callable[..., Tensor | list[Tensor] | tuple[Tensor, ...]]

    gives: str = ""
    keeps_values: bool = False
    #: {name that suggests another layer: what to use in its place}.
    misnomers: ClassVar[Mapping[str, str]] = {}
    #: Whether training mixes the samples of a batch, as their mean does: such a layer cannot train on micro-batches.
    batch_statistics: ClassVar[bool] = False
    #: The kind of tensor as which a batch that feeds the layer is held: "image" is as convolutions read it, "" C order.
    feed_layout: ClassVar[str] = ""

    def __init__(self, name: str, *, input_sample_shape: InputShape | None = None) -> None:
        self.name = name
        instead = self.misnomers.get(name.lower().rstrip("_0123456789"))
        if instead is not None:
            raise ValueError(
                f"layer name: wanted one of what {type(self).__name__} does, received {name!r}: {instead}; if that is "
                "but its name, let it be another"
            )
        self.input_sample_shapes = checked_inputs(name, input_sample_shape)
        self.output_sample_shape: SampleShape | None = None
        self._parameters: dict[str, Tensor] = {}
        self._states: dict[str, Tensor] = {}
        self.context: Context | None = None
        self.shared_with: Layer | None = None

    @property
    def name(self) -> str:
        """The name that the layer was made with. Parameters, random numbers and snapshots are found by it."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if "_name" in vars(self):
            raise GraphError(f"layer {self._name!r}: wanted the name that it was made with, received {name!r}")
        wanted = names.problem_of_layer(name)
        if wanted is not None:
            kind = type(self)
            shown = ", ".join(islice(signature(kind).parameters, 3))
            raise ValueError(
                f"layer name: wanted {wanted}, received {name!r:.100}; the name comes first: {kind.__name__}({shown})"
            )
        self._name = name

    @property
    def parameters(self) -> Table[Tensor]:
        """By name, without the layer's. `add_parameter` makes them, their values change by `copy_from_numpy`."""
        how = "add_parameter() in setup(), or copy_from_numpy() of one of them"
        return Table(self._parameters, f"parameters of layer {self._name!r}", how, self._without)

    @parameters.setter
    def parameters(self, given: object) -> None:
        self._refuse("parameters", "add_parameter()", given)

    @property
    def states(self) -> Table[Tensor]:
        """State by name, without the layer's. `add_state` makes it, its values change by `copy_from_numpy`."""
        how = "add_state() in setup(), or copy_from_numpy() of one of them"
        return Table(self._states, f"state of layer {self._name!r}", how, self._without)

    @states.setter
    def states(self, given: object) -> None:
        self._refuse("states", "add_state()", given)

    def _refuse(self, what: str, how: str, given: object) -> None:
        raise GraphError(f"layer {self.name!r}: wanted {what} made by {how} in setup(), received {given!r:.100}")

    @property
    def _without(self) -> str:
        """Why there are no parameters yet, for messages; "" for a layer in a net. One inside another is in none."""
        if self.context is not None:
            return ""
        return (
            "wanted a layer that net.add() has set up (a layer cannot hold others yet: add each to the net, or give "
            "the outer one parameters of its own by add_parameter() and compose operations of autograd)"
        )

    def share_parameters(self, other: Layer) -> Layer:
        """Use the parameters of `other`, a layer of the same kind and shapes, in the place of own ones.

        The parameters keep the other's names; their gradient is the sum over both layers and is yielded once.
        `other` must be in the net before this layer is added. Returns this layer.
        """
        if self.context is not None:
            raise GraphError(f"layer {self.name!r}: wanted share_parameters() before the layer is in a net")
        if not isinstance(other, Layer) or other is self:
            raise TypeError(f"layer {self.name!r}: wanted to share the parameters of another layer, received {other!r}")
        self.shared_with = other
        return self

    def prepare(self, shapes: Sequence[Shape], context: Context) -> None:
        """Called by the net, once the sample shapes of the inputs are known: makes parameters and state."""
        if self.shared_with is not None and self.shared_with.context is None:
            raise GraphError(
                f"layer {self.name!r} shares the parameters of {self.shared_with.name!r}, which is in no net yet"
            )
        self.context = context
        try:
            self.output_sample_shape = checked_output(self.name, self.setup(*shapes))
            self._check_shared()
        except BaseException:
            self.reset()
            raise

    def reset(self) -> None:
        """Back to before `prepare`: no parameters, no state, no shape."""
        self._parameters, self._states = {}, {}
        self.context = self.output_sample_shape = None

    def add_parameter(
        self,
        name: str,
        shape: Sequence[int],
        init: initializer.Spec,
        fans: tuple[int, int] | None = None,
        layout: str = "",
    ) -> Tensor:
        """For `setup`: a trainable tensor called "<layer>/<name>".

        init: an Initializer, its name ("he_normal"), or a number; fans: (fan_in, fan_out) for those that use them.
        layout: "filters" for those of convolutions, which the device lays out as its kernels like best.
        GraphError outside `setup` and for a name that is taken, ValueError for one that a snapshot cannot hold.
        """
        self._check_new("add_parameter", name)
        if self.shared_with is not None:
            tensor = self._shared(name, tuple(shape))
        else:
            context = self._placed()
            tensor = context.device.empty(shape, context.dtype, layout)
            tensor.name = f"{self.name}/{name}"
            tensor.stores_grad = True
            key = from_numpy(self.random_key(name), context.device)
            initializer.get(init)(tensor, key, *(fans or (0, 0)))
        self._parameters[name] = tensor
        return tensor

    def add_state(self, name: str, shape: Sequence[int], value: float = 0.0, dtype: DTypeLike | None = None) -> Tensor:
        """For `setup`: a tensor called "<layer>/<name>" that is kept and saved but not trained.

        GraphError outside `setup` and for a name that is taken, ValueError for one that a snapshot cannot hold.
        """
        self._check_new("add_state", name)
        context = self._placed()
        tensor = full(shape, value, dtype or context.dtype, context.device)
        tensor.name = f"{self.name}/{name}"
        self._states[name] = tensor
        return tensor

    def _check_new(self, call: str, name: str) -> None:
        """Raise unless a parameter or state of this name may be made now."""
        where = f"layer {self.name!r}: {call}({name!r:.100})"
        wanted = names.problem_of_tensor(name)
        if wanted is not None:
            raise ValueError(f"{where}: wanted {wanted} as its name, received {name!r:.100}")
        self._placed()
        if self.output_sample_shape is not None:
            raise GraphError(f"{where}: wanted the call within setup(), received it afterwards")
        for kind, table in (("parameter", self._parameters), ("state", self._states)):
            if name in table:
                raise GraphError(f"{where}: wanted a name that is not taken, received that of a {kind} that is there")

    @property
    def dtype(self) -> DType:
        """Of inputs and outputs, once the layer is in a net."""
        return self._placed().dtype

    def random_key(self, name: str) -> NDArray[np.uint64]:
        """uint64 (3,): seed of the net, stream of "<layer>/<name>", counter 0. Does not depend on other layers."""
        stream = zlib.crc32(f"{self.name}/{name}".encode())
        return np.array([self._placed().seed, stream, 0], np.uint64)

    def get_output_sample_shape(self) -> SampleShape:
        """The sample shape of the output (a list for several), once the layer is in a net and its inputs known."""
        if self.output_sample_shape is None:
            raise GraphError(f"layer {self.name!r}: wanted a layer whose input shapes are known, add it to a net")
        return self.output_sample_shape

    def param_names(self) -> list[str]:
        """Full names of the parameters, "<layer>/weight" and so on, once the layer is in a net."""
        self.get_output_sample_shape()
        return [tensor.name for tensor in self.parameters.values()]

    def param_values(self) -> list[Tensor]:
        """The parameters, in the order of `param_names`."""
        self.get_output_sample_shape()
        return list(self.parameters.values())

    def to_device(self, device: Device) -> None:
        """Move parameters and state. device: a Device."""
        context = self._placed()
        if self.shared_with is not None:  # it may come after this layer, and must have moved by then
            self.shared_with.to_device(device)
        for table in (self._parameters, self._states):
            for name, tensor in table.items():
                if self.shared_with is not None and table is self._parameters:
                    table[name] = self.shared_with.parameters[name]
                else:
                    table[name] = tensor.to_device(device)
        self.context = context._replace(device=device)

    def _placed(self) -> Context:
        if self.context is None:
            raise GraphError(f"layer {self.name!r}: wanted a layer that is in a net")
        return self.context

    def _shared(self, name: str, shape: Shape) -> Tensor:
        other = self.shared_with
        if other is None or name not in other.parameters or other.parameters[name].shape != shape:
            theirs = {} if other is None else {n: t.shape for n, t in other.parameters.items()}
            raise ShapeError(f"layer {self.name!r}: wanted to share {name!r} of shape {shape}, received {theirs}")
        return other.parameters[name]

    def _check_shared(self) -> None:
        other = self.shared_with
        if other is not None and self.parameters.keys() != other.parameters.keys():
            raise ShapeError(
                f"layer {self.name!r}: wanted to share {sorted(self.parameters)}, "
                f"but {other.name!r} has {sorted(other.parameters)}"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} -> {self.output_sample_shape}>"


class Node(NamedTuple):
    """A layer and where its inputs come from: (layer name, number of the output)."""

    layer: Layer
    sources: tuple[tuple[str, int], ...]
