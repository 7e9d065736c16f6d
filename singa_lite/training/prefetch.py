"""Items made ahead of the loop that uses them, in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_END = object()


def ahead(items: Iterable[T], count: int) -> Generator[T, None, None]:
    """The same items in the same order, `count` of them made before they are asked for; with 0 no thread is used.

    An error in making an item is raised when that item is asked for. Closing the generator waits for the item that is
    being made, and ends the thread.
    """
    if count == 0:
        yield from items
        return
    left = iter(items)
    with ThreadPoolExecutor(1, "prefetch") as thread:
        made = deque(thread.submit(next, left, _END) for _ in range(count))
        try:
            while (item := made.popleft().result()) is not _END:
                made.append(thread.submit(next, left, _END))
                yield item  # type: ignore[misc]  # next gives T but for the end
                del item  # before the next one is waited for
        finally:
            thread.shutdown(cancel_futures=True)
