"""Whether a compiled net's gradient is that of its loss: the slope along it, with equal random numbers."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from .budget_task import BudgetTask, batch
from .process import read_weights
from .torch_segments import built
from .torch_side import as_ours

#: By how much the loss changes along the gradient.
CHANGE = 0.01


def run(task: BudgetTask) -> dict[str, float]:
    """Of the first step: its loss, the gradient's squared length, and the loss's slope along the gradient."""
    from torch._functorch import config

    torch.set_num_threads(task.threads)
    config.activation_memory_budget = task.value
    x, y = map(torch.from_numpy, batch(task))
    net = built(task.net, 0)
    read_weights(task.folder, ((name, as_ours(value, turned)) for name, value, turned in net.by_our_names()))
    forward, weights = torch.compile(net), list(net.parameters())

    def loss() -> torch.Tensor:
        torch.manual_seed(1)
        scores = forward(x)
        return cross_entropy(scores, y.flatten() if scores.ndim == 2 else y)

    first = loss()
    first.backward()
    gradients = [weight.grad.clone() for weight in weights if weight.grad is not None]
    square = sum(float((gradient.double() ** 2).sum()) for gradient in gradients)

    def moved(step: float) -> float:
        with torch.no_grad():
            torch._foreach_add_(weights, gradients, alpha=step)
        value = loss().item()
        with torch.no_grad():
            torch._foreach_add_(weights, gradients, alpha=-step)
        return value

    step = CHANGE / square
    return {"loss": first.item(), "square": square, "slope": (moved(step) - moved(-step)) / (2 * step)}
