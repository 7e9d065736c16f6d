"""Convolution in three directions by cuDNN, and with its bias and ReLU in one graph.

float32 without TF32 has few engines that read images channels last: the others convert them to C order in their
workspace, as large as all tensors of the call. How much of it a call gets is for the plan of memory to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from singa_lite.common.array_types import DType
from singa_lite.common.strides import laid_out
from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels import depthwise
from singa_lite.kernels.cuda_kernels.elementwise import activated
from singa_lite.kernels.cuda_kernels.images import groups_of, window_of
from singa_lite.kernels.cuda_kernels.libraries.cudnn_call import Draw
from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import Graph
from singa_lite.kernels.cuda_kernels.libraries.cudnn_plan import CallPlanner
from singa_lite.kernels.cuda_kernels.libraries.cudnn_tensor import DTYPES, GraphTensor, strides_in
from singa_lite.kernels.cuda_kernels.libraries.nan_probe import NanProbe, Question, Trial
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.source import HALVES
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec

#: Orders of axes that engines are made for, outermost first.
_ORDERS = ((0, 2, 3, 1), (0, 1, 2, 3))


def _geometry(window: Window) -> dict[str, list[int]]:
    """As the library takes it."""
    return {
        "pre_padding": list(window.pad_before),
        "post_padding": list(window.pad_behind),
        "stride": list(window.stride),
        "dilation": list(window.dilation),
    }


class Convolutions:
    """The builders; groups follow from the numbers of channels, so the setting is not told.

    None for depthwise convolutions of 32 bits and more, forward and for the derivative: for those the library puts its
    generic engine first, and `depthwise.py` is made for them. It has engines for 16 bits, and for gradients.

    trial: how the library is asked whether its ReLU in a graph keeps NaN; where it does not, a kernel of ours is
    applied to the result. None: it does.
    """

    #: (kernel, activation) that is done in one go.
    FUSIONS = (("conv2d", "relu"),)

    def __init__(self, planner: CallPlanner, trial: Trial | None = None) -> None:
        self.planner = planner
        self._probe = NanProbe(trial)

    @property
    def builders(self) -> Mapping[str, CallBuilder[Routine]]:
        """By kernel."""
        return {
            "conv2d": self.forward,
            "conv2d_derivative": self.derivative,
            "conv2d_gradient": self.gradient,
        }

    def forward(self, call: Call) -> Routine | None:
        """With ReLU: in the same graph, or where that is not to be had or loses NaN, by a kernel of ours behind it."""
        x, weight, bias, y = given = call["x"], call["weight"], call.optional("bias"), call["y"]
        activation, window = call.text("activation"), window_of(call)
        if activation not in ("", "relu") or _is_ours(weight, call):
            return None
        if not activation:
            return self._forward(*given, window)
        fused = self._forward(*given, window, relu=True) if self.keeps_nan(x, bias) else None
        if fused is not None:
            return fused
        routine, relu = self._forward(*given, window), activated("relu", y)
        return None if routine is None or relu is None else routine.then(relu)

    def keeps_nan(self, x: TensorSpec, bias: TensorSpec | None) -> bool:
        """Of convolutions of this dtype, by one of 3 x 3 over few channels."""

        def questions() -> Iterator[Question]:
            image, filters = (_channels_last(shape, x.dtype) for shape in ((3, 8, 6, 6), (8, 8, 3, 3)))
            vector = None if bias is None else TensorSpec((8,), x.dtype, (x.dtype.itemsize,))
            result = _channels_last((3, 8, 6, 6), x.dtype)
            window = Window((3, 3), pad=(1, 1, 1, 1))
            routine = self._forward(image, filters, vector, result, window, relu=True)
            yield Question(routine, (image, filters, vector, result))

        return self._probe.keeps_nan((x.dtype.name, bias is None), questions)

    def derivative(self, call: Call) -> Routine | None:
        """The library's dgrad."""
        dy, weight, dx = call.all("dy", "weight", "dx")
        operands = _graph_tensors(dy, weight, dx)
        if not operands or not _is_packed(weight) or _is_ours(weight, call):
            return None
        loss, filters, image = operands

        def draw(graph: Graph) -> None:
            given = {"loss": loss.read(graph), "filter": filters.read(graph)}
            image.write(graph.conv_dgrad(**given, **_geometry(window_of(call))))

        return self._routine(draw, dy, weight, dx)

    def gradient(self, call: Call) -> Routine | None:
        """The library's wgrad."""
        x, dy, dweight = call.all("x", "dy", "dweight")
        operands = _graph_tensors(x, dy, dweight)
        if not operands or not _is_packed(dweight):
            return None
        image, loss, filters = operands

        def draw(graph: Graph) -> None:
            given = {"image": image.read(graph), "loss": loss.read(graph)}
            filters.write(graph.conv_wgrad(**given, **_geometry(window_of(call))))

        return self._routine(draw, x, dy, dweight)

    def _forward(
        self,
        x: TensorSpec,
        weight: TensorSpec,
        bias: TensorSpec | None,
        y: TensorSpec,
        window: Window,
        relu: bool = False,
    ) -> Routine | None:
        operands = _graph_tensors(x, weight, y, uids=(1, 2, 4))
        offset = None if bias is None else _vector(bias, uid=3)
        if not operands or not _is_packed(weight):
            return None
        if bias is not None and (offset is None or bias.dtype != x.dtype):
            return None
        image, filters, target = operands

        def draw(graph: Graph) -> None:
            result = graph.conv_fprop(image=image.read(graph), weight=filters.read(graph), **_geometry(window))
            if offset is not None:
                result = graph.bias(input=result, bias=offset.read(graph))
            target.write(graph.relu(input=result) if relu else result)

        return self._routine(draw, x, weight, bias, y)

    def _routine(self, draw: Draw, *specs: TensorSpec | None) -> Routine | None:
        given = [spec for spec in specs if spec is not None]
        nbytes = sum(spec.size * spec.dtype.itemsize for spec in given)
        call = self.planner.call(draw, given[0].dtype.name, nbytes)
        return None if call is None else Routine().call(call, *specs)


