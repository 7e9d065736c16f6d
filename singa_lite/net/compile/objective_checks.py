"""Checks of a net, its objective and its optimizer together, when the net is compiled and before any batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from singa_lite.common.array_types import DType
from singa_lite.common.checks import kind_of
from singa_lite.common.errors import GraphError
from singa_lite.common.notice import warn
from singa_lite.layer.freezing import Freeze, freezing
from singa_lite.layer.layer import Layer, Node
from singa_lite.optimizer import Optimizer, precision
from singa_lite.training.objective import Objective


def check_optimizer(given: object) -> None:
    """TypeError unless it is an optimizer."""
    if not isinstance(given, Optimizer):
        hint = f", perhaps {given.__name__}()" if isinstance(given, type) else ""
        raise TypeError(f"compile: wanted an Optimizer{hint}, received {kind_of(given)}")


def check(
    nodes: Sequence[Node], objective: Objective | None, optimizer: Optimizer, freeze: Freeze, dtype: DType
) -> None:
    """Raise GraphError or ValueError for what would fail, or go wrong silently, at the first batch.

    nodes: the layers in topological order; objective: None where there is no loss yet; freeze: as for `compile`.
    """
    optimizer.check_names([value.name for node in nodes for value in node.layer.parameters.values()])
    precision.check(optimizer, dtype)
    if freeze is not None:
        _check_freeze(nodes, [] if objective is None else objective.outputs, freeze)
    if objective is not None:
        _warn_of_applied({node.layer.name: node for node in nodes}, objective)


def _check_freeze(nodes: Sequence[Node], outputs: Sequence[str], freeze: Freeze) -> None:
    """GraphError where a loss stands before the layer up to which all is frozen, or where nothing is left to train."""
    layers = [node.layer for node in nodes]
    found = freezing(layers, freeze)
    frozen = [layer.name for layer in layers if layer.name in found.frozen]
    moving = set[str]()  # layers whose output goes by some layer that is not frozen
    for layer, sources in nodes:
        if layer.path not in found.passing or any(name in moving for name, _ in sources):
            moving.add(layer.name)
    for name in outputs:
        if name not in moving:
            raise GraphError(
                f"compile: wanted freeze= to leave a layer before output {name!r} that trains, received "
                f"{list(freeze or ())}"
            )
        if name in frozen:
            raise GraphError(
                f"compile: wanted freeze={freeze!r} with all outputs at this layer or after it, received output "
                f"{name!r} among the frozen layers {frozen}"
            )
    if not any(layer.own_parameters for layer in found.trained):
        raise GraphError(
            f"compile: wanted freeze={freeze!r} to leave a layer with parameters to train, received none in "
            f"{[layer.path for layer in found.trained]}"
        )


def _warn_of_applied(nodes: Mapping[str, Node], objective: Objective) -> None:
    """Warns of a softmax or sigmoid before a loss that applies one itself, and of none before one that expects it."""
    for name, loss in objective.losses.items():
        before = _origin(nodes, name)
        if loss.applies and before.gives:
            warn(
                f"loss {type(loss).__name__} of output {name!r}: wanted raw scores, whose {loss.applies} it takes "
                f"itself, received the {before.gives} of layer {before.name!r}: leave that layer out",
                UserWarning,
            )
        if loss.expects and before.gives != loss.expects:
            warn(
                f"loss {type(loss).__name__} of output {name!r}: wanted probabilities of a {loss.expects}, received "
                f"what layer {before.name!r} gives: from_logits=True takes raw scores",
                UserWarning,
            )


def _origin(nodes: Mapping[str, Node], name: str) -> Layer:
    """The layer that made the values which the layer of this name gives, perhaps under another shape."""
    node = nodes[name]
    while node.layer.keeps_values and node.sources:
        node = nodes[node.sources[0][0]]
    return node.layer
