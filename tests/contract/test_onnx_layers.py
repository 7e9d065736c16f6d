"""Every layer in a net that is exported and run by ONNX Runtime, at two batch sizes and two lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layer_cases import CASES, Case
from onnx_runs import check, run
from singa_lite import FeedForwardNet, device, layers, tensor
from singa_lite.errors import SnapshotError

#: {case: what the error says of it}
REFUSED: dict[str, str] = {}


def net_of(case: Case) -> FeedForwardNet:
    """A net of one layer, its values random, its inputs as the case has them."""
    cpu = device.cpu()
    net = FeedForwardNet(device=cpu, seed=1)
    layer = case.placed("float32", cpu) if case.placed else case.make()
    sources = [net.add(layers.Dummy(f"in{i}", input_sample_shape=shape), []) for i, shape in enumerate(case.shapes)]
    net.add(layer, sources)
    rng = np.random.default_rng(3)
    for value in (*net.parameters().values(), *net.states().values()):
        if value.dtype.kind == "f":
            value.copy_from_numpy(rng.uniform(0.3, 1.5, value.shape))
    for name, frozen in layer.frozen.items():
        layer.set_frozen(name, rng.integers(0x20, 0x3C, frozen.shape, np.uint8))
    return net


def batches_of(net: FeedForwardNet) -> list[dict[str, np.ndarray]]:
    """Of one sample and of four, and where the net takes fewer steps, of one step fewer."""
    rng, ids = np.random.default_rng(5), net.input_ids()
    made = []
    for count, fewer in ((1, 0), (4, 0), (3, 1)):
        batch = {}
        for name, shape in net.input_shapes().items():
            extents = (count, *(shape if not fewer or net.refusing(name) else (shape[0] - 1, *shape[1:])))
            of_ids = name in ids
            batch[name] = (
                rng.integers(0, min(ids[name], 9), extents) if of_ids else rng.uniform(-2, 2, extents).astype("f4")
            )
        made.append(batch)
    return made


@pytest.mark.parametrize("key", CASES)
def test_a_layer_gives_the_same_in_the_file(key: str, tmp_path: Path) -> None:
    net, path = net_of(CASES[key]), tmp_path / "net.onnx"
    if key in REFUSED:
        with pytest.raises(SnapshotError, match=REFUSED[key]):
            net.export(path)
        return
    net.export(path)
    if key.endswith(":stateful"):
        check_states(net, path)
        return
    for batch in batches_of(net):
        check(net, path, batch)


def check_states(net: FeedForwardNet, path: Path) -> None:
    """The file, whose states are handed on, gives what training does, whose batches begin where the last one ended."""
    states = {name: np.asarray(value) for name, value in net.states().items()}
    for _ in range(2):
        batch = {
            name: np.random.default_rng(7).normal(size=(3, *s)).astype("f4") for name, s in net.input_shapes().items()
        }
        y, *after = run(path, batch | states)
        right = net.forward(True, {name: tensor.from_numpy(array, net.device) for name, array in batch.items()})
        np.testing.assert_allclose(y, np.asarray(right), rtol=0, atol=1e-6)
        states = dict(zip(states, after, strict=True))
        for name, value in net.states().items():
            np.testing.assert_allclose(states[name], np.asarray(value), rtol=0, atol=1e-6)
