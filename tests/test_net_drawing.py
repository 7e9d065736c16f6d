"""Pictures of nets: every layer has a box, every connection a line, and no two boxes lie over each other."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from singa_lite import FeedForwardNet, layers, reports

SVG = "{http://www.w3.org/2000/svg}"


def of_two_ways(seed: int, count: int = 12) -> FeedForwardNet:
    """A random net of sums, whose connections pass any number of rows."""
    random = np.random.default_rng(seed)
    net = FeedForwardNet()
    net.add(layers.Dense("in", 3, input_sample_shape=(2,)))
    for number in range(count):
        names = list(net.layers)
        chosen = random.choice(names, size=min(len(names), random.integers(1, 4)), replace=False)
        fed = [str(name) for name in chosen]
        name = f"sum <{number}>"
        net.add(layers.Merge(name) if len(fed) > 1 else layers.Activation(name), fed)
    return net


@pytest.mark.parametrize("seed", range(3))
def test_boxes_and_lines(seed, tmp_path):
    net = of_two_ways(seed)
    text = reports.plot_net(net, tmp_path / "net.svg")
    assert (tmp_path / "net.svg").read_text(encoding="utf-8") == text
    found = ElementTree.fromstring(text)
    group = found.find(f"{SVG}g")
    boxes = [
        tuple(float(rect.get(key)) for key in ("x", "y", "width", "height")) for rect in group.findall(f"{SVG}rect")
    ]
    assert len(boxes) == len(net.layers)
    words = "\n".join(text.text for text in group.findall(f"{SVG}text"))
    for name in net.layers:
        assert f"{name} (" in words
    for number, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert x + width <= float(found.get("width"))
        assert y + height <= float(found.get("height"))
        for left, top, across, down in boxes[:number]:
            assert x >= left + across or left >= x + width or y >= top + down or top >= y + height
    lines = len(group.findall(f"{SVG}path"))
    assert lines >= sum(len(node.sources) for node in net.ordered())
