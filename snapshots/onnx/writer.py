"""Writer: an ONNX graph in the making, its nodes, its constants, and which of its values each tensor is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from singa_lite.common.array_types import DType
from singa_lite.common.checks import is_bfloat16
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.onnx.trace import Extent, Place, Trace, extent, place_of
from singa_lite.snapshots.onnx.types import tensor_type
from singa_lite.snapshots.tree import LazyArray
from singa_lite.tensor import Shape, Tensor, to_numpy

#: The name of a value of the graph.
Value = str
#: Where a slice that reaches the end of an axis stops.
TO_END = np.iinfo(np.int64).max


class Writer:
    """Nodes and initializers of one graph. opset: the version of ONNX's operators; owned: {name: tensor} of the net's
    parameters, states and constants; dtype: of all floats, None for those of the net.
    """

    def __init__(self, traces: Sequence[Trace], opset: int, owned: Mapping[str, Tensor], dtype: DType | None) -> None:
        self.opset, self.traces, self.dtype = opset, traces, dtype
        self.sizes = [trace.sizes for trace in traces]
        self.owned = owned
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, LazyArray] = {}
        self.constants: dict[str, onnx.TensorProto] = {}
        self.layer = ""
        #: {value that a Reshape made: the shapes before in each trace}
        self.shapes: dict[Value, list[Shape]] = {}
        #: {state of the net: what it is behind the last node that changes it, as `output` takes it}
        self.states: dict[str, tuple[Value, DType, Sequence[Shape]]] = {}
        self._owned = {id(tensor.block): (name, tensor) for name, tensor in owned.items()}
        self._values: dict[tuple[Place, ...], Value] = {}
        self._initializers: dict[int, tuple[Value, Tensor]] = {}
        self._constants: dict[tuple[str, Shape, bytes], Value] = {}
        #: {name that is taken: the last number behind it}
        self._used = dict.fromkeys(traces[0].outputs, 1)
        self._makers: dict[Value, onnx.NodeProto] = {}

    # ---- values

    def unique(self, name: str) -> Value:
        """The name, with a number behind it where it is taken."""
        found, count = name, self._used.get(name, 1)
        while found in self._used:
            count += 1
            found = f"{name}_{count}"
        self._used |= {found: 1, name: count}
        return found

    def input(self, name: str, dtype: DType, shapes: Sequence[Shape]) -> Value:
        """A new input of the graph. shapes: its shape in each trace."""
        self.inputs.append(self._info(name, dtype, shapes))
        self._used[name] = 1
        return name

    def output(self, name: str, value: Value, dtype: DType, shapes: Sequence[Shape]) -> None:
        """Make the value an output of the graph; one of an input's name ends in "/output"."""
        self.layer = name
        made = f"{name}/output" if any(given.name == name for given in self.inputs) else name
        self.outputs.append(self._info(made, dtype, shapes))
        self.nodes.append(helper.make_node("Identity", [value], [made], self.unique(f"{name}/output")))

    def _info(self, name: str, dtype: DType, shapes: Sequence[Shape]) -> onnx.ValueInfoProto:
        """shapes: their extents become numbers, symbols, or None for what is computed of them."""
        shape = [
            one.constant if one and not one.factor else one.symbols[0] if one and one[:2] == (0, 1) else None
            for one in self.extents(shapes)
        ]
        return helper.make_tensor_value_info(name, tensor_type(self.dtype_of(dtype)), shape)

    def bind(self, tensors: Sequence[Tensor], value: Value) -> None:
        """From here on the tensor, given as it is in each trace, is this value."""
        self._values[tuple(map(place_of, tensors))] = value

    def value(self, tensors: Sequence[Tensor]) -> Value:
        """The value that a tensor is, given as it is in each trace: an initializer where no operation made it."""
        places = tuple(map(place_of, tensors))
        if places in self._values:
            return self._values[places]
        if all(other.block is tensors[0].block for other in tensors):
            return self._part(*self._initializer(tensors[0]), tensors)
        return self._repeated(tensors)

    def _repeated(self, tensors: Sequence[Tensor]) -> Value:
        """Returns a constant that a layer makes for each batch: equal numbers, expanded along axes that change."""
        arrays = [to_numpy(tensor) for tensor in tensors]
        shapes = [array.shape for array in arrays]
        changing = [len({*extents}) > 1 for extents in zip(*shapes, strict=True)]
        once = arrays[0][tuple(slice(0, 1) if changes else slice(None) for changes in changing)]
        for array in arrays:
            if not np.array_equal(array, np.broadcast_to(once, array.shape), equal_nan=array.dtype.kind == "f"):
                raise SnapshotError(
                    f"export: wanted constants that do not depend on the size of a batch, received others in layer "
                    f"{self.layer!r}: of shapes {shapes[0]} and {array.shape}"
                )
        value = self.constant(once, self.dtype_of(tensors[0].dtype))
        return self.node("Expand", value, self.numbers(self.extents(shapes))) if any(changing) else value

    def _initializer(self, tensor: Tensor) -> tuple[Value, Tensor]:
        """The initializer of a block, and the tensor that it is of."""
        block = id(tensor.block)
        name, whole = self._owned.get(block, (tensor.name, tensor))
        if block in self._initializers:
            return self._initializers[block]
        if any(first[0] == block for first, *_ in self._values):
            raise SnapshotError(
                f"export: wanted operations of autograd, received a view of shape {tensor.shape} that none of them "
                f"made, in layer {self.layer!r}"
            )
        name = self.unique(name or f"{self.layer}/constant".lstrip("/"))
        self._initializers[block] = name, whole
        self.weights[name] = LazyArray(whole.shape, self.dtype_of(whole.dtype), partial(to_numpy, whole))
        return name, whole

    def _part(self, value: Value, whole: Tensor, tensors: Sequence[Tensor]) -> Value:
        """The first elements of an initializer along axes of which a tensor has fewer."""
        shapes = [tensor.shape for tensor in tensors]
        if any(tensor.strides != whole.strides or tensor.offset != whole.offset for tensor in tensors):
            raise SnapshotError(
                f"export: wanted parameters and constants whole or their first elements, received another view of "
                f"{value!r}, in layer {self.layer!r}"
            )
        axes = [axis for axis, extent in enumerate(whole.shape) if any(shape[axis] != extent for shape in shapes)]
        if not axes:
            return value
        ends = self.numbers(self.extents([[shape[axis] for axis in axes] for shape in shapes]))
        return self.sliced(value, axes, self.constant([0] * len(axes)), ends, self.constant([1] * len(axes)))

    def constant(self, array: Any, dtype: Any = np.int64) -> Value:
        """An initializer with these numbers; equal ones are one."""
        found = np.asarray(array, dtype)
        key = str(found.dtype), found.shape, found.tobytes()
        if key not in self._constants:
            self._constants[key] = name = self.unique("constant")
            self.constants[name] = numpy_helper.from_array(found, name)
        return self._constants[key]

    def float(self, number: float, dtype: DType) -> Value:
        """A number in a float dtype, of no axes."""
        return self.constant(number, self.dtype_of(dtype))

    def dtype_of(self, dtype: DType) -> DType:
        """The dtype in the file of numbers of this dtype."""
        is_float = dtype.kind == "f" or is_bfloat16(dtype)
        return self.dtype if is_float and self.dtype is not None else dtype

    # ---- nodes

    def node(self, kind: str, *inputs: Value, **attributes: Any) -> Value:
        """The output of a new node. "": an optional input that is left out."""
        return self.multi_output_node(kind, 1, *inputs, **attributes)[0]

    def multi_output_node(self, kind: str, count: int, *inputs: Value, **attributes: Any) -> list[Value]:
        """All outputs of a new node."""
        name = self.unique(f"{self.layer}/{kind}".lstrip("/"))
        outputs = [name] if count == 1 else [f"{name}:{index}" for index in range(count)]
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        self.nodes.append(helper.make_node(kind, given, outputs, name, **attributes))
        self._makers.update(dict.fromkeys(outputs, self.nodes[-1]))
        return outputs

    def maker(self, value: Value, kind: str) -> onnx.NodeProto | None:
        """The node of this kind that made a value; None where another one did, or none."""
        found = self._makers.get(value)
        return found if found is not None and found.op_type == kind else None

    def scan(
        self, body: Callable[..., list[Value]], states: Sequence[Value], inputs: Sequence[Value], **attributes: Any
    ) -> list[Value]:
        """The last states and what each step gives, of a body that is done along axis 0 of the inputs.

        body: of the states and a slice of each input, returns the states behind the step and what it gives.
        """
        outside, self.nodes = self.nodes, []
        given = [self.unique(f"{self.layer}/step") for _ in (*states, *inputs)]
        results = body(*given)
        taken, made = ([helper.make_value_info(n, onnx.TypeProto()) for n in names] for names in (given, results))
        graph = helper.make_graph(self.nodes, "step", taken, made)
        self.nodes = outside
        return self.multi_output_node(
            "Scan", len(results), *states, *inputs, body=graph, num_scan_inputs=len(inputs), **attributes
        )

    def cast(self, value: Value, dtype: DType) -> Value:
        """The value in another dtype."""
        return self.node("Cast", value, to=tensor_type(self.dtype_of(dtype)))

    # ---- shapes

    def extents(self, shapes: Sequence[Sequence[int]]) -> list[Extent | None]:
        """How each of some numbers depends on the symbols. shapes: the numbers in each trace."""
        return [extent(values, self.sizes) for values in zip(*shapes, strict=True)]

    def numbers(self, extents: Sequence[Extent | None]) -> Value:
        """The numbers as int64 of one axis: an initializer, or computed from the inputs' shapes."""
        found = [self._known(one) for one in extents]
        if not any(one.factor for one in found):
            return self.constant([one.constant for one in found])
        return self.node("Concat", *map(self._number, found), axis=0) if len(found) > 1 else self._number(found[0])

    def _known(self, found: Extent | None) -> Extent:
        if found is None:
            raise SnapshotError(
                f"export: wanted extents that are sums or products of batch size and length, received others in layer "
                f"{self.layer!r}"
            )
        return found

    def _number(self, found: Extent) -> Value:
        if not found.factor:
            return self.constant([found.constant])
        value = self.size(found.symbols[0])
        for symbol in found.symbols[1:]:
            value = self.node("Mul", value, self.size(symbol))
        if found.factor != 1:
            value = self.node("Mul", value, self.constant([found.factor]))
        return self.node("Add", value, self.constant([found.constant])) if found.constant else value

    def size(self, symbol: str) -> Value:
        """The extent that a symbol stands for, int64 of one element."""
        name = f"size/{symbol}"
        if name not in self._used:
            self._used[name] = 1
            trace = self.traces[0]
            timed = (name for name, length in trace.lengths.items() if length == symbol)
            given, axis = (next(iter(trace.inputs)), 0) if symbol == "batch" else (next(timed), 1)
            self.nodes.append(helper.make_node("Shape", [given], [name], name, start=axis, end=axis + 1))
        return name

    def reshaped(self, value: Value, shapes: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> Value:
        """The value in another shape. shapes, before: the new shape and the old one in each trace."""
        if [*map(tuple, shapes)] == [*map(tuple, before)]:
            return value
        wanted, had = self.extents(shapes), self.extents(before)
        if sum(one is None or bool(one.factor) for one in wanted) == 1:
            target = self.constant([one.constant if one and not one.factor else -1 for one in wanted])
            return self.node("Reshape", value, target)
        pairs = zip(wanted, [*had, *[None] * len(wanted)], strict=False)
        taken = [Extent(0) if one and one.factor and one == other else one for one, other in pairs]
        if sum(one is None or bool(one.factor) for one in taken) <= 1:
            target = self.constant([one.constant if one and not one.factor else -1 for one in taken])
            return self.node("Reshape", value, target)
        return self.node("Reshape", value, self.numbers(wanted))

    def sliced(self, value: Value, axes: Sequence[int], starts: Value, ends: Value, steps: Value) -> Value:
        """Elements of the value along axes."""
        return self.node("Slice", value, starts, ends, self.constant(list(axes)), steps)
