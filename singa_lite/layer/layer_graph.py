"""LayerGraph: layers by name, wired to each other, set up as soon as their input shapes are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import DTypeLike

from singa_lite import device as devices
from singa_lite.common.array_types import DType
from singa_lite.common.checks import integer, is_int
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.table import Table
from singa_lite.layer import stored_parameters
from singa_lite.layer.freezing import Freeze
from singa_lite.layer.layer import Context, Layer, Node, check_new
from singa_lite.layer.topology import Lengths, Source, Topology
from singa_lite.tensor import DeviceSpec, Shape, Tensor

LayerLike = Layer | str | tuple[Layer | str, int]


class LayerGraph:
    """Layers, their sources, parameters and state. Base of `FeedForwardNet`.

    freeze: which layers do not train, see `Freeze`.
    """

    #: Rises when a layer is added, or a setting of the net that its steps go by is set.
    settings_version: int = 0

    def __init__(
        self, device: DeviceSpec, dtype: DTypeLike, seed: int | None, parameter_dtype: str | None = None
    ) -> None:
        self.device = devices.get(device)
        self.dtype = _float_dtype(dtype)
        stored_parameters.check("FeedForwardNet parameter_dtype", parameter_dtype, self.dtype)
        self.parameter_dtype = parameter_dtype
        self.freeze: Freeze = None
        self.seed = self.device.next_seed() if seed is None else integer("seed of the net", seed, 0, 2**64 - 1)
        self._layers: dict[str, Layer] = {}
        self._topology = Topology()
        #: Sample shapes of inputs that are layers of another net, where they have sources.
        self._fed_shapes: dict[str, Shape] = {}
        self._nodes: list[Node] | None = None
        self._lengths: Lengths | None = None
        self._usable = False

    @property
    def layers(self) -> Table[Layer]:
        """The layers by name, in the order of adding; `add` puts one in, and none is taken out."""
        return Table(self._layers, "layers of the net", "add(layer), which wires it and checks its shapes")

    @layers.setter
    def layers(self, given: object) -> None:
        raise GraphError(f"layers of the net: wanted add(layer) for each, received {type(given).__name__}")

    def add(self, layer: Layer, src: LayerLike | Sequence[LayerLike] | None = None) -> Layer:
        """Put a layer into the net; returns it.

        src: the layers that feed it, as objects or names, one or a list; (layer, number) names one output of a
        layer with several. None: the layer added last (none for the first). []: an input layer, which needs
        `input_sample_shape`. A source may be named before it is added; the layer is then set up when it comes.
        GraphError for a name that is taken or a cycle, ShapeError for shapes that do not fit; the net is then
        as before.

        >>> net = FeedForwardNet()
        >>> x = net.add(layers.Input((5,)))
        >>> net.add(layers.Dense("scores", 3), src=x)
        <Dense 'scores' -> (3,)>
        """
        check_new("add", layer)
        layer.take_free_name(self._layers)
        awaited = self._topology.is_named(layer.name)
        self._topology.add(layer.name, self._sources(src))
        self._layers[layer.name] = layer
        try:
            if awaited:  # only a layer that others already name can close a cycle
                self._topology.order(partial=True)
            self._set_up()
        except BaseException as error:
            of_its_own = src is None and layer.input_sample_shapes is not None and self._topology.sources[layer.name]
            del self._layers[layer.name], self._topology.sources[layer.name]
            if of_its_own and isinstance(error, GraphError | ShapeError):
                raise type(error)(f"{error}; src=[] makes it an input of the net") from error
            raise
        self._nodes = self._lengths = None
        self._usable = False
        self.note_setting()
        return layer

    def note_setting(self) -> None:
        """Its steps are bound anew, as a setting of the net or its layers are others from now on."""
        vars(self)["settings_version"] = self.settings_version + 1

    def adopt(
        self,
        layers: Mapping[str, Layer],
        sources: Mapping[str, tuple[Source, ...]],
        shapes: Mapping[str, Shape],
    ) -> None:
        """Takes the layers of another net as they are, already set up, into a net without layers. sources: of each;
        shapes: sample shapes of inputs, where layers of sources become inputs.
        """
        self._layers, self._topology.sources, self._fed_shapes = dict(layers), dict(sources), dict(shapes)
        self._nodes = self._lengths = None

    def to_device(self, device: DeviceSpec) -> None:
        """Move parameters and state; a whole net does it, with its optimizer."""
        raise NotImplementedError

    def check_usable(self) -> None:
        """GraphError for a layer that somebody must bring values to before the first batch. Not while recording."""
        if self._usable or self.device.graph is not None:
            return
        for layer in self.all_layers().values():
            layer.check_usable()
        self._usable = True

    def _sources(self, src: LayerLike | Sequence[LayerLike] | None) -> tuple[Source, ...]:
        if src is None:
            return (Source(next(reversed(self._layers))),) if self._layers else ()
        given = list(src) if isinstance(src, Sequence) and not isinstance(src, str) and not _is_numbered(src) else [src]
        return tuple(_source(entry) for entry in given)

    def _set_up(self) -> None:
        """Set up every layer whose sources are. If one fails, all set up by this call are taken back."""
        fresh: list[Layer] = []
        try:
            ready = self._ready()
            while ready:
                for layer in ready:
                    context = Context(self.device, self.dtype, self.seed, self.parameter_dtype)
                    layer.prepare(self._input_shapes(layer), context)
                    fresh.append(layer)
                    self._check_apart(layer)
                ready = self._ready()
        except BaseException:
            for layer in fresh:
                layer.reset()
            raise

    def _check_apart(self, layer: Layer) -> None:
        """GraphError where a parameter of the layer is that of another one, under another name."""
        if not layer.layers:
            return
        names = {id(p.block): p.name for x in self._layers.values() if x is not layer for p in x.parameters.values()}
        for parameter in layer.parameters.values():
            if names.get(id(parameter.block), parameter.name) != parameter.name:
                raise GraphError(
                    f"layer {layer.name!r}: wanted parameters that no other layer has, received {parameter.name!r}, "
                    f"which is {names[id(parameter.block)]!r}; share_parameters() of that layer lets both have it"
                )

    def _ready(self) -> list[Layer]:
        """Layers that are not set up, but all that they depend on are."""
        return [x for x in self._layers.values() if x.context is None and self._is_ready(x)]

    def _is_ready(self, layer: Layer) -> bool:
        needed = [self._layers.get(source.layer) for source in self._topology.sources[layer.name]]
        needed += [owner for owner in layer.owners() if owner.name in self._layers]
        return all(other is not None and other.context is not None for other in needed)

    def _input_shapes(self, layer: Layer) -> list[Shape]:
        """The sample shapes that reach a layer whose sources are set up."""
        given = layer.input_sample_shapes
        if not self._topology.sources[layer.name]:
            if given is None or len(given) != 1:
                raise ShapeError(f"layer {layer.name!r} has no source: wanted one input_sample_shape, received {given}")
            return given
        resolved = self._resolved(layer.name)
        shapes = [self.output_shapes(name)[index] for name, index in resolved]
        layer.check_inputs(shapes, [name for name, _ in resolved])
        return shapes

    def _resolved(self, name: str) -> tuple[tuple[str, int], ...]:
        return self._topology.resolve(name, lambda source: len(self.output_shapes(source)))

    def ordered(self) -> list[Node]:
        """The layers in topological order, with their sources. GraphError for an unknown source or a cycle."""
        if self._nodes is None:
            if not self._layers:
                raise GraphError("wanted a net with at least one layer, received an empty one")
            order = self._topology.order()
            self._nodes = [Node(self._layers[name], self._resolved(name)) for name in order]
        return self._nodes

    def all_layers(self) -> dict[str, Layer]:
        """The layers by path, those within others too: in topological order, within a layer in that of adding.

        >>> block = layers.Residual("block", [layers.Dense("inner", 5)])
        >>> list(Sequential([layers.Input((5,), name="x"), block]).all_layers())
        ['x', 'block', 'block/inner']
        """
        return {layer.path: layer for node in self.ordered() for layer in node.layer.with_sublayers()}

    def parameters(self) -> dict[str, Tensor]:
        """All parameters by name, in topological order; a shared one once.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> {name: value.shape for name, value in net.parameters().items()}
        {'dense/weight': (5, 3), 'dense/bias': (3,)}
        """
        values = (value for node in self.ordered() for value in node.layer.parameters.values())
        return {value.name: value for value in values}

    def states(self) -> dict[str, Tensor]:
        """All state (running statistics, random state) by name, in topological order."""
        values = (value for node in self.ordered() for value in node.layer.states.values())
        return {value.name: value for value in values}

    def constants(self) -> list[Tensor]:
        """All tensors of layers that are neither parameters nor state, such as tables of positions."""
        return [tensor for layer in self.all_layers().values() for tensor in layer.constants.values()]

    def frozen(self) -> dict[str, Tensor]:
        """All quantised weights by name, in topological order: each once.

        >>> net = Sequential([layers.Dense(3, input_shape=(32,), weight_format="q8_0")])
        >>> {name: value.shape for name, value in net.frozen().items()}
        {'dense/weight': (3, 34)}
        """
        values = (value for node in self.ordered() for value in node.layer.frozen.values())
        return {value.name: value for value in values}

    def param_names(self) -> list[str]:
        """Names of all parameters, "<layer>/weight" and so on, in topological order."""
        return list(self.parameters())

    def param_values(self) -> list[Tensor]:
        """All parameters, in the order of `param_names`."""
        return list(self.parameters().values())

    def input_shapes(self) -> dict[str, Shape]:
        """The sample shape of each input layer."""
        self.ordered()
        shapes = {name: self.fed_shapes(name) for name in self._topology.inputs()}
        return {name: given[0] for name, given in shapes.items() if given is not None}

    def fed_shapes(self, name: str) -> list[Shape] | None:
        """The sample shape that an input layer is fed, in a list; None where it has sources that tell it."""
        fed = self._fed_shapes.get(name)
        return self._layers[name].input_sample_shapes if fed is None else [fed]

    def input_ids(self) -> dict[str, int]:
        """Of each input layer that takes ids, how many there are; one that passes its input on takes what they want to
        whom it does."""
        found = {name: self._ids_of(name) for name in self._topology.inputs()}
        return {name: count for name, count in found.items() if count is not None}

    def _ids_of(self, name: str) -> int | None:
        layer = self._layers[name]
        if layer.input_ids is not None or not layer.keeps_values:
            return layer.input_ids
        fed = [other for other, sources in self._topology.sources.items() if any(s.layer == name for s in sources)]
        counts = [self._ids_of(other) for other in fed]
        known = [count for count in counts if count is not None]
        return min(known) if known and len(known) == len(counts) else None

    def features_last(self, name: str) -> bool:
        """Whether a layer's output has its features along the last axis: as it or the nearest before it says."""
        while self._layers[name].features_last is None and self._topology.sources[name]:
            name = self._topology.sources[name][0].layer
        return bool(self._layers[name].features_last)

    def output_names(self) -> list[str]:
        """Names of the layers that feed no other, in the order of adding."""
        self.ordered()
        return self._topology.outputs()

    def output_shapes(self, name: str) -> list[Shape]:
        """The sample shapes of a layer's outputs; one () for a layer that is not set up."""
        layer = self._layers.get(name)
        if layer is None or layer.output_sample_shape is None:
            return [()]
        return layer.output_sample_shapes

    def fitting(self, name: str, shape: Shape) -> Shape:
        """Returns the sample shape that a batch for an input layer must have. It has fewer time steps than the layer
        was set up for where the batch has fewer and all layers behind can do with fewer (`Layer.any_length`).
        """
        (whole,) = self.fed_shapes(name) or [()]
        return whole if shape[1:] == whole else self._times().fitting(name, whole, shape)

    def output_shape(self, name: str, shapes: Mapping[str, Shape]) -> Shape:
        """The sample shape of a layer's output, the first of several. shapes: of the batches, by input layer."""
        shape = self.output_shapes(name)[0]
        sources = self._times().of.get(name)
        return shape if sources is None else (shapes[sources[0]][1], *shape[1:])

    def refusing(self, name: str) -> str | None:
        """The layer for which no batch of an input layer may have fewer time steps, perhaps its own; else None."""
        return self._times().refusing.get(name)

    def _times(self) -> Lengths:
        nodes = self.ordered()
        if self._lengths is None:
            self._lengths = Lengths(nodes, self.input_ids(), self.input_shapes())
        return self._lengths

    def _check_names(self, where: str, names: Sequence[str | None]) -> None:
        """GraphError unless all of the names (None aside) are layers of the net, or paths of layers within these."""
        for name in names:
            if name is not None and not (isinstance(name, str) and (name in self._layers or name in self.all_layers())):
                raise GraphError(f"{where}: wanted the name of a layer of the net, received {name!r}")


def _float_dtype(given: DTypeLike) -> DType:
    """The dtype in the machine's byte order. TypeError unless it is one that a net can have."""
    shown: object = given
    try:
        if given is not None:
            dtype: DType = np.dtype(given).newbyteorder("=")
            if dtype.kind == "f":
                return dtype
            shown = dtype
    except (TypeError, ValueError):  # NumPy knows no such dtype
        pass
    raise TypeError(f"dtype of the net: wanted a float dtype, received {shown!s:.100}")


def _is_numbered(src: object) -> TypeGuard[tuple[object, int]]:
    """Whether src is (layer, number of its output)."""
    return isinstance(src, tuple) and len(src) == 2 and is_int(src[1])


def _source(entry: object) -> Source:
    layer, output = entry if _is_numbered(entry) else (entry, None)
    if not isinstance(layer, Layer | str):
        raise TypeError(f"src: wanted layers of the net or their names, received {layer!r}")
    return Source(layer if isinstance(layer, str) else layer.name, output)
