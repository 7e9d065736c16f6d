"""Measures how long training waits for its data, and says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

from singa_lite.common.notice import warn

T = TypeVar("T")

_END = object()

#: Seconds and share of the time that are worth a word.
_SECONDS, _SHARE = 5.0, 0.1


class Waiting:
    """The waiting of one run of `fit`. seconds: waited for batches so far; of: out of so many. tells: whether to warn,
    once.

    The first batch of an epoch is waited for as long as anything takes to begin, so it is no reason to warn.
    """

    def __init__(self, tells: bool) -> None:
        self.seconds = 0.0
        self.of = 0.0
        self._tells = tells
        self._beginning = 0.0

    def through(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches, each waited for, and then used."""
        asked = time.perf_counter()
        is_first = True
        while (batch := next(batches, _END)) is not _END:
            waited = time.perf_counter() - asked
            self.seconds += waited
            self._beginning += waited if is_first else 0.0
            is_first = False
            yield batch  # type: ignore[misc]  # next gives T but for the end
            del batch  # before the next one is waited for
            self.of += time.perf_counter() - asked
            asked = time.perf_counter()
            self._tell()

    def _tell(self) -> None:
        lost = self.seconds - self._beginning
        if self._tells and lost >= _SECONDS and lost >= _SHARE * self.of:
            self._tells = False
            warn(
                f"fit: the data come slower than the steps: {lost / self.of:.0%} of the time so far, {lost:.1f} s, "
                "went by waiting for batches; prefetch=, and workers= or more of them, make them beside the steps"
            )
