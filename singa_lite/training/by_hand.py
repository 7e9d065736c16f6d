"""A net's forward, its backward as a generator, and all gradients of a batch, by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from singa_lite.common.checks import flag, names
from singa_lite.common.errors import GraphError
from singa_lite.data.loading import batch
from singa_lite.layer.calls import no_op
from singa_lite.layer.freezing import Freeze
from singa_lite.layer.layer import OneOrMore
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.run import LayerGradients, Run
from singa_lite.tensor import Tensor
from singa_lite.training import checked
from singa_lite.training.checked import CheckedFeeds
from singa_lite.training.objective import Objective
from singa_lite.training.step_runner import StepRunner
from singa_lite.training.steps import fed_tensors
from singa_lite.training.steps.fed_tensors import filled
from singa_lite.training.steps.open_forward import OpenForward
from singa_lite.training.steps.step_call import under_way


def forward(
    layers: LayerGraph, runner: StepRunner, training: bool, x: object, output: Collection[str], freeze: str | None
) -> OneOrMore:
    """Run all layers, see `FeedForwardNet.forward`. runner: the net's, which waits for the walk back."""
    nodes, training, call = layers.ordered(), flag("forward training", training), under_way.get()
    if call is not None and training and not call.training:
        raise GraphError(
            "forward within an evaluation by compile(step=): wanted forward(call.training, x), which is False here, "
            "received True"
        )
    if call is None and layers.device.graph is None:
        layers.device.check_bytes("forward")
    if call is None and training:
        runner.check_whole("forward")
        runner.open_forward.pass_over()
    layers._check_names("forward", [*names("forward output", output), freeze])
    arrays = batch.checked_inputs(layers, x)
    run = Run(nodes, layers.device, training, freeze, no_op if call is None else call.changing)
    result = run.forward(fed_tensors.inputs(layers, arrays), output)
    if training and call is None:
        runner.open_forward.keep(run)
    return result


def backward(
    layers: LayerGraph, runner: StepRunner, dy: object, output: Collection[str], freeze: str | None
) -> Iterator[LayerGradients]:
    """Yield each layer's gradients, see `FeedForwardNet.backward`."""
    if under_way.get() is not None:
        raise GraphError("backward: wanted call.update(loss) within a step of compile(step=)")
    runner.check_whole("backward")
    runner.open_forward.check()
    layers._check_names("backward", [*names("backward output", output), freeze])
    return runner.open_forward.walk(checked.derivatives(layers, dy), output, freeze)


def gradients_of(
    layers: LayerGraph, objective: Objective, feeds: CheckedFeeds, freeze: Freeze, open_forward: OpenForward
) -> dict[str, Tensor]:
    """Gradients of the loss's mean by name. See `FeedForwardNet.gradients`.

    open_forward: where the forward waits for its walk back, so that one that an interrupt ends is known.
    """
    open_forward.forget()
    tensors = filled(layers, feeds)  # targets too before forward, which moves statistics
    inputs = tensors["input"]
    run = Run(layers.ordered(), layers.device, True, freeze)
    out = run.forward(inputs, ())
    open_forward.keep(run)
    objective.loss(True, out, tensors)
    del out, feeds, inputs, tensors
    walk = open_forward.walk({name: [dy] for name, dy in objective.backward().items()}, (), None)
    collected = {}
    for found, _, gradients, _ in walk:
        collected.update({name: gradient.detach() for name, gradient in zip(found, gradients, strict=True)})
    return collected