def _is_ours(weight: TensorSpec, call: Call) -> bool:
    """Whether the kernels of `depthwise.py` are asked in the library's place."""
    return depthwise.is_depthwise(weight, groups_of(call)) and weight.dtype.name not in HALVES


def _channels_last(shape: tuple[int, ...], dtype: DType) -> TensorSpec:
    return TensorSpec(shape, dtype, laid_out(shape, _ORDERS[0], dtype.itemsize))


def _graph_tensors(*specs: TensorSpec, uids: Sequence[int] = (1, 2, 3)) -> list[GraphTensor]:
    """Tensors of one dtype; none where the library does not know it, or one of the layouts."""
    if specs[0].dtype.name not in DTYPES or any(spec.dtype != specs[0].dtype for spec in specs):
        return []
    lying = zip(uids, specs, map(strides_of, specs), strict=True)
    known = [GraphTensor(uid, spec.shape, own, spec.dtype.name) for uid, spec, own in lying if own is not None]
    return known if len(known) == len(specs) else []


def _is_packed(spec: TensorSpec) -> bool:
    """Whether it has no gaps: the library refuses filters that have."""
    strides = strides_of(spec)
    return strides is not None and sum(step * (n - 1) for step, n in zip(strides, spec.shape, strict=True)) < spec.size


def _vector(spec: TensorSpec, uid: int) -> GraphTensor | None:
    """One number a channel, without gaps."""
    if spec.size > 1 and spec.strides != (spec.dtype.itemsize,):
        return None
    return GraphTensor(uid, (1, spec.size, 1, 1), (spec.size, 1, spec.size, spec.size), spec.dtype.name)


def strides_of(spec: TensorSpec) -> tuple[int, ...] | None:
    """Strides in elements, channels last or in C order, gaps allowed but between innermost neighbours; else None."""
    return next((found for order in _ORDERS if (found := strides_in(spec, order)) is not None), None)
