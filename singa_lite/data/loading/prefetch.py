"""Items made ahead of the loop that uses them, in a thread, or by several workers at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from threading import Event
from typing import TypeVar

T = TypeVar("T")
Kept = TypeVar("Kept")
Job = TypeVar("Job")

_END = object()


def prefetched(items: Iterable[T], count: int) -> Generator[T, None, None]:
    """The same items in the same order, `count` of them made before they are asked for; with 0 no thread is used.

    An error in making an item is raised when that item is asked for. Closing the generator waits for the item that is
    being made, and ends the thread.
    """
    if count == 0:
        yield from items
        return
    left, ended = iter(items), Event()

    def next_item() -> T | object:
        item = next(left, _END)
        if item is _END:
            ended.set()
        return item

    with ThreadPoolExecutor(1, "prefetch") as thread:
        made = deque([thread.submit(next_item)])
        try:
            while len(made) < count and not ended.is_set():  # a count may be larger than any number of items
                made.append(thread.submit(next_item))
            while (item := made.popleft().result()) is not _END:
                made.append(thread.submit(next_item))
                yield item  # type: ignore[misc]  # next gives T but for the end
                del item  # before the next one is waited for
        finally:
            thread.shutdown(cancel_futures=True)


def worked(
    work: Callable[[Job], T], items: Iterable[tuple[Kept, Job]], workers: Executor, count: int
) -> Generator[tuple[Kept, T], None, None]:
    """(kept, work(job)) of each (kept, job), in their order: items are made by a thread, the work is the workers'.

    count: how many are begun before they are asked for, at least 1. Errors and closing are as for `prefetched`.
    """
    begun = ((kept, workers.submit(work, job)) for kept, job in items)
    with closing(prefetched(begun, count)) as all_begun:
        for kept, future in all_begun:
            yield kept, future.result()
            del kept, future  # before the next one is waited for
