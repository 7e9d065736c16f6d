"""Recurrent nets on a GPU: a step is one graph launch, nothing is done on the host, losses are those of a CPU."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

from cuda_devices import KINDS, new_device
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.device import Device

RNG = np.random.default_rng(5)
WORDS, LABELS = 23, 5
IDS = RNG.integers(1, WORDS, (6, 7))
IDS[1, 4:] = IDS[3, 1:] = IDS[5, 6:] = 0  # texts end in zeros
Y = np.where(IDS > 0, RNG.integers(0, LABELS, IDS.shape), -1)

LAYERS = {
    "LSTM": layers.LSTM("r", 4, bidirectional=True, return_sequences=True),
    "LSTM, two stacks": layers.LSTM("r", 4, num_stacks=2, return_sequences=True),
    "GRU": layers.GRU("r", 4, bidirectional=True, return_sequences=True),
    "GRU, reset before": layers.GRU("r", 4, reset_after=False, return_sequences=True),
    "SimpleRNN": layers.SimpleRNN("r", 4, bidirectional=True, return_sequences=True),
}


def tagger(on: Device, name: str) -> FeedForwardNet:
    """A label for each word."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(ignore_index=-1), device=on, seed=3)
    net.add(layers.Embedding("words", WORDS, 8, mask_zero=True, input_sample_shape=IDS.shape[1:]))
    net.add(copy.deepcopy(LAYERS[name]))
    net.add(layers.Dense("labels", LABELS))
    net.compile(optimizer.Adam(lr=0.05))
    return net


def losses(net: FeedForwardNet, steps: int = 6) -> list[float]:
    """All warnings, such as that of a step that is no graph, are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [float(net.train_one_batch(IDS, Y)[0]) for _ in range(steps)]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", KINDS)
def test_losses_of_a_tagger_are_those_of_a_cpu_without_a_call_on_the_host(kind, name):
    wanted = losses(tagger(device.new_cpu(kernels="numpy"), name))
    np.testing.assert_allclose(losses(tagger(new_device(kind), name)), wanted, rtol=1e-5)


def test_from_the_third_step_on_a_step_is_one_launch():
    on = new_device("stand-in")
    net, stream = tagger(on, "LSTM"), on.runtime.stream
    losses(net, 2)
    eager, graphs = stream.eager, stream.graph_launches
    losses(net, 5)
    assert stream.graph_launches - graphs == 5
    assert stream.eager - eager <= 5 * 3, "beside it: ids and labels in, the loss out"
