"""A side of a rule: the shapes that it is stated for, its function's results with their derivatives, and its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from singa_lite.autograd import identity
from singa_lite.autograd.backward_pass import BackwardPass
from singa_lite.autograd.ops.op import Edge, no_grad
from singa_lite.common.checks import is_int
from singa_lite.common.errors import RuleError
from singa_lite.common.strides import span
from singa_lite.compiler.ir.matching import Side, Sides, connected
from singa_lite.compiler.ir.operation import Operand, blocks_of
from singa_lite.device import Device
from singa_lite.tensor import Shape, Tensor

#: A side of a rule: tensors in, one or a tuple of them out.
Function = Callable[..., object]
#: By which inputs there are derivatives.
Needs = tuple[bool, ...]
#: Shapes of all inputs; an extent is a number, or a name that stands for one number wherever it occurs.
Stated = tuple[tuple[int | str, ...], ...]

#: Axes of inputs of which nothing is stated but that they are alike.
AXES = ("n", "c", "h", "w")
#: What names are tried as: unequal extents, others, and 1 alone.
EXTENTS = ((3, 5, 2, 4, 7, 6, 9, 8), (2, 7, 6, 3, 5, 9, 4, 11), (1,) * 8)


def checked_shapes(where: str, given: object, count: int) -> list[Stated]:
    """The alternatives that a rule is stated for. given: shapes of its inputs, None: all alike, of one to four axes.

    TypeError, ValueError for what is no such thing.
    """
    if given is None:
        return [(AXES[:axes],) * count for axes in range(1, len(AXES) + 1)]
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(
            f'{where} inputs: wanted a shape for each input, such as [("n", "k"), ("k", 3)], received {given!r}'
        )
    if len(given) != count:
        raise ValueError(f"{where} inputs: wanted a shape for each of {count} inputs, received {len(given)}")
    for shape in given:
        extents = shape if isinstance(shape, Sequence) and not isinstance(shape, str) else [None]
        if not all(bool(e) if isinstance(e, str) else is_int(e) and e > 0 for e in extents):
            raise TypeError(f'{where} inputs: wanted shapes of numbers and names, such as ("n", 3), received {shape!r}')
    stated = tuple(tuple(shape) for shape in given)
    if len(_names(stated)) > len(EXTENTS[0]):
        raise ValueError(f"{where} inputs: wanted at most {len(EXTENTS[0])} names, received {_names(stated)}")
    return [stated]


def trials(stated: Stated) -> Iterator[list[Shape]]:
    """Shapes of the inputs, as often as they are tried."""
    for extents in EXTENTS if _names(stated) else EXTENTS[:1]:
        known = dict(zip(_names(stated), extents, strict=False))
        yield [tuple(known[e] if isinstance(e, str) else e for e in shape) for shape in stated]


def fits(stated: Stated, shapes: Sequence[Shape]) -> bool:
    """Whether these are shapes that are stated."""
    known: dict[str, int] = {}
    if [len(shape) for shape in stated] != [len(shape) for shape in shapes]:
        return False
    pairs = (pair for wanted, found in zip(stated, shapes, strict=True) for pair in zip(wanted, found, strict=True))
    return all((known.setdefault(e, found) if isinstance(e, str) else e) == found for e, found in pairs)


def _names(stated: Stated) -> list[str]:
    return list(dict.fromkeys(extent for shape in stated for extent in shape if isinstance(extent, str)))


def results(function: Function, inputs: Sequence[Tensor], needs: Sequence[bool], dy: Tensor | None) -> list[Tensor]:
    """The function's results, and behind them the derivatives by the inputs that need one.

    dy: the derivative by the one result, where any does; None where none does. TypeError for what are no tensors, and
    where a derivative is needed and there is none.
    """
    if dy is None:
        with no_grad():
            return _tensors(function(*inputs))
    given = list(inputs)
    for index, needed in enumerate(needs):
        if needed:  # as if an operation before the function had made it
            leaf = inputs[index].detach()
            leaf.stores_grad = True
            given[index] = identity(leaf)
    (y,) = _tensors(function(*given))
    nodes = [tensor.creator for tensor, needed in zip(given, needs, strict=True) if needed]
    if y.creator is None or y.creator in nodes:
        raise TypeError("wanted a result that derivatives pass through, received one that is no operation's")
    walk = BackwardPass([(Edge(y.creator, y.output_index, None), dy)], wanted=nodes, ends=nodes)
    while walk.next_sequence >= 0:
        walk.step()
    if len(walk.captured) < len(nodes):
        raise TypeError("wanted a result that goes by all inputs, received one without a derivative by some")
    return [y.detach(), *(walk.captured[node] for node in nodes)]


def _tensors(made: object) -> list[Tensor]:
    found = list(made) if isinstance(made, tuple) else [made]
    wrong = [one for one in found if not isinstance(one, Tensor)]
    if wrong or not found:
        raise TypeError(f"wanted a Tensor or a tuple of them, received {type(wrong[0]).__name__ if wrong else 'none'}")
    return [one for one in found if isinstance(one, Tensor)]


def traced(where: str, function: Function, forms: Sequence[Operand], needs: Needs, device: Device) -> Side:
    """The operations that a function records for inputs of these forms. forms: of the inputs; where a derivative is
    needed, behind them that of dy, if it is known: by default it lies as the result does.

    RuleError for a function that is no pattern: one that changes its inputs, or takes values from elsewhere.
    """
    with device.recording() as graph:
        inputs = [_tensor(device, form) for form in forms[: len(needs)]]
        dy = None
        if any(needs):
            like = forms[-1] if len(forms) > len(needs) else _result_form(function, inputs)
            dy = _tensor(device, like)
        tensors = inputs if dy is None else [*inputs, dy]
        given = tuple(graph.operand(tensor) for tensor in tensors)
        start = graph.count
        made = tuple(graph.operand(tensor) for tensor in results(function, inputs, needs, dy))
    instructions = tuple(graph.instructions[start:])
    taken = {operand.block for operand in given}
    for instruction in instructions:
        if any(operand.block in taken for operand in instruction.writes):
            raise RuleError(f"{where}: wanted a function that makes new tensors, received one that changes its inputs")
    outside = [b for i in instructions for b in blocks_of(i) if b not in taken and graph.blocks[b].fresh is None]
    if outside:
        raise RuleError(f"{where}: wanted a function of its inputs alone, received one that takes other tensors")
    return Side(instructions, given, made)


def is_connected(side: Side) -> bool:
    """Whether it has operations, and each shares a tensor with another one."""
    blocks = [blocks_of(instruction) for instruction in side.instructions]
    return bool(blocks) and len(connected(blocks)) == len(blocks)


def check_sides(where: str, sides: Sides, names: Sequence[str]) -> None:
    """RuleError for a pattern that could not be found in a record, or a side that makes no result. names: of inputs."""
    pattern = sides.pattern
    if not pattern.instructions:
        raise RuleError(f"{where}: wanted a pattern with operations, received one without")
    if not is_connected(pattern):
        raise RuleError(f"{where}: wanted a pattern whose operations share tensors, received several apart")
    read = {operand for i in pattern.instructions for operand in i.reads}
    for name, operand in zip(names, pattern.inputs, strict=True):
        if operand not in read:
            raise RuleError(f"{where}: wanted a pattern that gives {name!r} to an operation as it is, received none")
    for which, side in (("pattern", pattern), ("replacement", sides.replacement)):
        if not makes_results(side):
            raise RuleError(
                f"{where}: wanted a {which} that makes each result anew, received one that hands on an input or a view"
            )


def paired(where: str, pattern: Side, replacement: Side) -> Sides:
    """Both sides, without results that both hand on from an input. RuleError where their results are not alike."""
    if len(pattern.outputs) != len(replacement.outputs):
        raise RuleError(
            f"{where}: wanted as many results of both sides, received {len(pattern.outputs)} and "
            f"{len(replacement.outputs)}"
        )
    pairs = []
    for one, other in zip(pattern.outputs, replacement.outputs, strict=True):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise RuleError(
                f"{where}: wanted both sides of one shape and dtype, received {one.shape} {one.dtype} of the pattern "
                f"and {other.shape} {other.dtype} of the replacement"
            )
        if one not in pattern.inputs or pattern.inputs.index(one) != _index(replacement.inputs, other):
            pairs.append((one, other))
    return Sides(
        pattern._replace(outputs=tuple(one for one, _ in pairs)),
        replacement._replace(outputs=tuple(other for _, other in pairs)),
    )


def lie_alike(sides: Sides) -> bool:
    """Whether the replacement's results may lie where the pattern's do."""
    return all(
        one[1:] == other[1:] for one, other in zip(sides.pattern.outputs, sides.replacement.outputs, strict=True)
    )


def _index(inputs: Sequence[Operand], operand: Operand) -> int:
    return inputs.index(operand) if operand in inputs else -1


def makes_results(side: Side) -> bool:
    """Whether each result is a tensor of its own that an operation wrote."""
    blocks = [operand.block for operand in side.outputs]
    written = {operand.block for i in side.instructions for operand in i.writes}
    return len(set(blocks)) == len(blocks) and written.issuperset(blocks)


def _result_form(function: Function, inputs: Sequence[Tensor]) -> Operand:
    """Of the function's one result, by calling it."""
    found = results(function, inputs, [False] * len(inputs), None)
    if len(found) > 1:
        raise RuleError(f"wanted one result, through which derivatives pass, received {len(found)}")
    (y,) = found
    return Operand(-1, y.shape, y.dtype, y.strides, 0)


def _tensor(device: Device, form: Operand) -> Tensor:
    """A tensor of this form over a block of its own."""
    nbytes = span(form.shape, form.strides, form.dtype.itemsize).stop
    return Tensor(device.empty((nbytes,), "u1").block, form.shape, form.dtype, form.strides)
