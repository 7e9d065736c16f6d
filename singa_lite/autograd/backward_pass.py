"""BackwardPass: one walk down the tape, an operation at a time, and the gradients that are final on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from singa_lite.autograd.ops.op import Edge, Op
from singa_lite.common.contexts import in_own_context
from singa_lite.common.errors import GraphError
from singa_lite.device import device_of
from singa_lite.graph.graph import Phase
from singa_lite.tensor import Tensor, full

#: Parameters and their gradients.
Finished = list[tuple[Tensor, Tensor]]


class BackwardPass:
    """One walk down the tape, last operation first, a node at a time.

    seeds: pairs of an output's edge of the tape and the derivative by that output. wanted: ops whose output derivative
    is put into `captured` on the way. ends: ops at which the walk ends; the tape before them is left as it is.
    parameters: whose gradients are made, None: of all. Nodes that lead to no such parameter and to no wanted op are
    skipped.
    """

    def __init__(
        self,
        seeds: Sequence[tuple[Edge, Tensor]],
        wanted: Collection[Op] = (),
        ends: Collection[Op] = (),
        parameters: Collection[Tensor] | None = None,
    ) -> None:
        self.captured: dict[Op, Tensor] = {}
        self._chosen = None if parameters is None else frozenset(id(parameter) for parameter in parameters)
        self._graph = device_of(seeds[0][1]).graph if seeds else None  # a record wants whole walks
        self._wanted, self._ends = frozenset(wanted), frozenset(ends)
        self._nodes = self._useful(_reachable([edge.node for edge, _ in seeds if edge.node is not None], self._ends))
        members = set(self._nodes)
        self._leads = {id(node) for node in self._nodes}
        self._uses = Counter(
            id(edge.parameter) for node in members for _, edge in self._edges(node) if edge.parameter is not None
        )
        self._pending: dict[tuple[int, int], Tensor] = {}
        for edge, dy in seeds:
            if edge.node in members:
                self._accumulate((id(edge.node), edge.output), dy)
        if self._graph is not None:
            self._graph.goes_back()
            self._end_if_done()

    def _useful(self, nodes: list[Op]) -> list[Op]:
        """The nodes that lead to a parameter or a wanted op, in the order of their making."""
        useful: set[Op] = set()
        for node in nodes:
            leads = any(edge.parameter is not None or edge.node in useful for _, edge in self._edges(node))
            if leads or node in self._wanted:
                useful.add(node)
        return [node for node in nodes if node in useful]

    def _edges(self, node: Op) -> list[tuple[int, Edge]]:
        """The edges by which the walk goes on from a node, to others and chosen parameters, by index of the input."""
        chosen, edges = self._chosen, () if node in self._ends else node.edges
        return [
            (index, edge)
            for index, edge in enumerate(edges)
            if edge is not None and (edge.parameter is None or chosen is None or id(edge.parameter) in chosen)
        ]

    @property
    def nodes(self) -> Sequence[Op]:
        """What is still to be walked, in the order of their making."""
        return self._nodes

    def reaches(self, op: Op) -> bool:
        """Whether the walk will come to this op."""
        return id(op) in self._leads

    @property
    def next_sequence(self) -> int:
        """The sequence number of the node that `step` would take next; -1 at the end."""
        return self._nodes[-1].sequence if self._nodes else -1

    @in_own_context
    def step(self) -> Finished:
        """Take one node; returns the parameters whose gradients are final now, with these gradients."""
        node = self._nodes.pop()
        dys = self._take(node)
        if node in self._wanted:
            self.captured[node] = dys[0]
        finished: Finished = []
        edges = self._edges(node)
        for index, edge in edges:
            if id(edge.node) in self._leads:
                with node.device.scope(Phase.DERIVATIVE, node.layer):
                    self._accumulate((id(edge.node), edge.output), _derivative(node, index, dys))
        for index, edge in edges:
            if edge.parameter is not None:
                with node.device.scope(Phase.GRADIENT, node.layer):
                    finished += self._gradient(node, index, edge.parameter, dys)
        node.release()
        self._end_if_done()
        return finished

    def _gradient(self, node: Op, index: int, parameter: Tensor, dys: tuple[Tensor, ...]) -> Finished:
        gradient = _derivative(node, index, dys)
        if any(gradient.block is dy.block for dy in dys):
            # The consumer may change a gradient in place, and this one is also somebody's derivative.
            shared, gradient = gradient, node.empty_like(gradient)
            node.device.run("copy", shared, gradient)
        self._accumulate((id(parameter), 0), gradient)
        self._uses[id(parameter)] -= 1
        if self._uses[id(parameter)]:
            return []
        total = self._pending.pop((id(parameter), 0))
        total.name = parameter.name
        return [(parameter, total)]

    def _accumulate(self, key: tuple[int, int], value: Tensor) -> None:
        before = self._pending.get(key)
        if before is None:
            self._pending[key] = value.detach()
            return
        total = before.device.empty(before.shape, before.dtype, before.memory_order())
        before.device.run("add", before, value, total)
        self._pending[key] = total

    def _take(self, node: Op) -> tuple[Tensor, ...]:
        dys = []
        for index, (shape, dtype) in enumerate(node.outputs):
            dy = self._pending.pop((id(node), index), None)
            if dy is None:  # an output that nobody used
                with node.device.scope(Phase.DERIVATIVE, node.layer):
                    dy = full(shape, 0, dtype, node.device)
            dys.append(dy)
        return tuple(dys)

    def gradients(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Walk to the end; each parameter with its gradient, which is given back when the next one is asked for."""
        try:
            while self.next_sequence >= 0:
                for parameter, gradient in self.step():
                    yield parameter, gradient
                    gradient.release()
        finally:
            self.close()

    def finish(self) -> None:
        """End the walk here on purpose: what is left of the tape is not wanted."""
        self._nodes.clear()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._graph is not None and not self._nodes:
            self._graph.open_walks -= 1
            self._graph = None

    def close(self) -> None:
        """Drop whatever is left of the tape and of the derivatives."""
        for node in self._nodes:
            node.release()
        self._nodes.clear()
        self._pending.clear()


def unit_derivative(y: Tensor) -> Tensor:
    """The derivative by itself of a y of one element."""
    with device_of(y).scope(Phase.DERIVATIVE):
        return full(y.shape, 1, y.dtype, y.device)


def _derivative(node: Op, index: int, dys: tuple[Tensor, ...]) -> Tensor:
    made = node.made.pop(index, None)
    return made if made is not None else node.backward(index, *dys)


def _reachable(roots: Sequence[Op], ends: Collection[Op]) -> list[Op]:
    """All nodes at or before the roots and not before the ends, in the order of their making.

    GraphError for one that was walked before.
    """
    seen = dict.fromkeys(roots)
    stack = list(seen)
    while stack:
        node = stack.pop()
        if not node.edges:  # released: what lies before it is lost, and would be missing without a word
            raise GraphError(
                f"backward: wanted a tape that is walked once, received one whose {node.label} was walked "
                "before; do the forward again, or sum the results and walk back from the sum"
            )
        for edge in () if node in ends else node.edges:
            if edge is not None and edge.node is not None and edge.node not in seen:
                seen[edge.node] = None
                stack.append(edge.node)
    return sorted(seen, key=lambda node: node.sequence)
