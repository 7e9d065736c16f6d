"""Finds the first layer whose output is not finite where a training step's loss is NaN or infinite."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import NonFiniteError
from singa_lite.common.notice import warn
from singa_lite.layer.base import LayerBase
from singa_lite.layer.calls import LayerCalls
from singa_lite.layer.freezing import freezing
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.run import Run
from singa_lite.runtime.pool_numbers import OutOfMemoryError
from singa_lite.tensor import Tensor, to_numpy
from singa_lite.training.steps import fed_tensors
from singa_lite.training.steps.micro_batches import cut
from singa_lite.training.steps.recorded_steps import Feeds
from singa_lite.training.steps.train_step import TrainStep

#: Losses in a row that are not finite, where each such step is skipped by loss_scale, before they are told.
SKIPPED = 3

_in_fit: ContextVar[bool] = ContextVar("within a fit that looks at its losses", default=False)


def look_in_fit(wanted: bool) -> None:
    """The present call is a part of a `fit`. wanted: whether on_nan="fit" looks at its losses."""
    _in_fit.set(wanted)


def checks_loss(on_nan: str | None) -> bool:
    """Whether the loss of a training step is to be looked at. on_nan: as for `compile`."""
    return on_nan in ("raise", "warn") or (on_nan == "fit" and _in_fit.get())


class LossLook:
    """Looks at the loss of one training step.

    on_nan: as for `compile`. step, feeds: what is done with which batch; number: steps before it. bad: losses that were
    not finite in a row, this one among them once it was looked at.
    """

    def __init__(self, step: TrainStep, feeds: Feeds, on_nan: str | None, number: int, bad: int) -> None:
        self.bad = bad
        self._step, self._layers, self._feeds = step, step.layers, feeds
        self._warns, self._number = on_nan == "warn", number

    def __call__(self, loss: Tensor, updated: bool) -> None:
        """NonFiniteError, or a warning, unless it is finite. updated: whether parameters may have moved since."""
        value = float(loss)
        self.bad = 0 if np.isfinite(value) else self.bad + 1
        skipped = 0 if self._step.scale is None else SKIPPED
        if self.bad <= skipped or (self._warns and self.bad > skipped + 1):
            return
        found = self._found(updated)
        text = f"loss of step {self._number}, from 0: wanted a finite number, received {value}: {found}"
        if self._warns:
            warn(f"{text}. Those behind it are not told until one is finite again")
            return
        state = "as the step's update left them" if updated else "as they were before the step"
        raise NonFiniteError(
            f"{text}. Parameters are {state}: load a snapshot, or call discard_step() to go on from them; a lower "
            "learning rate or compile(clip_global_norm=1.0) may help"
        )

    def _found(self, updated: bool) -> str:
        """Where the first value is that is not finite, in words."""
        for kind, named in self._feeds.items():
            for name, given in named.items():
                at = _place(to_numpy(given) if isinstance(given, Tensor) else np.asarray(given))
                if at is not None:
                    return f"the {kind} of layer {name!r} is not finite at {at}"
        values = self._layers.parameters()
        parameter = next((name for name, value in values.items() if _place(to_numpy(value)) is not None), None)
        since = "as the step's update left it" if updated else "since an earlier step's update"
        cause = "" if parameter is None else f"parameter {parameter!r} is not finite, {since}; "
        return cause + self._layer()

    def _layer(self) -> str:
        found = freezing((node.layer for node in self._layers.ordered()), self._step.freeze)
        looking = _FiniteCheckCalls(found.passing | found.frozen.keys())
        try:
            with _states_kept(self._layers), np.errstate(all="ignore"):
                fed = fed_tensors.filled(self._layers, self._feeds)
                for piece in cut(fed, self._step.micro_batches):
                    run = Run(self._layers.ordered(), self._layers.device, False, None, calls=looking)
                    run.forward(dict(piece.fed["input"]), ())
        except _NonFiniteLayer as found:
            return f"the first layer whose output is not finite is {found.args[0]}"
        except OutOfMemoryError:
            return "there was no memory left to look for the layer"
        return (
            "each layer's output is finite, computed once more in the net's own dtype: it is the loss itself, or "
            "a value beyond the range of precision="
        )


class _NonFiniteLayer(Exception):
    """A layer whose output is not finite, in words."""


class _FiniteCheckCalls(LayerCalls):
    """Calls layers as a training step does, but for the tape, and ends at the first whose output is not finite."""

    def __init__(self, frozen: Collection[str]) -> None:
        super().__init__(False, frozen)

    def forward(self, layer: LayerBase, training: bool, inputs: list[Tensor]) -> object:
        """_Found where the output is not finite."""
        result = layer.forward(layer.path not in self.frozen, *inputs)
        for output in result if isinstance(result, list | tuple) else [result]:
            if isinstance(output, Tensor) and _place(to_numpy(output)) is not None:
                raise _NonFiniteLayer(f"{layer.path!r} ({type(layer).__name__})")
        return result


@contextmanager
def _states_kept(layers: LayerGraph) -> Iterator[None]:
    """Running statistics and random state are put back."""
    before = [(state, np.array(to_numpy(state))) for state in layers.states().values()]
    try:
        yield
    finally:
        for state, value in before:
            state.copy_from_numpy(value)


def _place(values: Array) -> list[int] | None:
    """Where the first value is that is not finite; None where there is none."""
    bad = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros((), bool)
    return [int(index) for index in np.unravel_index(int(bad.argmax()), bad.shape)] if bad.any() else None
