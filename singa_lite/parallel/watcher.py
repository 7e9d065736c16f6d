"""A program of its own, one on each machine of a job: it says which rank was the first there to end without a word.

    python -I -S watcher.py FILE SIZE HOST PROCESS:RANK ...

A process that is killed tells nobody, and what started it ends the others in the same moment, so that none of them can.
MPICH's mpiexec then names a process, which often is one that it has ended itself. This program belongs to no rank, and
the kernel tells it of their ends in the order in which they happen. Linux 5.3 or later.

FILE: the descriptor of the marks (`watch.py`), a byte for each process in the order of the arguments.
"""

import os
import select
import sys

#: A process's marks: it lives, it ends by itself, it has ended without a word.
LIVES, ENDS, LOST = b".", b"e", b"x"


def first_to_end(processes: list[int]) -> int:
    """Wait; which of them it is. One that is not there has ended."""
    ends, places = select.epoll(), dict[int, int]()
    for place, process in enumerate(processes):
        try:
            descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            return place
        places[descriptor] = place
        ends.register(descriptor, select.EPOLLIN)
    while not (found := ends.poll(maxevents=1)):  # what came first is given first
        pass
    return places[found[0][0]]


def main(file: str, size: str, host: str, *named: str) -> None:
    """Waits for the first process to end, and reports it unless it or another one has announced its end. One that ends
    all by MPI announces that, and MPI then ends the others before it is gone itself.
    """
    pairs = [tuple(map(int, each.split(":"))) for each in named]
    place = first_to_end([process for process, _ in pairs])
    process, rank = pairs[place]
    marks = os.pread(int(file), len(pairs), 0)
    if marks[place : place + 1] == LIVES and ENDS not in marks:
        os.pwrite(int(file), LOST, place)
        sys.stderr.write(
            f"rank {rank} of {size}, process {process} on {host}, has ended without a word: it was killed, as the "
            "system does where memory runs out, or has crashed\n"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
