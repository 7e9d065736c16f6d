"""The base of recurrent layers: stacks, both directions, masks, dropout between stacks, and state that is kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from singa_lite import autograd
from singa_lite.autograd.ops.op import is_taping, is_traced
from singa_lite.autograd.ops.shape import piece
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer
from singa_lite.layer.past import LayerPast
from singa_lite.layers._checks import check_choice, dropout_share, flag, init, label, positive_int
from singa_lite.layers._masks import without_padding
from singa_lite.tensor import Shape, Tensor

#: How two directions become one output.
MERGES = ("concat", "sum", "mul", "ave")
#: Rows, samples by steps, whose gates are there at a time where nothing is kept for a walk back.
_ROWS = 256


class RecurrentLayer(Layer):
    """Base of the recurrent layers. A subclass gives `gates`, `kept_states` and `cell`.

    Stack k takes what stack k - 1 gives; weights are called by PyTorch's names, "weight_ih_l0" (features, gates *
    hidden_size), "weight_hh_l0" (hidden_size, gates * hidden_size), "bias_ih_l0" and "bias_hh_l0" (gates *
    hidden_size,), of the other direction "weight_ih_l0_reverse" and so on.
    """

    #: Gates of a cell, and the states that it hands from step to step.
    gates: ClassVar[int]
    kept_states: ClassVar[tuple[str, ...]] = ("hidden",)

    features_last = True
    any_length = True
    takes_mask = True

    def __init__(
        self,
        name: str,
        hidden_size: int,
        dropout: float = 0.0,
        num_stacks: int = 1,
        input_mode: str = "linear",
        bidirectional: bool = False,
        *,
        merge: str = "concat",
        return_sequences: bool = False,
        stateful: bool = False,
        batch_size: int | None = None,
        use_bias: bool = True,
        weight_init: initializer.Spec | None = None,
        recurrent_init: initializer.Spec | None = None,
        bias_init: initializer.Spec | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.hidden_size = positive_int(self, "hidden_size", hidden_size)
        self.num_stacks = positive_int(self, "num_stacks", num_stacks)
        self.dropout = self._checked_dropout(dropout)
        self.input_mode = check_choice(self, "input_mode", input_mode, ("linear",))
        self.bidirectional = flag(self, "bidirectional", bidirectional)
        self.merge = self._checked_merge(merge)
        self.return_sequences = self.passes_mask = flag(self, "return_sequences", return_sequences)
        self.keeps_time = self.return_sequences
        self.stateful = flag(self, "stateful", stateful)
        self.batch_size = self._checked_batch_size(batch_size)
        self.use_bias = flag(self, "use_bias", use_bias)
        bound = 1 / sqrt(self.hidden_size)
        given = {"weight_init": weight_init, "recurrent_init": recurrent_init, "bias_init": bias_init}
        own = initializer.Uniform(-bound, bound)
        self.weight_init, self.recurrent_init, self.bias_init = (
            own if spec is None else init(self, what, spec) for what, spec in given.items()
        )
        if bias_init not in (None, 0.0, "unit_forget") and not self.use_bias:
            raise ValueError(f"{label(self)}: wanted bias_init with use_bias=True only, received {bias_init!r}")
        #: Whether the one direction is from the last step to the first, as `Bidirectional` has it for its second layer.
        self.backwards = False
        #: Whether what holds this layer has put zeros in the place of padding already.
        self.without_padding = False

    def _checked_dropout(self, dropout: float) -> float:
        found = dropout_share(self, "dropout", dropout)
        if found and self.num_stacks == 1:
            raise ValueError(
                f"{label(self)}: wanted dropout with num_stacks of at least 2, as it stands between stacks, received "
                f"{dropout} with 1; a Dropout layer behind this one drops outputs"
            )
        return found

    def _checked_merge(self, merge: str) -> str:
        found = check_choice(self, "merge", merge, MERGES)
        if found != "concat" and not self.bidirectional:
            raise ValueError(f"{label(self)}: wanted merge with bidirectional=True only, received {merge!r}")
        return found

    def _checked_batch_size(self, batch_size: int | None) -> int | None:
        if self.stateful and self.bidirectional:
            raise ValueError(f"{label(self)}: wanted stateful=True in one direction, received bidirectional=True too")
        if self.stateful == (batch_size is None):
            raise ValueError(
                f"{label(self)}: wanted batch_size with stateful=True, and only then, as the state of each sample is "
                f"kept, received batch_size={batch_size!r} with stateful={self.stateful}"
            )
        return None if batch_size is None else positive_int(self, "batch_size", batch_size)

    # ---- setup

    def setup(self, *shapes: Shape) -> Shape:
        """(time, features), perhaps a mask (time,) -> (hidden_size,), with return_sequences (time, hidden_size)."""
        time, features = self._checked(shapes)
        for stack in range(self.num_stacks):
            for ending in self._endings(stack):
                self._add_parameters(ending, features)
            features = self.hidden_size * (2 if self.bidirectional and self.merge == "concat" else 1)
        if self.dropout:
            self.add_state("random", (3,), dtype=np.uint64).copy_from_numpy(self.random_key("random"))
        for name in self._names_of_states(range(self.num_stacks if self.stateful else 0)):
            self.add_state(name, (self.batch_size or 0, self.hidden_size))
        return (time, features) if self.return_sequences else (features,)

    def _checked(self, shapes: Sequence[Shape]) -> Shape:
        """(time, features). ShapeError for other inputs."""
        if [len(shape) for shape in shapes] not in ([2], [2, 1]) or 0 in shapes[0]:
            raise ShapeError(
                f"{label(self)}: wanted an input (time, features), both at least 1, perhaps a mask (time,), received "
                f"{len(shapes)} of shapes {list(shapes)}"
            )
        if len(shapes) == 2 and shapes[1] != shapes[0][:1]:
            raise ShapeError(
                f"{label(self)}: wanted a mask of shape {shapes[0][:1]}, one number a step, received {shapes[1]}"
            )
        return shapes[0]

    def _add_parameters(self, ending: str, features: int) -> None:
        width = self.gates * self.hidden_size
        shapes = {"weight_ih": (features, width), "weight_hh": (self.hidden_size, width)}
        for kind, spec in (("weight_ih", self.weight_init), ("weight_hh", self.recurrent_init)):
            self.add_parameter(kind + ending, shapes[kind], spec, shapes[kind])
        for kind in ("bias_ih", "bias_hh") if self.use_bias else ():
            self.add_parameter(kind + ending, (width,), self.bias_init)

    def _endings(self, stack: int) -> list[str]:
        """Of the parameters of each direction."""
        return [f"_l{stack}", f"_l{stack}_reverse"][: 2 if self.bidirectional else 1]

    def _names_of_states(self, stacks: Iterable[int]) -> list[str]:
        return [f"{kind}_l{stack}" for stack in stacks for kind in self.kept_states]

    def reset_states(self) -> None:
        """The next training batch begins at 0. GraphError for a layer that is not stateful, or in no net."""
        if not self.stateful:
            raise GraphError(f"{label(self)}: wanted reset_states() of a layer with stateful=True, received it without")
        self.get_output_sample_shape()
        for name in self._names_of_states(range(self.num_stacks)):
            self.states[name].copy_from_numpy(np.zeros(self.states[name].shape, self.states[name].dtype))

    # ---- forward

    def forward(self, training: bool, *inputs: Tensor) -> Tensor:
        """x (n, time, features), perhaps mask (n, time) -> (n, hidden_size), or (n, time, hidden_size)."""
        self._check_batch(training, inputs[0])
        return self._through(training, inputs, self.states if self.stateful and training else {})

    def _through(self, training: bool, inputs: Sequence[Tensor], kept: Mapping[str, Tensor]) -> Tensor:
        """All stacks. kept: the states that the first step begins with and the last one leaves, {} for 0."""
        x = inputs[0]
        mask = inputs[1].detach() if len(inputs) > 1 else x.mask
        if not self.without_padding:
            x = without_padding(x, mask)
        y = autograd.transpose(x, (1, 0, 2))
        for stack in range(self.num_stacks):
            is_last = stack == self.num_stacks - 1
            y = self._stack(stack, y, mask, is_last and not self.return_sequences, kept)
            if self.dropout and training and not is_last:
                y = autograd.dropout(y, self.states["random"], self.dropout)
        return autograd.transpose(y, (1, 0, 2)) if self.return_sequences else y

    # ---- position by position

    def refuses_past(self) -> str:
        """Where texts are read from their end."""
        return "it reads texts from their end, which is not there yet" if self.bidirectional or self.backwards else ""

    def kept_of_past(self, batch: int, length: int) -> dict[str, Shape]:
        """The states behind the last step."""
        return dict.fromkeys(self._names_of_states(range(self.num_stacks)), (batch, self.hidden_size))

    def continued(self, past: LayerPast, *inputs: Tensor) -> Tensor:
        """x (n, m, features), perhaps mask (n, m) -> (n, hidden_size), or (n, m, hidden_size)."""
        return self._through(False, inputs, past)

    def _check_batch(self, training: bool, x: Tensor) -> None:
        if training and self.stateful and x.shape[0] != self.batch_size:
            raise ShapeError(
                f"{label(self)}: wanted training batches of {self.batch_size} samples, as stateful=True keeps a state "
                f"of each, received {x.shape[0]}"
            )

    def _stack(self, stack: int, x: Tensor, mask: Tensor | None, last: bool, kept: Mapping[str, Tensor]) -> Tensor:
        """x (time, n, features) -> (time, n, width), of the last step alone (n, width)."""
        time, n, features = x.shape
        rows = autograd.reshape(x, (time * n, features))
        names = self._names_of_states([stack]) if kept else []
        made = []
        for ending in self._endings(stack):
            reverse = ending.endswith("_reverse") != self.backwards
            given = [kept[name] for name in names]
            y, final = self._direction(ending, rows, (time, n), given, mask, reverse, last)
            made.append(y)
            for name, state in zip(names, final, strict=False):
                state.device.run("copy", state, kept[name])
        return merged(made, self.merge)

    def _direction(
        self,
        ending: str,
        rows: Tensor,
        extents: Shape,
        states: list[Tensor],
        mask: Tensor | None,
        reverse: bool,
        last: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        """y of one direction, and its last states. Where nothing is kept, gates exist for some steps at a time."""
        time, n = extents
        size = time if is_taping() or is_traced() else min(max(_ROWS // n, 1), time)
        parts: list[Tensor] = []
        for start, stop in _cuts(time, size, reverse):
            whole = stop - start == time
            gates = self._gates(ending, rows if whole else piece(rows, 0, start * n, stop * n), n)
            seen = mask if mask is None or whole else piece(mask, 1, start, stop)
            y, *states = self.cell(ending, gates, states, seen, reverse, last)
            parts = [y] if last else [y, *parts] if reverse else [*parts, y]
        return parts[0] if len(parts) == 1 else autograd.concat(parts, 0), states

    def _gates(self, ending: str, rows: Tensor, n: int) -> Tensor:
        """(time, n, gates * hidden_size): what the inputs of some steps give to the gates."""
        weight = self.parameters[f"weight_ih{ending}"]
        made = autograd.linear(rows, weight, self.bias_of(ending) if self.use_bias else None)
        return autograd.reshape(made, (rows.shape[0] // n, n, made.shape[1]))

    def bias_of(self, ending: str) -> Tensor:
        """What is added to all steps' gates: both biases, whose sum is all that counts."""
        return autograd.add(self.parameters[f"bias_ih{ending}"], self.parameters[f"bias_hh{ending}"])

    @abstractmethod
    def cell(
        self, ending: str, gates: Tensor, states: list[Tensor], mask: Tensor | None, reverse: bool, last: bool
    ) -> tuple[Tensor, ...]:
        """y and the last states, from the gates (time, n, ..) and the first states, [] for 0."""


def merged(directions: Sequence[Tensor], merge: str) -> Tensor:
    """One output of that of each direction. merge: one of MERGES."""
    if len(directions) == 1:
        return directions[0]
    first, second = directions
    if merge == "concat":
        return autograd.concat([first, second], first.ndim - 1)
    if merge == "mul":
        return autograd.multiply(first, second)
    total = autograd.add(first, second)
    return autograd.scale(total, 0.5) if merge == "ave" else total


def _cuts(time: int, size: int, reverse: bool) -> Iterator[tuple[int, int]]:
    """Pieces of the time of `size` steps at most, in the order in which they are done."""
    starts = range(0, time, size)
    for start in reversed(starts) if reverse else starts:
        yield start, min(start + size, time)
