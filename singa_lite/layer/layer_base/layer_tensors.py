"""LayerTensors: a layer's name, its place within the layers that hold it, and the tensors of its own."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from singa_lite.common.array_types import DType
from singa_lite.common.checks import flag
from singa_lite.common.described import Described
from singa_lite.common.errors import GraphError
from singa_lite.common.table import Table
from singa_lite.device import Device
from singa_lite.layer import initializer
from singa_lite.layer.layer_base import names
from singa_lite.layer.layer_base.sample_shape import SampleShape
from singa_lite.tensor import Shape, Tensor, full


class Context(NamedTuple):
    """What a net gives its layers: where their tensors live, of which dtype, and the seed of their numbers."""

    device: Device
    dtype: DType
    seed: int


class LayerTensors(Described):
    """A layer's name and path, and its own parameters and state. Base of `Layer`.

    name: as for `Layer`. Within a layer that holds it the path is "<path of that layer>/<name>", else the name alone;
    tensors, random numbers and snapshots are found by the path.
    """

    _name: str

    def __init__(self, name: str) -> None:
        self.name = name
        self._holder: LayerTensors | None = None
        self.output_sample_shape: SampleShape | None = None
        self._parameters: dict[str, Tensor] = {}
        self._states: dict[str, Tensor] = {}
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
        wanted = flag(f"layer {self.path!r}: trainable", given)
        vars(self)["trainable"] = wanted
        for tensor in self._parameters.values():
            tensor.stores_grad = wanted
        for layer in self._within():
            layer.trainable = wanted

    @property
    def name(self) -> str:
        """The name that the layer was made with."""
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
    def path(self) -> str:
        """ "<layer>/<layer within it>/<name>", the name alone for a layer that no other holds."""
        names, holder = [self._name], self._holder
        while holder is not None:
            names.append(holder._name)
            holder = holder._holder
        return "/".join(reversed(names))

    def _within(self) -> Iterable[LayerTensors]:
        """The layers that this one holds."""
        return ()

    @property
    def parameters(self) -> Table[Tensor]:
        """By name, without the layer's; those of a layer within it as "<its name>/weight".

        `add_parameter` makes them, their values change by `copy_from_numpy`.
        """
        how = "add_parameter() in setup(), or copy_from_numpy() of one of them"
        held = {f"{layer.name}/{key}": t for layer in self._within() for key, t in layer.parameters.items()}
        given = self._parameters | held if held else self._parameters
        return Table(given, f"parameters of layer {self.path!r}", how, self._without)

    @parameters.setter
    def parameters(self, given: object) -> None:
        self._refuse("parameters", "add_parameter() in", given)

    @property
    def states(self) -> Table[Tensor]:
        """State by name, as `parameters`. `add_state` makes it, its values change by `copy_from_numpy`."""
        how = "add_state() in setup(), or copy_from_numpy() of one of them"
        held = {f"{layer.name}/{key}": t for layer in self._within() for key, t in layer.states.items()}
        given = self._states | held if held else self._states
        return Table(given, f"state of layer {self.path!r}", how, self._without)

    @states.setter
    def states(self, given: object) -> None:
        self._refuse("states", "add_state() in", given)

    def _refuse(self, what: str, how: str, given: object) -> None:
        raise GraphError(f"layer {self.path!r}: wanted {what} made by {how} setup(), received {given!r:.100}")

    @property
    def _without(self) -> str:
        """Why there are no parameters yet, for messages; "" for a layer in a net. One that is only an attribute of
        another layer is in none.
        """
        if self.context is not None:
            return ""
        return (
            "wanted a layer that net.add() has set up (a layer that another holds is given to it by "
            "self.add_layer(...), set up by self.set_up() and run by self.run())"
        )

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
        self._check_new("add_parameter", name)
        tensor = self._borrowed(name, tuple(shape))
        if tensor is None:
            context = self._placed()
            tensor = context.device.empty(shape, context.dtype, layout)
            tensor.name = f"{self.path}/{name}"
            tensor.stores_grad = True
            initializer.fill(init, tensor, self.random_key(name), *(fans or (0, 0)))
        self._parameters[name] = tensor
        return tensor

    def add_state(self, name: str, shape: Sequence[int], value: float = 0.0, dtype: DTypeLike | None = None) -> Tensor:
        """For `setup`: a tensor called "<path>/<name>" that is kept and saved but not trained.

        GraphError outside `setup` and for a name that is taken, ValueError for one that a snapshot cannot hold.
        """
        self._check_new("add_state", name)
        context = self._placed()
        tensor = full(shape, value, dtype or context.dtype, context.device)
        tensor.name = f"{self.path}/{name}"
        self._states[name] = tensor
        return tensor

    def _borrowed(self, name: str, shape: Shape) -> Tensor | None:
        """Another layer's parameter that stands for a new one; None where the layer makes its own."""
        return None

    def _taken(self) -> dict[str, str]:
        """{name that is taken within the layer: what has it}."""
        return dict.fromkeys(self._parameters, "parameter") | dict.fromkeys(self._states, "state")

    def _check_new(self, call: str, name: str) -> None:
        """Raise unless a parameter or state of this name may be made now."""
        where = f"layer {self.path!r}: {call}({name!r:.100})"
        wanted = names.problem_of_tensor(name)
        if wanted is not None:
            raise ValueError(f"{where}: wanted {wanted} as its name, received {name!r:.100}")
        self._placed()
        if self.output_sample_shape is not None:
            raise GraphError(f"{where}: wanted the call within setup(), received it afterwards")
        self._check_free(where, name)

    def _check_free(self, where: str, name: str) -> None:
        kind = self._taken().get(name)
        if kind is not None:
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
        self.get_output_sample_shape()
        return [tensor.name for tensor in self.parameters.values()]

    def param_values(self) -> list[Tensor]:
        """The parameters, in the order of `param_names`."""
        self.get_output_sample_shape()
        return list(self.parameters.values())

    def _placed(self) -> Context:
        if self.context is None:
            raise GraphError(f"layer {self.path!r}: wanted a layer that is in a net")
        return self.context
