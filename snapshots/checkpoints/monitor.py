"""Says which epoch is the best: an entry of the history is the smallest or the largest so far."""

from __future__ import annotations

from math import inf

from singa_lite.training.loop.measures import checked_mode
from singa_lite.training.loop.progress import History


class Monitor:
    """entry: of the history, "val_loss", or "val_metric/scores" where it is a dict; None: no epoch is the best.

    given_mode: "min", "max" or "auto"; mode: "min" or "max", "auto" until the training says which that is. TypeError or
    ValueError for others.
    """

    def __init__(self, entry: str | None, mode: str) -> None:
        if entry is not None and not (isinstance(entry, str) and entry):
            raise TypeError(f"Checkpoint monitor: wanted the name of an entry of the history, received {entry!r}")
        self.mode = self.given_mode = checked_mode("Checkpoint", mode)
        if entry is None and mode != "auto":
            raise ValueError(f"Checkpoint mode: wanted it beside a monitor only, received {mode!r} and no monitor")
        self.entry = entry
        self._seen = 0

    def begin(self, history: History, epochs: int) -> bool:
        """Look at what is there when a run begins; whether the last of so many epochs is the best.

        If some epochs lack the entry, it is not known which of them its last value is of, and none is the best.
        """
        values = self._values(history) if self._is_there(history) else []
        self._seen = len(values)
        return len(values) == epochs and self._is_best(values)

    def look(self, history: History) -> bool:
        """Whether there is a value since the last look that is better than all before; a NaN never is.

        ValueError where there is no such entry, or one that holds no numbers.
        """
        if self.entry is None or not history.history:
            return False
        values = self._values(history)
        is_new, self._seen = len(values) > self._seen, len(values)
        return is_new and self._is_best(values)

    def is_best(self, history: History) -> bool:
        """Whether the last epoch of the history is the best; `look` then says so too."""
        return self._is_best(self._values(history))

    def _is_best(self, values: list[float]) -> bool:
        sign = 1 if self.mode == "min" else -1
        return bool(values) and sign * values[-1] < min([sign * v for v in values[:-1] if v == v], default=inf)

    def _is_there(self, history: History) -> bool:
        return self.entry is not None and self.entry.partition("/")[0] in history.history

    def _values(self, history: History) -> list[float]:
        name, _, output = str(self.entry).partition("/")
        try:
            return [float(value[output] if output else value) for value in history[name]]
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"Checkpoint monitor: wanted numbers in the history, {sorted(history.history)}, or in an entry's "
                f"dict as 'entry/name', received {self.entry!r}"
            ) from error
