"""All parameters' gradients over one batch, for those who want them at once."""

from __future__ import annotations

from singa_lite.layer.freezing import Freeze
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.run import Run
from singa_lite.tensor import Tensor
from singa_lite.training.checked import CheckedFeeds
from singa_lite.training.objective import Objective
from singa_lite.training.steps.fed_tensors import filled
from singa_lite.training.steps.open_forward import OpenForward


def of_batch(
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
    for names, _, gradients, _ in walk:
        collected.update({name: gradient.detach() for name, gradient in zip(names, gradients, strict=True)})
    return collected
