"""LayerBase: what a layer has of itself: name, traits, place, layers within it, parameters and state."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from singa_lite.common.array_types import Array, DType
from singa_lite.common.checks import flag
from singa_lite.common.errors import GraphError
from singa_lite.common.table import Table
from singa_lite.device import Device
from singa_lite.layer import initializer, names, stored_parameters
from singa_lite.layer.constants import shared_constant
from singa_lite.layer.lora import LORA_NAMES
from singa_lite.layer.sample_shape import SampleShape
from singa_lite.layer.traits import LayerTraits
from singa_lite.tensor import Shape, Tensor, full, to_numpy
from singa_lite.tensor.frozen import freeze


class Context(NamedTuple):
    """What a net gives its layers: where their tensors live, of which dtype, and the seed of their numbers.

    parameter_dtype: "bfloat16" for matrices and filters that are stored so; None: in the net's dtype.
    """

    device: Device
    dtype: DType
    seed: int
    parameter_dtype: str | None = None


class LayerBase(LayerTraits):
    """A layer's name, traits, parameters and state, and the layers within it. Base of `Layer`.

    name: as for `Layer`. Within a layer that holds it the path is "<path of that layer>/<name>", else the name alone;
    tensors, random numbers and snapshots are found by the path.
    """

    _name: str
    #: What was set after the constructor: options by name, "trainable", "shared_with", "lora".
    set_later: frozenset[str] = frozenset()

    def __init__(self, name: str) -> None:
        self.name = name
        self._holder: LayerBase | None = None
        self._layers: dict[str, Any] = {}
        self._made_in_setup: list[str] = []
        self._prepared_for: tuple[Shape, ...] = ()
        self.shared_with: Any = None
        self.output_sample_shape: SampleShape | None = None
        self._parameters: dict[str, Tensor] = {}
        self._states: dict[str, Tensor] = {}
        self._constants: dict[str, Tensor] = {}
        self._frozen: dict[str, Tensor] = {}
        self.context: Context | None = None
        vars(self)["trainable"] = True

    @property
    def trainable(self) -> bool:
        """Whether the parameters of this layer and of layers within it train; setting it sets `stores_grad` of each. It
        may be set before or after the layer is in a net, and whether a step was recorded or not; compile's optimizer
        needs nothing for it. A parameter that layers share is one. Unlike layers of `compile(freeze=)`, it runs as in
        training all the same: it drops out, and its statistics move.
        """
        return bool(vars(self)["trainable"])

    @trainable.setter
    def trainable(self, given: bool) -> None:
        self.note_set("trainable")
        wanted = flag(f"layer {self.path!r}: trainable", given)
        vars(self)["trainable"] = wanted
        for name, tensor in self._parameters.items():
            tensor.stores_grad = wanted and (self._lora is None or name in LORA_NAMES)
        for layer in self._layers.values():
            layer.trainable = wanted

    def note_change(self, option: str) -> None:
        """Notes that an option has another value, for recorded steps and for the net's configuration."""
        super().note_change(option)
        self.note_set(option)

    def note_set(self, name: str) -> None:
        """Notes what was set after the constructor, which the net's configuration is to have."""
        if self._given.is_complete:
            object.__setattr__(self, "set_later", self.set_later | {name})

    @property
    def name(self) -> str:
        """The name that the layer was made with."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if "_name" in vars(self):
            raise GraphError(f"layer {self._name!r}: wanted the name that it was made with, received {name!r}")
        names.check_layer(type(self), name)
        self._name = name

    @property
    def path(self) -> str:
        """ "<layer>/<layer within it>/<name>", the name alone for a layer that no other holds."""
        return "/".join(reversed([layer._name for layer in self._holders()]))

    def _holders(self) -> Iterator[LayerBase]:
        """This layer, the one that holds it, and so on."""
        layer: LayerBase | None = self
        while layer is not None:
            yield layer
            layer = layer._holder

    def with_sublayers(self) -> Iterator[Self]:
        """This layer and all that it holds, at any depth, each before those in it, in the order of adding."""
        yield self
        for layer in self._layers.values():
            yield from layer.with_sublayers()

    def owners(self) -> Iterator[Any]:
        """The layers of a net, or of none, that hold what this layer and those in it share the parameters of."""
        for each in self.with_sublayers():
            if each.shared_with is not None:
                *_, outermost = each.shared_with._holders()
                if outermost is not self:
                    yield outermost

    @property
    def parameters(self) -> Table[Tensor]:
        """By name, without the layer's; those of a layer within it as "<its name>/weight".

        `add_parameter` makes them, their values change by `copy_from_numpy`.
        """
        inner = {f"{layer.name}/{key}": t for layer in self._layers.values() for key, t in layer.parameters.items()}
        return self._table("parameters", "add_parameter", self._parameters | inner if inner else self._parameters)

    @parameters.setter
    def parameters(self, given: object) -> None:
        self._refuse("parameters", "add_parameter() in", given)

    @property
    def states(self) -> Table[Tensor]:
        """State by name, as `parameters`. `add_state` makes it, its values change by `copy_from_numpy`."""
        inner = {f"{layer.name}/{key}": t for layer in self._layers.values() for key, t in layer.states.items()}
        return self._table("state", "add_state", self._states | inner if inner else self._states)

    @states.setter
    def states(self, given: object) -> None:
        self._refuse("states", "add_state() in", given)

    @property
    def frozen(self) -> Table[Tensor]:
        """Quantised weights by name, as `parameters`: bytes that nobody writes, and which `set_frozen` sets."""
        inner = {f"{layer.name}/{key}": t for layer in self._layers.values() for key, t in layer.frozen.items()}
        return self._table("frozen tensors", "add_frozen", self._frozen | inner)

    def _table(self, what: str, maker: str, tensors: dict[str, Tensor]) -> Table[Tensor]:
        why_empty = (
            ""
            if self.context is not None
            # one that is only an attribute of another layer is in no net
            else (
                "wanted a layer that net.add() has set up (a layer that another holds is given to it by "
                "self.add_layer(...), set up by self.set_up() and run by self.run())"
            )
        )
        how = f"{maker}() in setup(), or copy_from_numpy() of one of them"
        return Table(tensors, f"{what} of layer {self.path!r}", how, why_empty)

    def _refuse(self, what: str, how: str, given: object) -> None:
        raise GraphError(f"layer {self.path!r}: wanted {what} made by {how} setup(), received {given!r:.100}")

    @property
    def own_parameters(self) -> Mapping[str, Tensor]:
        """Those that the layer has itself, by name, without those of layers that it holds."""
        return MappingProxyType(self._parameters)

    def add_parameter(
        self,
        name: str,
        shape: Sequence[int],
        init: initializer.Spec,
        fans: tuple[int, int] | None = None,
        layout: str = "",
    ) -> Tensor:
        """For `setup`: a trainable tensor called "<path>/<name>".

        init: an Initializer, its name ("he_normal"), or a number; fans: (fan_in, fan_out) for those that use them.
        layout: "filters" for those of convolutions, which the device lays out as its kernels like best.
        GraphError outside `setup` and for a name that is taken, ValueError for one that a snapshot cannot hold.
        """
        context = self._check_new("add_parameter", name)
        tensor = self._borrowed("_parameters", name, tuple(shape))
        if tensor is None:
            dtype = stored_parameters.dtype_of(len(shape), context.parameter_dtype, context.dtype)
            tensor = context.device.empty(shape, dtype, layout)
            tensor.name = f"{self.path}/{name}"
            tensor.stores_grad = True
            stored_parameters.fill(init, tensor, self.random_key(name), fans or (0, 0))
        self._parameters[name] = tensor
        return tensor

    def add_state(self, name: str, shape: Sequence[int], value: float = 0.0, dtype: DTypeLike | None = None) -> Tensor:
        """For `setup`: a tensor called "<path>/<name>" that is kept and saved but not trained.

        GraphError outside `setup` and for a name that is taken, ValueError for one that a snapshot cannot hold.
        """
        context = self._check_new("add_state", name)
        tensor = full(shape, value, dtype or context.dtype, context.device)
        tensor.name = f"{self.path}/{name}"
        self._states[name] = tensor
        return tensor

    @property
    def constants(self) -> Mapping[str, Tensor]:
        """What `add_constant` made, by name, without that of layers that it holds."""
        return MappingProxyType(self._constants)

    def add_constant(self, name: str, values: NDArray[Any]) -> Tensor:
        """For `setup` and `options_changed`: a tensor of values that follow from options. It is neither trained nor
        saved, and layers of one device share it where their values are equal.

        values: floats become those of the net's dtype. Errors as for `add_state`.
        """
        context = self._placed() if name in self._constants else self._check_new("add_constant", name)
        dtype = context.dtype if values.dtype.kind == "f" else values.dtype
        tensor = shared_constant(context.device, values.astype(dtype))
        tensor.name = tensor.name or f"{self.path}/{name}"
        self._constants[name] = tensor
        return tensor

    def _move_tensors(self, device: Device, other: LayerBase | None) -> None:
        """Moves its own tensors to another device. other: the layer whose parameters it has, which has moved."""
        for table, theirs in ((self._parameters, "_parameters"), (self._frozen, "_frozen")):
            for name, tensor in table.items():
                table[name] = tensor.to_device(device) if other is None else getattr(other, theirs)[name]
        self._states = {name: tensor.to_device(device) for name, tensor in self._states.items()}
        self._constants = {name: shared_constant(device, to_numpy(t)) for name, t in self._constants.items()}

    def add_frozen(self, name: str, shape: Sequence[int]) -> Tensor:
        """For `setup`: a tensor called "<path>/<name>" of bytes, uint8, that nobody writes, as quantised weights are.

        It has none until `set_frozen` says which; plans need but its shape. Of a layer that shares another's parameters
        it is the other's. GraphError outside `setup` and for a name that is taken.
        """
        context = self._check_new("add_frozen", name)
        tensor = self._borrowed("_frozen", name, tuple(shape))
        if tensor is None:
            tensor = context.device.frozen(shape)
            tensor.name = f"{self.path}/{name}"
        self._frozen[name] = tensor
        return tensor

    def set_frozen(self, name: str, array: Array) -> None:
        """Lets a frozen tensor of this layer, or of one within it, lie over these bytes. On a CPU nothing is copied.

        array: uint8 of the tensor's shape without gaps, perhaps of a mapped file. KeyError for an unknown name,
        TypeError or ShapeError for another array.
        """
        freeze(f"layer {self.path!r}: set_frozen({name!r:.100})", self.frozen[name], array)
        super().note_change(name)

    def _borrowed(self, table: str, name: str, shape: Shape) -> Tensor | None:
        """Another layer's tensor of this table that stands for a new one; None where the layer makes its own."""
        return None

    def _check_new(self, call: str, name: str) -> Context:
        """Raise unless a parameter or state of this name may be made now."""
        where = f"layer {self.path!r}: {call}({name!r:.100})"
        wanted = names.problem_of_tensor(name)
        if wanted is not None:
            raise ValueError(f"{where}: wanted {wanted} as its name, received {name!r:.100}")
        context = self._placed()
        if self.output_sample_shape is not None:
            raise GraphError(f"{where}: wanted the call within setup(), received it afterwards")
        self._check_free(where, name)
        return context

    def _check_free(self, where: str, name: str) -> None:
        """GraphError for the name of a parameter, a state or a layer of this layer."""
        tables = {"layer": self._layers, "state": self._states, "parameter": self._parameters, "frozen": self._frozen}
        for kind, table in {**tables, "constant": self._constants}.items():
            if name in table:
                raise GraphError(f"{where}: wanted a name that is not taken, received that of a {kind} that is there")

    @property
    def dtype(self) -> DType:
        """Of inputs and outputs, once the layer is in a net."""
        return self._placed().dtype

    def random_key(self, name: str) -> NDArray[np.uint64]:
        """uint64 (3,): seed of the net, stream of "<path>/<name>", counter 0. Does not depend on other layers."""
        stream = zlib.crc32(f"{self.path}/{name}".encode())
        return np.array([self._placed().seed, stream, 0], np.uint64)

    def get_output_sample_shape(self) -> SampleShape:
        """The sample shape of the output (a list for several), once the layer is in a net and its inputs known."""
        if self.output_sample_shape is None:
            raise GraphError(f"layer {self.path!r}: wanted a layer whose input shapes are known, add it to a net")
        return self.output_sample_shape

    @property
    def output_sample_shapes(self) -> list[Shape]:
        """The same as a list, whose length is the number of outputs; [] before they are known."""
        shape = self.output_sample_shape
        return shape if isinstance(shape, list) else [] if shape is None else [shape]

    def param_names(self) -> list[str]:
        """Full names of the parameters, "<path>/weight" and so on, once the layer is in a net."""
        return [tensor.name for tensor in self.param_values()]

    def param_values(self) -> list[Tensor]:
        """The parameters, in the order of `param_names`."""
        self.get_output_sample_shape()
        return list(self.parameters.values())

    def _placed(self) -> Context:
        if self.context is None:
            raise GraphError(f"layer {self.path!r}: wanted a layer that is in a net")
        return self.context

    def check_usable(self) -> None:
        """GraphError while values are missing that somebody must bring: bytes of frozen tensors, or what a subclass
        works with. Asked before a batch, until all layers of a net are usable.
        """
        for name, tensor in self.frozen.items():
            if tensor.block.memory is None and not tensor.device.is_abstract:
                raise GraphError(
                    f"layer {self.path!r}: wanted the bytes of {name!r}, received none: call set_frozen({name!r}, "
                    "array) before the first batch"
                )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r} -> {self.output_sample_shape}>"

    def summary_note(self) -> str:
        """The options that `summary` shows behind the class, such as "3 x 3, stride 1, pad 0, relu"."""
        return ""
