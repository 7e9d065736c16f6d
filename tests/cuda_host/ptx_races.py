"""A static check of the kernels' PTX for races and for barriers that not all threads reach, by SentryWard.

    python tests/cuda_host/ptx_races.py [FILE.cu | FILE:LINE ...]

Prints what it says of each kernel over calls of the contract, and of each kernel that has the barrier at a line without
that barrier. All take TIMES. Exit status 1 if it says what it should not, or does not say what it should.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator

import barriers
import ptx_launches
import ptx_verdicts
from host_loader import without_barrier
from ptx_verdicts import FOUND, RACE_FREE, Verdict
from singa_lite.kernels.cuda_kernels import source
from singa_lite.kernels.cuda_kernels.routine import KernelLaunch

#: Addresses by which kernels choose between packs and single elements: it knows none.
ADDRESS = re.compile(r"reinterpret_cast<uint64>\([^()]*\)")
#: What a grid of one thread cannot do: race.
ALONE = Verdict(RACE_FREE, "one thread")
#: How often it says what of launches.
Said = Counter[Verdict]


def of_kernel(file: str, kernel: str) -> Said:
    """Of the launches that are chosen, tensors aligned and not."""
    return Counter(said for one in ptx_launches.chosen(file, kernel) for said in _of_launch(one))


def of_smallest(file: str, kernel: str) -> Said:
    """Of the one with the least work, tensors aligned."""
    return Counter([next(_of_launch(ptx_launches.sized(file, kernel)[0]))])


def _of_launch(launch: KernelLaunch) -> Iterator[Verdict]:
    """Of it over tensors that are all aligned, then over such that are not."""
    for odd in (0, 1):
        code = _code(launch, odd, source.program(launch.file, dict(launch.types)))
        alone = ptx_launches.threads(launch) == 1
        yield ALONE if alone else ptx_verdicts.verdict(code, ptx_launches.settings_of(launch))


def _code(launch: KernelLaunch, odd: int, program: str) -> bytes:
    return ptx_verdicts.of_entry(ADDRESS.sub(f"uint64({odd})", program), launch.kernel)


def without(place: barriers.Place) -> Iterator[tuple[str, Said]]:
    """Of each kernel with this barrier less it, (kernel, what is said of its launches up to the first race)."""
    for file in sorted(barriers.sources_with(place)):
        for kernel in source.kernels(file):
            said = _without(place, ptx_launches.sized(file, kernel))
            if said:
                yield kernel, said


def _without(place: barriers.Place, launches: list[KernelLaunch]) -> Said:
    """Nothing of kernels that are the same without it."""
    said: Said = Counter()
    for launch in launches:
        whole = source.program(launch.file, dict(launch.types))
        for odd in (0, 1):
            code = _code(launch, odd, without_barrier(whole, *place))
            if code == _code(launch, odd, whole):
                continue
            said[ptx_verdicts.verdict(code, ptx_launches.settings_of(launch))] += 1
            if is_found(said):
                return said
    return said


def is_found(said: Said) -> bool:
    """Whether a race, or a barrier that some threads do not reach, is among what it said."""
    return any(one.result in FOUND for one in said)


def _words(said: Said) -> str:
    return ", ".join(f"{count} {' '.join(one).strip()}" for one, count in said.items()) or "nothing"


def main(asked: list[str]) -> int:
    """Print the tables."""
    for file in [name for name in asked if name.endswith(".cu")] or ([] if asked else source.files()):
        for kernel in source.kernels(file):
            began = time.monotonic()
            said = of_kernel(file, kernel)
            print(f"| {file} | {kernel} | {_words(said)} | {time.monotonic() - began:.0f} s |", flush=True)
    for place in [(name.split(":")) for name in asked if ":" in name] or ([] if asked else barriers.barriers()):
        began = time.monotonic()
        for kernel, said in without((place[0], int(place[1]))):
            word = "found" if is_found(said) else "not found"
            print(
                f"| {place[0]}:{place[1]} | {kernel} | {word} | {_words(said)} | {time.monotonic() - began:.0f} s |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
