"""Layer: parameters, state, layers within it, setup and forward; backward comes from the tape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar

from singa_lite.common.checks import kind_of
from singa_lite.common.described import Arguments
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.nesting import make_room
from singa_lite.common.table import Table
from singa_lite.device import Device
from singa_lite.layer import calls, names, options, sharing
from singa_lite.layer.base import Context as Context
from singa_lite.layer.base import LayerBase
from singa_lite.layer.lora import restore_training_state, training_state
from singa_lite.layer.names import free_name, name_may_be_left_out
from singa_lite.layer.past import LayerPast as LayerPast
from singa_lite.layer.sample_shape import InputShape as InputShape
from singa_lite.layer.sample_shape import SampleShape as SampleShape
from singa_lite.layer.sample_shape import checked_inputs, checked_output
from singa_lite.tensor import Shape, Tensor

#: One value, or a list or a dict of several, or None. Which of them a user gets depends on the net that the script has
#: built; a union would make the script ask at each use.
OneOrMore: TypeAlias = Any
#: What a layer gives: a list of tensors where it has several outputs.
LayerOutput: TypeAlias = Tensor | list[Tensor]

Held = TypeVar("Held", bound="Layer")


class Layer(LayerBase):
    """The base of all layers. A subclass gives `setup` and `forward`:

    setup(*shapes) gets the sample shapes of the inputs (no batch axis), makes parameters with `add_parameter` and
    state with `add_state`, and returns the output's sample shape, or a list of them for several outputs.
    forward(training, *inputs) composes operations of `autograd`; it returns a Tensor, or a list of them.

    A layer may hold others: `add_layer` in `__init__` or `setup`, `set_up` in `setup`, and `run` in `forward`.

    name: unique in its net or in the layer that holds it, one that every snapshot format can hold (`names`); it stays
    as it is. Left out, Dense(10), the layer is called by its class where it is added:
    dense, dense_1, ... input_sample_shape: the sample shape of the input, for a layer that has no source to take it
    from (a list of shapes for several inputs).

    What else a layer says of itself, where it differs from most, is in `LayerBase`.

    >>> class Double(Layer):
    ...     def setup(self, shape):
    ...         return shape
    ...     def forward(self, training, x):
    ...         return 2.0 * x
    >>> print(Sequential([layers.Input((3,)), Double("double")]).predict([[1.0, 2.0, 3.0]]))
    [[2. 4. 6.]]
    """

    setup: Callable[..., SampleShape]
    shared_with: Layer | None

    #: {name that suggests another layer: what to use in its place}.
    misnomers: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", name_may_be_left_out(vars(cls)["__init__"]))  # noqa: B010, mypy wants it so

    @name_may_be_left_out
    def __init__(self, name: str, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name)
        instead = self.misnomers.get(name.lower().rstrip("_0123456789"))
        if instead is not None:
            raise ValueError(
                f"layer name: wanted one of what {type(self).__name__} does, received {name!r}: {instead}; if that is "
                "but its name, let it be another"
            )
        self.input_sample_shapes = checked_inputs(name, input_sample_shape)

    # ---- layers within it

    @property
    def layers(self) -> Table[Layer]:
        """The layers that this one holds, by name; `add_layer` puts one in, and none is taken out."""
        return Table(self._layers, f"layers of layer {self.path!r}", "add_layer() in __init__() or setup()")

    @layers.setter
    def layers(self, given: object) -> None:
        self._refuse("layers", "add_layer() in __init__() or", given)

    def add_layer(self, layer: Held) -> Held:
        """For `__init__`, or `setup` where a size is only known there: hold a layer; returns it.

        Add them in the order in which `forward` runs them, as `freeze` goes by it. Its parameters are called
        "<path>/<its name>/weight". TypeError for what is no layer; GraphError for one that is in a net or held already,
        for a name that is taken, and for a call after `setup`.
        """
        if "_layers" not in vars(self):
            raise GraphError(
                f"add_layer: wanted a layer whose __init__ calls super().__init__(name) first, received {type(self)}"
            )
        where = f"layer {self.path!r}: add_layer"
        check_new(where, layer)
        if layer in list(self._holders()):
            raise GraphError(f"{where}: wanted another layer, received {layer.name!r}, which holds this one")
        if self.output_sample_shape is not None:
            raise GraphError(
                f"{where}({layer.name!r}): wanted the call in __init__() or setup(), received it afterwards"
            )
        layer.take_free_name({**self._parameters, **self._states, **self._constants, **self._frozen, **self._layers})
        self._check_free(f"{where}({layer.name!r})", layer.name)
        self._layers[layer.name] = layer
        layer._holder = self
        make_room(len([*self._holders()]) + sharing.depth([layer]))
        if self.context is not None:
            self._made_in_setup.append(layer.name)
        if not self.trainable:
            layer.trainable = False
        return layer

    def take_free_name(self, taken: Collection[str]) -> None:
        """Called where the layer is added: a name that is not taken, if it was given none."""
        name = free_name(self, taken)
        if name is not None:
            self._name = name

    def set_up(self, layer: Layer, *shapes: Shape) -> Shape:
        """For `setup`: sets up a layer that this one holds, once. shapes: sample shapes of its inputs.

        Returns the sample shape of its output. ShapeError for several outputs, see `set_up_several`.
        """
        return _only("set_up", layer, self.set_up_several(layer, *shapes))

    def set_up_several(self, layer: Layer, *shapes: Shape) -> list[Shape]:
        """As `set_up`; the sample shapes of all its outputs."""
        self._check_holds("set_up", layer)
        context = self._placed()
        if layer.context is not None:
            raise GraphError(
                f"layer {layer.path!r}: wanted set_up() once, received it twice; run() may be called twice"
            )
        if len(layer.path.encode()) > names.LONGEST:
            raise ValueError(
                f"layer {layer.path!r:.100}: wanted a path of at most {names.LONGEST} bytes, received more"
            )
        if self.shared_with is not None and layer.shared_with is None:
            layer.shared_with = sharing.counterpart(layer.name, self)
        layer.check_inputs(list(shapes), f"layer {self.path!r}")
        layer.prepare(shapes, context)
        return layer.output_sample_shapes

    def run(self, layer: Layer, training: bool, *inputs: Tensor) -> Tensor:
        """For `forward`: the output of a layer that this one holds; more than once, if its parameters are shared.

        training: as `forward` was given it; a frozen layer does not train for all that. ShapeError for several outputs,
        see `run_several`.
        """
        return _only("run", layer, self.run_several(layer, training, *inputs))

    def run_several(self, layer: Layer, training: bool, *inputs: Tensor) -> list[Tensor]:
        """As `run`; all its outputs."""
        self._check_holds("run", layer)
        return calls.call(layer, self._placed().device, training, list(inputs))

    def _check_holds(self, call: str, layer: Layer) -> None:
        if not isinstance(layer, Layer) or layer._holder is not self:
            shown = layer.path if isinstance(layer, Layer) else layer
            raise GraphError(
                f"layer {self.path!r}: {call}: wanted a layer that it holds, one of {list(self._layers)}, received "
                f"{shown!r}; self.add_layer(...) in __init__() makes it hold one"
            )

    # ---- texts position by position, see `net.generate`

    def continued_layers(self) -> Iterable[Layer]:
        """The layers within it that go on from position to position as it does; others run by themselves."""
        return self._layers.values()

    # ---- parameters of another layer

    def share_parameters(self, other: Layer) -> Layer:
        """Use the parameters of `other`, a layer of the same kind and shapes, in the place of own ones.

        The parameters keep the other's names; their gradient is the sum over both layers and is yielded once.
        `other` must be in the net before this layer is added. Returns this layer.
        """
        if self.context is not None:
            raise GraphError(f"layer {self.path!r}: wanted share_parameters() before the layer is in a net")
        if not isinstance(other, Layer) or other is self:
            raise TypeError(f"layer {self.path!r}: wanted to share the parameters of another layer, received {other!r}")
        self.shared_with = other
        self.note_set("shared_with")
        return self

    def _borrowed(self, table: str, name: str, shape: Shape) -> Tensor | None:
        return None if self.shared_with is None else sharing.borrowed(self, self.shared_with, table, name, shape)

    # ---- options that are set later

    def change_options(self, changes: Mapping[str, object]) -> None:
        """Set options of the constructor's, in a net too: a step that was recorded is recorded anew.

        GraphError for one that parameters, state, shapes or layers within it go by, as they are there by then.
        """
        if self.context is not None and self.output_sample_shape is None:  # within its own setup
            vars(self).update(changes)
            return
        options.check_changeable(self, changes)
        if "input_sample_shape" in changes:
            given = changes["input_sample_shape"]
            self.input_sample_shapes = checked_inputs(self.name, given)
            self._given = Arguments({**self.given_arguments, "input_sample_shape": given}, True)
        others = {name: value for name, value in changes.items() if name != "input_sample_shape"}
        if others:
            super().change_options(others)

    def made_with(self, arguments: Mapping[str, object]) -> Self:
        """A layer of the same class and name, made with these arguments, in no net."""
        made = super().made_with(names.with_name(self, arguments))
        names.rename(made, self.name)
        return made

    def adopt(self, changes: Mapping[str, object], before: Self, after: Self) -> None:
        """Take over what differs between two layers that were made anew, see `options.adopt`."""
        if self.context is not None:
            context = self.context._replace(device=options.trial_device())
            for made in (before, after):
                made.prepare(self._prepared_for, context)
        options.adopt(self, changes, before, after)
        for each in self.with_sublayers():
            if each.context is not None:
                with each.context.device.first_values():
                    each.options_changed()

    def options_changed(self) -> None:
        """For a subclass whose state has values that follow from options: called after one was changed in a net."""

    # ---- into a net, and from device to device

    def check_inputs(self, shapes: list[Shape], source: object) -> None:
        """ShapeError unless an `input_sample_shape`, if one was given, is what comes. source: from where."""
        given = self.input_sample_shapes
        if given is not None and given != shapes:
            raise ShapeError(f"layer {self.path!r}: wanted input_sample_shape {given}, received {shapes} from {source}")

    def prepare(self, shapes: Sequence[Shape], context: Context) -> None:
        """Called by the net, once the sample shapes of the inputs are known: makes parameters and state.

        Where `setup` fails, the layer is as before.
        """
        if self.shared_with is not None and self.shared_with.context is None:
            raise GraphError(
                f"layer {self.path!r} shares the parameters of {self.shared_with.path!r}, which is in no net yet"
            )
        self.context, self._prepared_for = context, tuple(shapes)
        try:
            with context.device.first_values():
                self.output_sample_shape = checked_output(self.path, calls.set_up(self, shapes))
            left = [name for name, inner in self._layers.items() if inner.context is None]
            if left:
                raise GraphError(
                    f"layer {self.path!r}: wanted setup() to set_up() each layer it holds, received none for {left}"
                )
            if self.shared_with is not None:
                sharing.check_shared(self, self.shared_with)
            if not self.trainable:
                for tensor in self._parameters.values():
                    tensor.stores_grad = False
        except BaseException:
            self.reset()
            raise

    def reset(self) -> None:
        """Back to before `prepare`: no parameters, no state, no shape, no layers that `setup` has added."""
        self._parameters, self._states, self._constants, self._frozen = {}, {}, {}, {}
        self.context = self.output_sample_shape = None
        for inner in self._layers.values():
            inner.reset()
        for name in self._made_in_setup:
            self._layers.pop(name)._holder = None
        self._made_in_setup = []

    def to_device(self, device: Device) -> None:
        """Move parameters and state, those of layers within it too; from an abstract device, `setup` makes them."""
        context, other = self._placed(), self.shared_with
        if context.device.is_abstract:
            self.set_up_anew(device)
            return
        if other is not None:  # it may come after this layer, and must have moved by then
            other.to_device(device)
        self._move_tensors(device, other)
        for inner in self._layers.values():
            inner.to_device(device)
        self.context = context._replace(device=device)

    def set_up_anew(self, device: Device) -> None:
        """For a layer that no other holds: as if added on the other device; where that fails, it stays on its own."""
        context, shapes = self._placed(), self._prepared_for
        if context.device is device:
            return
        for owner in self.owners():  # it may come after this layer, and must be there by then
            owner.set_up_anew(device)
        for each in self.with_sublayers():
            each.before_anew(device)
        before = training_state(self)
        self.reset()
        try:
            self.prepare(shapes, context._replace(device=device))
        except BaseException:
            self.prepare(shapes, context)
            raise
        finally:
            restore_training_state(self, before)

    def before_anew(self, device: Device) -> None:
        """For a subclass whose `setup` needs something else to be on the device that it is set up on anew."""


class Node(NamedTuple):
    """A layer and where its inputs come from: (layer name, number of the output)."""

    layer: Layer
    sources: tuple[tuple[str, int], ...]


Given = TypeVar("Given")


def _only(call: str, layer: Layer, given: list[Given]) -> Given:
    """The only one of a layer's outputs."""
    if len(given) != 1:
        raise ShapeError(f"layer {layer.path!r}: wanted one output, received {len(given)}; {call}_several() gives all")
    return given[0]


def check_new(where: str, layer: object) -> None:
    """TypeError unless it is a layer, GraphError if it is in a net or in another layer already."""
    if not isinstance(layer, Layer):
        hint = f", perhaps {layer.__name__}(name, ...)" if isinstance(layer, type) else ""
        raise TypeError(f"{where}: wanted a Layer{hint}, received {kind_of(layer)}")
    if "_layers" not in vars(layer):
        raise GraphError(f"{where}: wanted a layer whose __init__ calls super().__init__(name), received {type(layer)}")
    if layer._holder is not None:
        raise GraphError(f"{where}: wanted a layer that no other holds yet, received {layer.path!r}")
    if layer.context is not None:
        raise GraphError(f"layer {layer.name!r}: wanted a layer that is in no net yet, received one that is")
