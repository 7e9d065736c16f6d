"""The progress bar of an epoch, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from singa_lite.common.terminal import Unfailing, shown

if TYPE_CHECKING:
    from tqdm import tqdm


class Bar:
    """tqdm's bar of samples. title: before it; None: no bar, nor where there is no standard error.

    total: None where nobody knows; initial: how many are done. What standard error does never ends the training.
    """

    def __init__(self, title: str | None, total: int | None, initial: int) -> None:
        self._bar: tqdm[object] | None = None
        if title is not None and sys.stderr is not None:
            from tqdm.auto import tqdm

            stream = Unfailing(sys.stderr)
            self._bar = tqdm(total=total, initial=initial, desc=title, unit=" samples", file=stream, dynamic_ncols=True)

    def update(self, samples: int, text: Callable[[], str]) -> None:
        """So many more samples are done. text: what to show behind the bar, asked for where there is one."""
        if self._bar is not None:
            self._bar.update(samples)
            self._bar.set_postfix_str(shown(text(), sys.stderr), refresh=False)

    def close(self) -> None:
        """The epoch is over."""
        if self._bar is not None:
            self._bar.close()
