"""LayerCalls: how one forward goes through layers and the layers in them, and where on the tape each one's part begins.

    forward:    [block   own operations   [block/a   ...]   own operations   [block/b   ...]   own operations]
    walk back:           <- rest of block   a <-                        own <-   b <-                   own <-

A layer that a layer holds has a part of the tape of its own, so that its gradients are handed out, and given back,
before the walk goes on: those of a block never stand together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextvars import ContextVar
from operator import eq
from typing import NamedTuple, Protocol, TypeVar

from singa_lite.autograd import no_grad
from singa_lite.autograd.ops.op import Op, tape_position
from singa_lite.autograd.ops.shape import Identity
from singa_lite.common.contexts import in_own_context
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.keywords import accepts_arguments
from singa_lite.common.notice import warn
from singa_lite.common.unique import Unique
from singa_lite.device import Device
from singa_lite.layer import lora
from singa_lite.layer.base import LayerBase
from singa_lite.layer.sample_shape import is_shorter
from singa_lite.tensor import Shape, Tensor

R = TypeVar("R")


def set_up(layer: LayerBase, shapes: Sequence[Shape]) -> object:
    """Returns what the layer's setup gives. TypeError where its class has no setup or forward for such inputs."""
    _check_method(layer, "setup(*shapes)", shapes, 0)
    output: object = getattr(layer, "setup")(*shapes)  # noqa: B009
    lora.add_tensors(layer)
    _check_method(layer, "forward(training, *inputs)", shapes, 1)
    return output


def _check_method(layer: LayerBase, form: str, shapes: Sequence[Shape], further: int) -> None:
    """further: how many arguments come before the inputs."""
    if not accepts_arguments(getattr(layer, form.partition("(")[0], None), further + len(shapes)):
        raise TypeError(
            f"layer {layer.path!r}: wanted a method {form} for inputs {list(shapes)}, received class "
            f"{type(layer).__name__} without one"
        )


def no_op() -> None:
    """Called before a change, where nobody has to be told of it."""


class Watcher(Protocol):
    """What is told of the layers' outputs, and of derivatives by those of layers in `names`."""

    @property
    def names(self) -> Collection[str]: ...

    def output(self, path: str, tensors: Collection[Tensor]) -> None: ...
    def derivative(self, path: str, tensors: Collection[Tensor]) -> None: ...


class Cut(NamedTuple):
    """A place on the tape where the walk back hands out what is final. Operations from `position` on lie behind it.

    layer: the path of the layer whose operations the walk has taken just before; is_first: whether these are the first
    ones of that layer, so that nothing is left of it.
    """

    layer: str
    position: int
    is_first: bool


class LayerCalls(Unique):
    """The calls of layers in one forward.

    training: layers train, the frozen ones aside. asked: paths of layers within others whose outputs are kept, for each
    time that they run, in `given`. frozen: their paths, at any depth; holding: the layers that hold
    both frozen ones and others. passing: those that do not train, but let derivatives through. moving: called before a
    layer may move its state. watcher: who looks at what layers give, None: nobody.

    ports: {path: marks on the tape that the layer's inputs have passed}, where derivatives by them can be read off;
    cuts: in the order of the forward.
    """

    def __init__(
        self,
        training: bool,
        frozen: Collection[str] = (),
        holding: Collection[str] = (),
        passing: Collection[str] = (),
        moving: Callable[[], object] = no_op,
        watcher: Watcher | None = None,
    ) -> None:
        self.training = training
        self.watcher = watcher
        self.watched: dict[str, list[Op]] = {}
        self.frozen = frozenset(frozen)
        self.ports: dict[str, list[Op]] = {}
        self.cuts: list[Cut] = []
        self.asked: Collection[str] = ()
        self.given: dict[str, list[Tensor]] = {}
        self.passing = frozenset(passing)
        self._holding = frozenset(holding)
        self._moving = moving

    def begin(self) -> None:
        """Calls of layers from now on, in this context, are of this forward."""
        _current.set(self)

    def forget(self) -> None:
        """Forget marks and cuts: the tape is walked, or left."""
        self.ports.clear()
        self.cuts.clear()
        self.watched.clear()

    def observed(self, path: str, outputs: list[Tensor]) -> list[Tensor]:
        """A layer's outputs, which the watcher looks at. Where it wants derivatives by them, each passes a mark on the
        tape, at which these can be read off.
        """
        if self.watcher is None:
            return outputs
        self.watcher.output(path, outputs)
        return [self._marked(path, each) for each in outputs] if path in self.watcher.names else outputs

    def _marked(self, path: str, output: Tensor) -> Tensor:
        if not self.training or not output.requires_grad:
            return output
        mark = Identity()
        passed = mark(output)
        passed.mask = output.mask
        self.watched.setdefault(path, []).append(mark)
        return passed

    def derived(self, captured: dict[Op, Tensor]) -> None:
        """The walk back is over: the watcher gets what was captured at the marks."""
        if self.watcher is not None:
            for path, marks in self.watched.items():
                self.watcher.derivative(path, [captured.pop(mark) for mark in marks if mark in captured])

    def forward(self, layer: LayerBase, training: bool, inputs: list[Tensor]) -> object:
        """What the layer's forward gives. `inputs` may be emptied."""
        if not self.training:
            return layer.forward(False, *inputs)
        path = layer.path
        result: object
        self.cuts.append(Cut(path, tape_position(), path not in self.ports))
        self.ports.setdefault(path, [])
        if path in self.frozen:
            self._check_frozen(path, inputs)
            with no_grad():
                result = layer.forward(False, *inputs)
        elif path in self.passing:
            result = self._passing(layer, inputs)
        else:
            if layer.states:
                self._moving()
            result = layer.forward(training, *self._through_ports(path, inputs))
        outer = path.rpartition("/")[0]
        if outer:
            self.cuts.append(Cut(outer, tape_position(), False))
        return result

    def _passing(self, layer: LayerBase, inputs: list[Tensor]) -> object:
        """As in evaluation, without gradients of the layer's own parameters; derivatives pass through, if there are
        layers before it that want them.
        """
        if not any(tensor.requires_grad for tensor in inputs):
            with no_grad():
                return layer.forward(False, *inputs)
        trained = [value for value in layer.parameters.values() if value.stores_grad]
        try:
            for value in trained:
                value.requires_grad = False
            return layer.forward(False, *self._through_ports(layer.path, inputs))
        finally:
            for value in trained:
                value.requires_grad = True

    def fits(self, found: Shape, wanted: Shape) -> bool:
        """Whether an output's sample shape is as `setup` said."""
        return found == wanted

    def _through_ports(self, path: str, inputs: list[Tensor]) -> list[Tensor]:
        passed: list[Tensor] = []
        while inputs:
            tensor, port = inputs.pop(0), Identity()
            mask = tensor.mask
            if not tensor.requires_grad and self._may_derive(path, tensor):
                tensor = tensor.detach()
                tensor.requires_grad = True
            passed.append(port(tensor))
            passed[-1].mask = mask
            self.ports[path].append(port)
        return passed

    def _may_derive(self, path: str, tensor: Tensor) -> bool:
        """True if a tensor may need a derivative within a layer. Integers and flags never do. In a layer that holds
        frozen ones a tensor that needs none is to stay so, as only such tensors may go into frozen layers.
        """
        return tensor.dtype.kind not in "biu" and path not in self._holding

    def _check_frozen(self, path: str, inputs: list[Tensor]) -> None:
        """GraphError for what trains before a frozen layer: no derivative would ever come back to it."""
        if any(tensor.requires_grad for tensor in inputs):
            raise GraphError(
                f"layer {path!r}: wanted a frozen layer behind frozen ones alone, received the output of one that "
                "trains: layers within a layer freeze in the order of add_layer(), which is to be that of forward()"
            )


