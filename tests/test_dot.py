"""A recorded step as a Graphviz text: nodes, colors, edges and what is quoted."""

from __future__ import annotations

import re

import numpy as np

from singa_lite import autograd, device, tensor
from singa_lite.compiler.ir.operation import Instruction, Operand, Phase
from singa_lite.compiler.report.plan_figure import to_dot

NAMES = ["x", "y", "z", "w"]
STRING = r'"(?:[^"\\]|\\.)*"'
NODE = re.compile(rf"  (o\d+) \[label=({STRING}), fillcolor=({STRING}), tooltip=({STRING})\];")
EDGE = re.compile(rf"  (o\d+) -> (o\d+) \[label=({STRING})\];")


def step(number: int, kernel: str, *blocks: int, phase: Phase = Phase.FORWARD, layer: str = "") -> Instruction:
    """An instruction over whole blocks of three floats."""
    operands = tuple(Operand(block, (3,), np.dtype("f4"), (4,), 0) for block in blocks)
    return Instruction(number, kernel, operands, {}, phase, layer, 0)


def edges_of(*instructions: Instruction) -> dict[tuple[str, str], str]:
    """{(from, to): label}; every line of the text but the head's is a node or an edge."""
    lines = to_dot(instructions, NAMES).splitlines()
    assert lines[0] == "digraph step {" and lines[-1] == "}"
    rest = [line for line in lines[1:-1] if not re.match(r"  (node|edge) \[", line)]
    assert all(NODE.fullmatch(line) or EDGE.fullmatch(line) for line in rest)
    return {(m[1], m[2]): m[3].strip('"') for m in map(EDGE.fullmatch, rest) if m}


def nodes_of(*instructions: Instruction) -> dict[str, tuple[str, str, str]]:
    """{name: (label, color, tooltip)}."""
    return {m[1]: (m[2], m[3], m[4]) for m in map(NODE.fullmatch, to_dot(instructions, NAMES).splitlines()) if m}


def test_read_after_write():
    assert edges_of(step(0, "relu", 0, 1), step(1, "relu", 1, 2), step(2, "add", 1, 2, 3)) == {
        ("o0", "o1"): "y",
        ("o0", "o2"): "y",
        ("o1", "o2"): "z",
    }


def test_write_after_write_and_after_read():
    assert edges_of(step(0, "fill", 1), step(1, "fill", 1)) == {("o0", "o1"): "y"}
    assert edges_of(step(0, "relu", 1, 2), step(1, "fill", 1)) == {("o0", "o1"): "y"}
    assert edges_of(step(0, "relu", 1, 2), step(1, "relu", 1, 3)) == {}


def test_a_block_that_a_third_writes_between_is_no_cause():
    found = edges_of(
        step(0, "max_pool2d", 0, 1, 2),  # writes y and z
        step(1, "fill", 1),
        step(2, "add", 1, 2, 3),
    )
    assert found == {("o0", "o1"): "y", ("o0", "o2"): "z", ("o1", "o2"): "y"}


def test_quotes_and_backslashes_in_names():
    (label, _, _) = nodes_of(step(0, "relu", 0, 1, layer='a "b" \\n'))["o0"]
    assert label == r'"relu\na \"b\" \\n"'


def test_the_graph_of_a_recording():
    cpu = device.new_cpu()
    x, w = (tensor.from_numpy(np.ones(shape, np.float32), cpu) for shape in ((5, 3), (3, 4)))
    w.name, w.stores_grad = "w", True
    with cpu.recording() as graph:
        for value, gradient in autograd.backward(autograd.reduce_sum(autograd.relu(autograd.matmul(x, w)))):
            cpu.run("copy", gradient, value)
    text = graph.to_dot()
    nodes = [m for m in map(NODE.fullmatch, text.splitlines()) if m]
    assert [m[1] for m in nodes] == [f"o{i.number}" for i in graph.operations]
    last = f"o{graph.operations[-1].number}"
    into_last = {m[1]: m[3] for m in map(EDGE.fullmatch, text.splitlines()) if m and m[2] == last}
    (first,) = (m[1] for m in nodes if m[2] == '"matmul"' and m[4] == '"forward"')
    assert into_last[first] == '"w"', "the update waits for the product that reads the weight"
