"""The tape over ops: `backward(y, dy)` yields each parameter's gradient as soon as it is final."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from singa_lite.contexts import in_own_context
from singa_lite.errors import GraphError, ShapeError
from singa_lite.graph import Phase
from singa_lite.ops import operators
from singa_lite.ops.activation import elu as elu
from singa_lite.ops.activation import gelu as gelu
from singa_lite.ops.activation import leaky_relu as leaky_relu
from singa_lite.ops.activation import relu as relu
from singa_lite.ops.activation import relu6 as relu6
from singa_lite.ops.activation import sigmoid as sigmoid
from singa_lite.ops.activation import silu as silu
from singa_lite.ops.activation import softmax as softmax
from singa_lite.ops.activation import softplus as softplus
from singa_lite.ops.activation import tanh as tanh
from singa_lite.ops.arithmetic import add as add
from singa_lite.ops.arithmetic import divide as divide
from singa_lite.ops.arithmetic import exp as exp
from singa_lite.ops.arithmetic import log as log
from singa_lite.ops.arithmetic import multiply as multiply
from singa_lite.ops.arithmetic import power as power
from singa_lite.ops.arithmetic import scale as scale
from singa_lite.ops.arithmetic import shift as shift
from singa_lite.ops.arithmetic import subtract as subtract
from singa_lite.ops.cast import cast as cast
from singa_lite.ops.convolution import conv2d as conv2d
from singa_lite.ops.dropout import dropout as dropout
from singa_lite.ops.linear import add_bias as add_bias
from singa_lite.ops.linear import linear as linear
from singa_lite.ops.linear import matmul as matmul
from singa_lite.ops.loss import huber as huber
from singa_lite.ops.loss import huber_values as huber_values
from singa_lite.ops.loss import sigmoid_cross_entropy as sigmoid_cross_entropy
from singa_lite.ops.loss import sigmoid_cross_entropy_values as sigmoid_cross_entropy_values
from singa_lite.ops.loss import softmax_cross_entropy as softmax_cross_entropy
from singa_lite.ops.loss import softmax_cross_entropy_values as softmax_cross_entropy_values
from singa_lite.ops.loss import squared_error as squared_error
from singa_lite.ops.loss import squared_error_values as squared_error_values
from singa_lite.ops.normalization import batch_norm as batch_norm
from singa_lite.ops.normalization import batch_norm_inference as batch_norm_inference
from singa_lite.ops.normalization import l2_norm as l2_norm
from singa_lite.ops.normalization import layer_norm as layer_norm
from singa_lite.ops.normalization import lrn as lrn
from singa_lite.ops.op import Edge, Op
from singa_lite.ops.op import no_grad as no_grad
from singa_lite.ops.pooling import avg_pool2d as avg_pool2d
from singa_lite.ops.pooling import global_avg_pool2d as global_avg_pool2d
from singa_lite.ops.pooling import max_pool2d as max_pool2d
from singa_lite.ops.reduction import reduce_mean as reduce_mean
from singa_lite.ops.reduction import reduce_sum as reduce_sum
from singa_lite.ops.shape import concat as concat
from singa_lite.ops.shape import flatten as flatten
from singa_lite.ops.shape import identity as identity
from singa_lite.ops.shape import reshape as reshape
from singa_lite.ops.shape import split as split
from singa_lite.ops.shape import transpose as transpose
from singa_lite.ops.upsample import upsample_nearest as upsample_nearest
from singa_lite.tensor import Tensor, full

operators.put_on_tensor()

Finished = list[tuple[Tensor, Tensor]]


class BackwardPass:
    """One walk down the tape, last operation first, a node at a time.

    seeds: pairs of an output's edge of the tape and the derivative by that output. wanted: ops whose output derivative
    is put into `captured` on the way. ends: ops at which the walk ends; the tape before them is left as it is. Nodes
    that lead to no parameter and to no wanted op are skipped.
    """

    def __init__(
        self, seeds: Sequence[tuple[Edge, Tensor]], wanted: Collection[Op] = (), ends: Collection[Op] = ()
    ) -> None:
        self.captured: dict[Op, Tensor] = {}
        self._graph = seeds[0][1].device.graph if seeds else None  # a record wants whole walks
        self._wanted, self._ends = frozenset(wanted), frozenset(ends)
        self._nodes = self._useful(_reachable([edge.node for edge, _ in seeds if edge.node is not None], self._ends))
        members = set(self._nodes)
        self._leads = {id(node) for node in self._nodes}
        self._uses = Counter(
            id(edge.parameter)
            for node in members
            for edge in self._edges(node)
            if edge is not None and edge.parameter is not None
        )
        self._pending: dict[tuple[int, int], Tensor] = {}
        for edge, dy in seeds:
            if edge.node in members:
                self._accumulate((id(edge.node), edge.output), dy)
        if self._graph is not None:
            self._graph.open_walks += 1
            self._end_if_done()

    def _useful(self, nodes: list[Op]) -> list[Op]:
        """The nodes that lead to a parameter or a wanted op, in the order of their making."""
        useful: set[Op] = set()
        for node in nodes:
            if node in self._wanted or any(
                edge is not None and (edge.parameter is not None or edge.node in useful) for edge in self._edges(node)
            ):
                useful.add(node)
        return [node for node in nodes if node in useful]

    def _edges(self, node: Op) -> tuple[Edge | None, ...]:
        """Where the walk goes on from this node: nowhere, if it ends there."""
        return () if node in self._ends else node.edges

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
        for index, edge in self._leading(node, parameters=False):
            with node.device.scope(Phase.DERIVATIVE, node.layer):
                self._accumulate((id(edge.node), edge.output), _derivative(node, index, dys))
        for index, edge in self._leading(node, parameters=True):
            with node.device.scope(Phase.GRADIENT, node.layer):
                finished += self._gradient(node, index, edge, dys)
        node.release()
        self._end_if_done()
        return finished

    def _leading(self, node: Op, parameters: bool) -> Iterator[tuple[int, Edge]]:
        for index, edge in enumerate(self._edges(node)):
            if edge is None:
                continue
            if edge.parameter is not None if parameters else id(edge.node) in self._leads:
                yield index, edge

    def _gradient(self, node: Op, index: int, edge: Edge, dys: tuple[Tensor, ...]) -> Finished:
        parameter = edge.parameter
        if parameter is None:
            return []
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
                f"backward: wanted a tape that is walked once, received one whose {type(node).__name__} was walked "
                "before; do the forward again, or sum the results and walk back from the sum"
            )
        for edge in () if node in ends else node.edges:
            if edge is not None and edge.node is not None and edge.node not in seen:
                seen[edge.node] = None
                stack.append(edge.node)
    return sorted(seen, key=lambda node: node.sequence)


def backward(y: Tensor, dy: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (parameter, gradient) for every tensor with `stores_grad` that y depends on.

    A parameter comes as soon as its gradient is final, once, even if several operations used it. A gradient is
    valid until the generator is asked for the next; copy it to keep it. The derivative through an operation is
    always computed before its parameters' gradients are handed out, so the consumer may update them at once.

    y: made by taped operations; dy: the derivative by y, y's shape, default 1 for a y of one element.
    GraphError if y is not on the tape or was walked before; ShapeError or TypeError if dy does not fit.
    """
    if y.creator is None:
        raise GraphError("backward: y was not made by taped operations over tensors with stores_grad")
    if dy is None:
        if y.size() != 1:
            raise ShapeError(f"backward without dy: wanted a y of one element, received shape {y.shape}")
        with y.device.scope(Phase.DERIVATIVE):
            dy = full(y.shape, 1, y.dtype, y.device)
    if dy.shape != y.shape:
        raise ShapeError(f"backward: wanted dy of y's shape {y.shape}, received {dy.shape}")
    if dy.dtype != y.dtype:
        raise TypeError(f"backward: wanted dy of y's dtype {y.dtype}, received {dy.dtype}")
    return _walk(BackwardPass([(Edge(y.creator, y.output_index, None), dy)]))


def _walk(tape: BackwardPass) -> Iterator[tuple[Tensor, Tensor]]:
    try:
        while tape.next_sequence >= 0:
            for parameter, gradient in tape.step():
                yield parameter, gradient
                gradient.release()
    finally:
        tape.close()
