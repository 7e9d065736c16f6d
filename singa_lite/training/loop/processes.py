"""Which processes train together, in words: what starts them tells of one that was killed by its number alone."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

#: Most processes that are named.
_MOST = 16


def own_process() -> tuple[str, int]:
    """The machine's name, and the number of this process."""
    return platform.node(), os.getpid()


def in_words(processes: Sequence[tuple[str, int]]) -> str:
    """All of them by rank, as far as there are few."""
    hosts = list(dict.fromkeys(host for host, _ in processes))
    named = [
        f"rank {rank} is {number}" + (f" on {host}" if len(hosts) > 1 else "")
        for rank, (host, number) in enumerate(processes[:_MOST])
    ]
    more = ", ..." if len(processes) > _MOST else ""
    return f"training by {len(processes)} processes on {', '.join(hosts[:_MOST])}: {', '.join(named)}{more}"
