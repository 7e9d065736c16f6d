"""The protocol by which a checkpoint knows the net that `fit` trains. `fit` itself knows its net by a few methods
alone.
"""

from __future__ import annotations

from singa_lite.training.fit import Training
from singa_lite.training.stepping_net import SteppingNet


def net_of(training: Training) -> SteppingNet:
    """The net. TypeError for anything else that trains, which no format can hold."""
    if not isinstance(training.net, SteppingNet):
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
