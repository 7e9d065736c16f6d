"""Nets that have layers in common: submodels, and what is done to one net of a family that concerns the others."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from singa_lite.common.checks import names
from singa_lite.common.errors import GraphError
from singa_lite.device import Device
from singa_lite.layer.layer import Layer, Node
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.topology import Source
from singa_lite.tensor import Shape
from singa_lite.training.compile_checks import check_device
from singa_lite.training.readers import Readers
from singa_lite.training.step_runner import StepRunner
from singa_lite.training.trained_net import TrainedNet


class SubmodelLayers(NamedTuple):
    """Layers of a net with their sources within the part; shapes: the sample shapes that its inputs are fed."""

    layers: Mapping[str, Layer]
    sources: Mapping[str, tuple[Source, ...]]
    shapes: Mapping[str, Shape]


def part_of(net: LayerGraph, outputs: str | Collection[str], inputs: str | Collection[str] | None) -> SubmodelLayers:
    """What lies between `inputs`, which are fed, and `outputs`.

    GraphError for names of no layers, for inputs that lead to none of the outputs, for a way to the outputs that passes
    by the inputs, and for outputs that feed others of the part.
    """
    ordered = {node.layer.name: node for node in net.ordered()}
    nodes = {name: ordered[name] for name in net.layers}  # in the order of adding
    shapes = {(name, index): s for name in nodes for index, s in enumerate(net.output_shapes(name))}
    ends = _known("submodel outputs", outputs, nodes)
    starts = None if inputs is None else _known("submodel inputs", inputs, nodes)
    found = _ancestors_of(ends, frozenset(starts or ()), nodes)
    _check_outputs(ends, found, nodes, frozenset(starts or ()))
    if starts is not None:
        _check_inputs(starts, found, nodes)
    kept = [*(name for name in nodes if name in found and name not in ends), *ends]  # what is added follows the last
    sources = {name: () if name in (starts or ()) else tuple(map(Source._make, nodes[name].sources)) for name in kept}
    fed = {name: shapes[nodes[name].sources[0]] for name in starts or () if nodes[name].sources}
    return SubmodelLayers({name: nodes[name].layer for name in kept}, sources, fed)


def _known(where: str, given: str | Collection[str], nodes: Mapping[str, Node]) -> list[str]:
    """The names of layers, each once. GraphError for none, for others, and for one twice."""
    found = names(where, [given] if isinstance(given, str) else given)
    if not found:
        raise GraphError(f"{where}: wanted the names of layers of the net, received none")
    for name in found:
        if name not in nodes:
            raise GraphError(f"{where}: wanted the names of layers of the net itself, received {name!r}")
    if len(set(found)) < len(found):
        raise GraphError(f"{where}: wanted each name once, received {list(found)}")
    return list(found)


def _ancestors_of(ends: Collection[str], starts: Collection[str], nodes: Mapping[str, Node]) -> set[str]:
    """The layers that outputs are made of, back to the inputs."""
    found: set[str] = set()
    waiting = list(ends)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [] if name in starts else [source for source, _ in nodes[name].sources]
    return found


def _check_outputs(
    ends: Collection[str], found: Collection[str], nodes: Mapping[str, Node], starts: Collection[str]
) -> None:
    for name in found:
        for source, _ in () if name in starts else nodes[name].sources:
            if source in ends:
                raise GraphError(
                    f"submodel outputs: wanted layers that feed no other of the submodel, received {source!r}, which "
                    f"feeds {name!r}; predict(x, output=[{source!r}]) and forward(..., output=[{source!r}]) give it"
                )


def _check_inputs(starts: Collection[str], found: Collection[str], nodes: Mapping[str, Node]) -> None:
    for name in starts:
        if name not in found:
            raise GraphError(f"submodel inputs: wanted layers that lead to the outputs, received {name!r}")
        if len(nodes[name].sources) > 1:
            raise GraphError(
                f"submodel inputs: wanted layers of one source, received {name!r} with "
                f"{[source for source, _ in nodes[name].sources]}; name these"
            )
    for name in found:
        if name not in starts and not nodes[name].sources:
            raise GraphError(
                f"submodel inputs: wanted all that the outputs are made of, received {list(starts)}, which leave out "
                f"{name!r}"
            )


class Family:
    """Nets that have layers in common, for as long as somebody holds them.

    What reads parameters beside a step of one of them, as a checkpoint does, is waited for by the steps of all; where a
    step of one was left before its end, none goes on; and all of them move to another device together.
    """

    def __init__(self, net: TrainedNet | None = None) -> None:
        self._nets: list[weakref.ref[TrainedNet]] = []
        self._readers: Readers | None = None
        if net is not None:
            self.join(net)

    def __deepcopy__(self, memo: dict[int, object]) -> Family:
        """An empty one: a net that is copied joins it, and so do others of the family that are copied with it."""
        made = Family()
        memo[id(self)] = made
        return made

    def join(self, net: TrainedNet) -> None:
        """Take a net in: it waits for the readers of all, and does no step while one of them is unfinished."""
        runner = net.trainer.runner
        if self._readers is None:
            self._readers = runner.readers
        runner.readers, runner.relatives = self._readers, self._runners
        self._nets = [ref for ref in self._nets if ref() is not None]
        self._nets.append(weakref.ref(net))

    def nets(self) -> list[TrainedNet]:
        """Those that are still there, in the order of joining."""
        return [net for net in (ref() for ref in self._nets) if net is not None]

    def _runners(self) -> list[StepRunner]:
        return [net.trainer.runner for net in self.nets()]


def move(nets: Sequence[TrainedNet], to: Device) -> None:
    """Move the parameters, state and optimizer's state of nets. All of them are checked before one of them changes."""
    for net in nets:
        _check(net, to)
    for net in nets:
        runner = net.trainer.runner
        runner.interrupted_at = "(while the net was being moved to another device)"
        runner.steps = runner.steps.anew()  # recorded steps are bound to the old device
    layers: dict[int, Layer] = {id(node.layer): node.layer for net in nets for node in net.ordered()}
    _move_layers(list(layers.values()), nets, to)
    for net in nets:
        net.trainer.follow_device(to)
        vars(net)["device"] = to
        net.trainer.runner.steps = net.trainer.steps.anew()
    for net in nets:
        net.trainer.runner.forget()


def _move_layers(layers: Sequence[Layer], nets: Sequence[TrainedNet], to: Device) -> None:
    """Where that fails on the way from an abstract device, as where memory is too small, they are back there."""
    before = nets[0].device
    try:
        for layer in layers:
            layer.to_device(to)
    except BaseException:
        if before.is_abstract:
            for layer in layers:
                layer.set_up_anew(before)
            for net in nets:
                net.trainer.runner.forget()
        raise


def _check(net: TrainedNet, to: Device) -> None:
    """Refuses a move to another device. GraphError after an unfinished step, AbstractDeviceError for a device that
    would forget what the net has, and the errors of `compile` where its options are not for that device.
    """
    net.trainer.runner.check_whole("to_device")
    if not net.device.is_abstract:
        to.check_bytes("to_device")
    if net.trainer.ranks is not None:
        net.trainer.ranks.ranks.check_device("to_device", to)
    how = net.trainer.steps.how
    check_device(how, to, "to_device")
