"""What a checkpoint asks of the net that `fit` trains. `fit` itself knows its net by a few methods alone."""

from __future__ import annotations

from singa_lite.fit import Training
from singa_lite.net import FeedForwardNet


def net_of(training: Training) -> FeedForwardNet:
    """The net. TypeError for anything else that trains, which no format can hold."""
    if not isinstance(training.net, FeedForwardNet):
        raise TypeError(f"checkpoint: wanted a FeedForwardNet, received {type(training.net).__name__}")
    return training.net


def steps_of(training: Training) -> int:
    """How many training steps have begun; one for all batches of a group, see `compile(accumulate=)`."""
    optimizer = training.net.optimizer
    return 0 if optimizer is None else optimizer.step


def is_between_updates(training: Training) -> bool:
    """Whether a group of batches has begun and not ended."""
    optimizer = training.net.optimizer
    return optimizer is not None and optimizer.gathering.done > 0
