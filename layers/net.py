"""Net: a whole net as a layer of another."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any

from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.device import Device
from singa_lite.layer.layer import Layer, SampleShape
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.sharing import add_copies
from singa_lite.layers._checks import label
from singa_lite.tensor import Shape, Tensor


class Net(Layer):
    """Runs the layers of a net as those of this layer, wired as there: y = net(x).

    Input samples: those of the net's inputs, in the order of `net.input_shapes()`; output samples: those of its
    outputs, in the order of `net.output_names()`. Parameters and state are the net's own, under the names
    "<name>/<layer>/weight": training moves both, and the net can be asked, saved and loaded by itself, until one of
    them is moved to another device or copied. Options of layers are copied, as they are when this layer is added. A net
    that is used twice: the second time Net(name, net).share_parameters(first).

    net: on the device and of the dtype of the net that it becomes a part of, with all its layers.

    >>> encoder = Sequential([layers.Input((5,)), layers.Dense(3)])
    >>> net = Sequential([layers.Input((5,)), layers.Net("encoder", encoder), layers.Dense(2)])
    >>> net.predict(np.ones((4, 5), "float32")).shape
    (4, 2)
    """

    positionwise = True

    def __init__(self, name: str, net: LayerGraph, **options: Any) -> None:
        super().__init__(name, **options)
        if not isinstance(net, LayerGraph):
            raise TypeError(f"{label(self)}: wanted a FeedForwardNet, received {net!r:.100}")
        self.net = net
        self._sources = {node.layer.name: node.sources for node in net.ordered()}
        self._inputs, self._outputs = net.input_shapes(), net.output_names()
        if len(self._outputs) == 1:
            self.gives, self.features_last = net.layers[self._outputs[0]].gives, net.features_last(self._outputs[0])
        if len(self._inputs) == 1:
            self.input_ids = next(iter(net.input_ids().values()), None)
        if self.input_sample_shapes is None:
            self.input_sample_shapes = list(self._inputs.values())

    def setup(self, *shapes: Shape) -> SampleShape:
        """The sample shapes of the net's inputs -> those of its outputs."""
        wanted = list(self._inputs.values())
        if list(shapes) != wanted:
            raise ShapeError(f"{label(self)}: wanted the net's inputs, {wanted}, received {list(shapes)}")
        if self.shared_with is not None and not (
            isinstance(self.shared_with, Net) and self.shared_with.net is self.net
        ):
            raise GraphError(
                f"{label(self)}: wanted to share with a layer of the same net, received {self.shared_with!r}"
            )
        context = self._placed()
        if (self.net.device, self.net.dtype) != (context.device, context.dtype):
            raise GraphError(
                f"{label(self)}: wanted a net in {context.dtype} on device {context.device.name}, as the one that it "
                f"becomes a part of, received one in {self.net.dtype} on {self.net.device.name}"
            )
        if set(self.net.layers) != set(self._sources):
            raise GraphError(f"{label(self)}: wanted a net that no layer was added to since, received another")
        add_copies(self, [self.net.layers[name] for name in self._sources])
        held = self.layers.values()
        self.any_length, self.keeps_time = all(x.any_length for x in held), all(x.keeps_time for x in held)
        given = [shape for name in self._outputs for shape in self.layers[name].output_sample_shapes]
        return given if len(given) > 1 else given[0]

    def before_anew(self, device: Device) -> None:
        """The net comes along, so that its parameters are still this layer's."""
        if self.net.device.is_abstract:
            self.net.to_device(device)

    def forward(self, training: bool, *xs: Tensor) -> Tensor | list[Tensor]:
        """xs, one for each of the net's inputs -> its output, a list for several."""
        uses = Counter(source for sources in self._sources.values() for source in sources)
        fed = dict(zip(self._inputs, xs, strict=True))
        values: dict[tuple[str, int], Tensor] = {}
        results: dict[str, list[Tensor]] = {}
        for name, sources in self._sources.items():
            given = [values[source] for source in sources] or [fed.pop(name)]
            uses.subtract(sources)
            for source in sources:
                if not uses[source]:
                    values.pop(source, None)
            outputs = self.run_several(self.layers[name], training, *given)
            if name in self._outputs:
                results[name] = outputs
            else:
                values.update({(name, index): y for index, y in enumerate(outputs) if uses[name, index]})
        found = [y for name in self._outputs for y in results[name]]
        return found if len(found) > 1 else found[0]

    def __deepcopy__(self, memo: dict[int, object]) -> Net:
        """A layer of its own, over parameters and state of its own; the net that it was made of is not copied."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        vars(made).update({name: deepcopy(value, memo) for name, value in vars(self).items() if name != "net"})
        vars(made)["net"] = self.net
        return made
