"""Values that are kept as bytes: the same ones come back, and what cannot be written down stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from singa_lite import autograd, device, tensor
from singa_lite.common.packed import Packed
from singa_lite.kernels.onednn_kernels.pieces import even


@dataclass
class Value:
    name: str
    others: list[Value]
    rule: Callable[[], int]


def test_a_value_comes_back_and_is_one_as_long_as_anybody_has_it():
    rule: Callable[[], int] = lambda: 3  # noqa: E731 - no pickle has it
    shared = Value("shared", [], rule)
    packed = Packed(Value("whole", [shared, shared], rule), [Value])
    packed.pack()
    found = packed.value
    assert found.name == "whole"
    assert found is packed.value
    assert found.others[0] is found.others[1] is not shared
    assert found.rule is found.others[0].rule is rule


def test_a_packed_graph_tells_and_does_the_same():
    on = device.new_cpu()
    x = tensor.from_numpy(np.arange(6, dtype="f").reshape(2, 3), on)
    with on.recording() as graph:
        y = autograd.reduce_sum(autograd.tanh(x * 2.0), axes=(1,))
    told = [str(one) for one in graph.operations], graph.memory_plan.summary(), graph.to_dot()
    for _ in range(2):
        graph.run()
    assert ([str(one) for one in graph.operations], graph.memory_plan.summary(), graph.to_dot()) == told
    np.testing.assert_allclose(tensor.to_numpy(y), np.tanh(2 * np.arange(6).reshape(2, 3)).sum(1), rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "most", "wanted"), [(9, 4, 3), (10, 4, 4), (4, 9, 4), (784, 64, 56), (1, 1, 1), (7, 2, 2)]
)
def test_pieces_are_of_one_length_where_they_can_be(count, most, wanted):
    assert even(count, most) == wanted
