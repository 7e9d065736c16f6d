"""Optimizer: rules by parameter name, updates, and the state that lies beside each parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypedDict
from weakref import ReferenceType, ref

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.checks import at_least_zero, gradient_dtype
from singa_lite.common.contexts import in_own_context
from singa_lite.common.described import Described, differences
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.option_version import StateTable
from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Graph, Phase
from singa_lite.kernels.interface.update import Hyper
from singa_lite.optimizer import state_dtype
from singa_lite.optimizer.gradient_accumulation import GradientAccumulation
from singa_lite.optimizer.operands import called, check_operands
from singa_lite.optimizer.regularizer import Constraint, Regularizer
from singa_lite.optimizer.rules import Rule, Rules, checked_rule
from singa_lite.optimizer.state_tensors import are_abstract, move, zeros
from singa_lite.optimizer.stepping import LearningRate as LearningRate
from singa_lite.optimizer.stepping import Stepping
from singa_lite.optimizer.stored_parameters import Rounding, begin_state, own_forms, run_update
from singa_lite.tensor import Shape, Tensor

#: Shape and dtype of the count of a parameter's updates.
COUNT: tuple[Shape, DType] = (), np.dtype(np.int64)


class Parts(TypedDict, total=False):
    """What every optimizer takes beside its numbers, see `Optimizer`."""

    regularizer: Regularizer | None
    constraint: Constraint | None


class NamedNet(Protocol):
    """A net, as its optimizer knows it."""

    def param_names(self) -> list[str]: ...


class Optimizer(Stepping):
    """The base of all optimizers. A subclass names its kernel and the state that it keeps, and sets `settings`.

    lr: the learning rate, a number or a schedule (`schedule(step)`, step 0 for the first update). weight_decay:
    that share of the value is added to the gradient. regularizer, constraint: applied to each gradient in place,
    constraint first, weight decay last. One optimizer serves one net.

    schedule: may be exchanged at any time, also by its other name `lr`. step: how many steps have begun (`Stepping`).
    state: {parameter's name, or the parameter itself where it has none: {slot: Tensor}}; made at a parameter's first
    update. state_dtype: what `keep_state_as` was given last. gathering: what `compile(accumulate=)` has added up.

    >>> optimizer.SGD(lr=0.1).register("*/bias", lr_mult=2.0)  # twice the rate for all biases
    """

    kernel: str
    #: The kernel's one setting, made of `settings` and the parameter's rule.
    hyper: type[Hyper]
    #: The kernel's state arguments in order; `slots` has those that this optimizer keeps.
    kernel_slots: tuple[str, ...]
    #: What it may keep state as beside the parameters' dtype.
    state_dtypes: ClassVar[tuple[str, ...]] = state_dtype.NAMES
    live_options: ClassVar[frozenset[str]] = frozenset({"lr", "schedule"})
    further_options: ClassVar[frozenset[str]] = frozenset(
        {"settings", "slots", "state", "state_dtype", "rounding", "gathering"}
    )

    def __init__(
        self,
        lr: LearningRate,
        *,
        weight_decay: float = 0.0,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        super().__init__(lr)
        self.weight_decay = at_least_zero(f"{type(self).__name__} weight_decay", weight_decay)
        self.settings: dict[str, Any] = {}
        self.slots = self.kernel_slots
        self.state: dict[str | Tensor, dict[str, Tensor]] = StateTable()
        self.state_dtype: str | None = None
        self.rounding = Rounding()
        self.gathering = GradientAccumulation()
        general = checked_rule(type(self).__name__, "*", regularizer=regularizer, constraint=constraint)
        self._rules = Rules(general)
        self._serves: tuple[ReferenceType[Optimizer], ReferenceType[NamedNet]] | None = None

    def adopt(self, changes: Mapping[str, object], before: Self, after: Self) -> None:
        """Follow other values of options of the constructor's.

        GraphError for one by which other state is kept, or within a group of batches whose sums would lie elsewhere.
        """
        where = f"{type(self).__name__} {', '.join(changes)}"
        if after.slots != before.slots and (self.state or self.state_dtype is not None):
            raise GraphError(
                f"{where}: wanted a value by which it keeps the state that it has, {', '.join(self.slots)}, received "
                f"{list(changes.values())!r:.100}, which wants {', '.join(after.slots)}; a new optimizer has none yet"
            )
        kept, general, slot = dict(vars(self)), self._rules.general, self.gathering.slot(self)
        changed = differences(before, after)
        self.settings = self.settings | {k: v for k, v in after.settings.items() if v != before.settings.get(k)}
        vars(self).update({name: changed[name] for name in changes if name in changed})
        kinds = ("kernel", "kernel_slots", "slots")
        vars(self).update({name: getattr(after, name) for name in kinds if hasattr(after, name)})
        if not {"regularizer", "constraint"}.isdisjoint(changes):
            self._rules.general = after._rules.general
        if self.gathering.done and self.gathering.slot(self) != slot:
            vars(self).update(kept)
            self._rules.general = general
            raise GraphError(
                f"{where}: wanted the {self.gathering.count} batches of a group to be trained on first, of which "
                f"{self.gathering.done} are, as it changes where their gradients are added up"
            )

    def register(
        self,
        pattern: str,
        *,
        lr_mult: float = 1.0,
        decay_mult: float = 1.0,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        """Rules for the parameters whose names match `pattern`, such as "*/bias"; the last that matches holds.

        lr_mult: multiplies the learning rate; decay_mult: weight decay and the regularizer; regularizer,
        constraint: in the place of the optimizer's own.
        """
        general = self._rules.general
        if not isinstance(pattern, str):
            raise TypeError(f"register: wanted a pattern of parameters' names, such as '*/bias', received {pattern!r}")
        regularizer = general.regularizer if regularizer is None else regularizer
        constraint = general.constraint if constraint is None else constraint
        where = f"register {pattern!r}"
        rule = checked_rule(where, pattern, lr_mult, decay_mult, regularizer, constraint)
        served = self._compiled_net()
        if served is not None:
            rule.check_names(served.param_names())
        self._rules.add(rule)
        self.note_change("rules")

    def check_names(self, names: Iterable[str]) -> None:
        """ValueError for a registered pattern that matches none of the names."""
        self._rules.check_names(names)

    @property
    def rules(self) -> Sequence[Rule]:
        """Which rules there are, the general one first."""
        return tuple(self._rules)

    @property
    def parts(self) -> Sequence[object]:
        """Regularizers and constraints that its rules hold, each once."""
        held = [part for rule in self._rules for part in (rule.regularizer, rule.constraint) if part is not None]
        return list({id(part): part for part in held}.values())

    @property
    def has_state(self) -> bool:
        """Whether there is state of any parameter."""
        return bool(self.state)

    def keep_state_as(self, dtype: str | None) -> None:
        """Keep state in fewer bits from now on; `compile(state_dtype=)` calls this. Results change: updates are done in
        float32, and what they leave of state is rounded. Of float32 parameters only.

        "bfloat16": 2 bytes an element, rounded up or down by chance so that the mean is right (state is uint16, its
        bits). "int8": a byte an element and 4 for each block of at most 2048, by the dynamic tree quantization of
        Dettmers and others (arXiv 2110.02861); parameters of fewer than 4096 elements keep theirs in float32. A block
        of 8 bits in which one element is NaN or infinite is NaN as a whole. None: in the parameters' dtype.
        ValueError for another name, for an optimizer that keeps no state, and for one that has state of another kind.
        """
        state_dtype.check(self, dtype)
        self.state_dtype = dtype

    def gather(self, count: int, clipped: bool) -> None:
        """Update by the mean of `count` batches from now on, see `GradientAccumulation`.

        GraphError within a group of another count, or one whose sums lie elsewhere.
        """
        now, new = self.gathering, GradientAccumulation(count, clipped)
        same = now.count == count and now.slot(self) == new.slot(self)
        if now.done and not same:
            beside = " with clip_global_norm or ignore_index" if clipped else ""
            raise GraphError(
                f"compile accumulate: wanted the {now.count} batches of a group to be trained on first, of which "
                f"{now.done} are, received accumulate={count}{beside}; a new optimizer begins a new group"
            )
        if same:
            now.clipped = clipped
        else:
            self.gathering = new

    @property
    def slot_of_sums(self) -> str:
        """The slot of state that gradients of several batches can be added to, one by one; "" where there is none."""
        return ""

    def begin_sum(self, name: str, value: Tensor) -> None:
        """Make `slot_of_sums` ready for the gradients of a group. TypeError as of `move`."""
        self.move(name, value)

    def move(self, name: str, value: Tensor) -> None:
        """Move `value` by what `slot_of_sums` holds. TypeError for an optimizer that has no such slot."""
        raise TypeError(f"{type(self).__name__}: wanted an optimizer whose state takes in sums of gradients")

    def serve(self, net: NamedNet) -> None:
        """Keep the steps and state of this net from now on. GraphError if there are some of another living net's.

        net: known by its identity alone, and not kept alive.
        """
        if self._step or self.state:
            self.check_serves(net)
        if self._compiled_net() is not net:
            self.note_change("net")
        self._serves = ref(self), ref(net)

    def check_serves(self, net: NamedNet) -> None:
        """GraphError if the net that it was last compiled with is another one, and lives."""
        if self._compiled_net() not in (None, net):
            raise GraphError(
                f"{type(self).__name__}: wanted an optimizer for one net alone, received one that another net was "
                "compiled with; make one for each, as it counts one net's steps"
            )

    def _compiled_net(self) -> NamedNet | None:
        """The net that it was last compiled with, if it lives. A copy of an optimizer is free."""
        return None if self._serves is None or self._serves[0]() is not self else self._serves[1]()

    @in_own_context
    def update(self, name: str | None, value: Tensor, gradient: Tensor, rate: Tensor | None = None) -> None:
        """Move `value` in place, one step along its gradient; the gradient may be changed too.

        name: the parameter's, under which its state is kept; None: the state is kept by the tensor itself.
        gradient: value's shape, dtype and device, else ShapeError, TypeError or DeviceError. rate: float64 () in the
        place of this step's, on value's device; where it holds NaN nothing moves, and no update is counted.
        """
        check_operands(type(self).__name__, name, value, gradient)
        state = self.state_for(name, value)
        self._note_update(value if name is None else name)
        rule, own = self._rules.of(value.name if name is None else name), self.member_of(name, value)
        decay = own.weight_decay * rule.decay_mult
        hyper = own.hyper(**own.settings_for(value), weight_decay=decay, lr_mult=rule.lr_mult)
        device = device_of(value)
        if device.graph is not None:
            self.note_in(device.graph)
            device.graph.options.note_tensors([value])
            device.graph.options.note_walk()
        with device.scope(Phase.UPDATE):
            if rule.constraint is not None:
                rule.constraint.apply(gradient)
            if rule.regularizer is not None:
                rule.regularizer.apply(value, gradient, rule.decay_mult)
            if rate is None or own is not self:
                rate = own.rate(device) if rate is None else own.rate_where(rate)
            own.run_kernels(gradient, rate, value, state, hyper)

    def run_kernels(
        self, gradient: Tensor, rate: Tensor, value: Tensor, state: dict[str, Tensor], hyper: Hyper
    ) -> None:
        """Do an update, or record it."""
        operands = gradient, rate, value, *(state.get(slot) for slot in self.kernel_slots)
        run_update(device_of(value), self.kernel, operands, state, hyper)

    def described_settings(self) -> dict[str, object]:
        """What its updates go by, beside the gradient."""
        own = {"schedule": self.schedule, "weight_decay": self.weight_decay}
        return own | self.settings | {"rules": self.rules}

    @property
    def members(self) -> Sequence[Optimizer]:
        """The optimizers that it is made of: itself alone, unless it leaves some parameters to another one."""
        return (self,)

    def member_of(self, name: str | None, value: Tensor) -> Optimizer:
        """The member whose kernel, settings, slots and rate a parameter is updated by. State and rules are its own."""
        return self

    def settings_for(self, value: Tensor) -> dict[str, float]:
        """Of the kernel, for a parameter."""
        return self.settings

    def note_in(self, graph: Graph) -> None:
        """What is recorded goes by its options, those of its rules' parts, and its state."""
        graph.options.note_optimizer(self)
        parts = (part for part in self.parts if isinstance(part, Described))
        graph.options.note(*parts, *self._tables())

    def _tables(self) -> Iterable[StateTable]:
        return (each for each in (self.state, self.gathering.sums) if isinstance(each, StateTable))

    def zeros_like(self, value: Tensor) -> Tensor:
        """Zeros of a parameter's shape, in its gradient's dtype, which lie as it does."""
        return zeros(value.shape, gradient_dtype(value.dtype), value)

    def slot_forms(self, value: Tensor, stored: str | None) -> dict[str, tuple[Shape, DType]]:
        """{slot: shape and dtype} of its own state of a parameter: by `stored`, a state_dtype, as the value, but for
        count.
        """
        form = state_dtype.form(stored, value.shape, gradient_dtype(value.dtype))
        return dict.fromkeys(self.slots, form) | {"count": COUNT}

    def state_forms(self, value: Tensor, name: str | None = None) -> dict[str, tuple[Shape, DType]]:
        """{slot: shape and dtype} of all state of a parameter. name: as of `update`, by default its own."""
        own = self.member_of(name, value)
        return own.slot_forms(value, self.state_dtype) | own_forms(value, self.rounding)

    def state_for(self, name: str | None, value: Tensor) -> dict[str, Tensor]:
        """The state of a parameter, {slot: Tensor} on value's device; made of zeros if there is none yet.

        ShapeError if there is state for a parameter of another shape or dtype under this name.
        """
        key: str | Tensor = value if name is None else name
        specs = self.state_forms(value, name)
        if key not in self.state:
            self.state[key] = {slot: zeros(*spec, value) for slot, spec in specs.items()}
            begin_state(self.state[key], value, name, self.rounding)
        state = self.state[key]
        if any((tensor.shape, tensor.dtype) != specs.get(slot) for slot, tensor in state.items()):
            raise ShapeError(
                f"{type(self).__name__}: parameter {called(name, value)}: wanted a value that fits its state "
                f"{list(state.values())}, received {value.shape} {value.dtype}; one optimizer serves one net"
            )
        if state["count"].device is not value.device:
            move(state, device_of(value))
        return state

    def tensors(self) -> list[Tensor]:
        """All that it holds: state of parameters, sums of gradients, and the rate as a tensor."""
        kept = [tensor for state in self.state.values() for tensor in state.values()]
        rates = [rate for member in self.members for rate in member._rates.values()]
        return [*kept, *self.gathering.sums.values(), *rates]

    def to_device(self, device: Device) -> None:
        """Move the state of all parameters; what an abstract device has of it is made anew at the first update."""
        for key in [key for key, state in self.state.items() if are_abstract(state.values())]:
            del self.state[key]
        for name in [name for name, total in self.gathering.sums.items() if are_abstract([total])]:
            del self.gathering.sums[name]
        for member in self.members:
            for old in [old for old in member._rates if old.is_abstract and old is not device]:
                del member._rates[old]
        for state in (*self.state.values(), self.gathering.sums):
            move(state, device)