#: The forward that the present call is a part of; None for a layer that is called by hand.
_current: ContextVar[LayerCalls | None] = ContextVar("layer_calls", default=None)


@in_own_context
def by_itself(work: Callable[[], R]) -> R:
    """work(), in which layers run as in an evaluation of their own, whatever the present call is a part of."""
    LayerCalls(False).begin()
    return work()


def call(layer: LayerBase, device: Device, training: bool, inputs: list[Tensor]) -> list[Tensor]:
    """The outputs of a layer, of the shapes that `setup` said. `inputs` may be emptied.

    TypeError for what is no tensor, ShapeError for another shape: the layers behind were set up for these.
    """
    calls, mask = _current.get(), _mask_of(inputs)
    is_masked = mask is not None
    if not layer.passes_mask and (layer._layers or not layer.positionwise):
        mask = None
    if device.graph is not None:
        device.graph.options.note(layer)
    with device.scope(layer=layer.path):
        result = layer.forward(training, *inputs) if calls is None else calls.forward(layer, training, inputs)
        outputs = list(result) if isinstance(result, list | tuple) else [result]
        found = _checked(layer, outputs, calls)
        found = found if calls is None else calls.observed(layer.path, found)
    for output in found:
        output.mask = mask if output.mask is None else output.mask
    if is_masked and all(output.mask is None for output in found):
        _warn_of_end_of_mask(layer)
    if calls is not None and layer.path in calls.asked:
        calls.given.setdefault(layer.path, []).extend(found)
    return found


def _mask_of(inputs: list[Tensor]) -> Tensor | None:
    """The first mask that comes with the inputs."""
    return next((tensor.mask for tensor in inputs if tensor.mask is not None), None)


def _warn_of_end_of_mask(layer: LayerBase) -> None:
    """Warn, once a layer, that a mask ends at one that does not look at it. Layers within it tell of themselves, and of
    a user's own class nobody knows what it looks at.
    """
    kind = type(layer)
    if layer.takes_mask or layer._layers or not kind.__module__.startswith("singa_lite.") or "_warned" in vars(layer):
        return
    object.__setattr__(layer, "_warned", True)
    warn(
        f"layer {layer.path!r}: a mask of its input ends here, as {kind.__name__} does not take it into account: what "
        "is behind counts padding as well; PaddingMask gives the mask as an input to layers behind that take one"
    )


def _checked(layer: LayerBase, outputs: list[object], calls: LayerCalls | None) -> list[Tensor]:
    tensors = [output for output in outputs if isinstance(output, Tensor)]
    if not tensors or len(tensors) < len(outputs):
        given = ", ".join(type(output).__name__ for output in outputs) or "none"
        raise TypeError(f"layer {layer.path!r}: wanted forward() to return a Tensor, or a list, received {given}")
    wanted, found = layer.output_sample_shapes, [tensor.shape[1:] for tensor in tensors]
    fits = eq if calls is None else calls.fits
    pairs = zip(found, wanted, strict=False)
    fit = (fits(*pair) or (layer.any_length and is_shorter(*pair)) for pair in pairs)
    if len(found) != len(wanted) or not all(fit):
        raise ShapeError(
            f"layer {layer.path!r}: wanted forward() to return samples of shapes {wanted}, as setup() said, received "
            f"{found}"
        )
    return tensors
