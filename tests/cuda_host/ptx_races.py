"""A static check of the kernels' PTX for races and for barriers that not all threads reach, by SentryWard."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

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
#: Kernels of which it cannot tell, {name: its reason}: an index or an address that a tensor holds decides which
#: elements are touched, a search in a tensor, or threads that fill no warp.
_BY_INDEX, _BY_TABLE = "allocation_alias_relation_unknown", "dynamic_address_overlap_unresolved"
_SEARCH = "loop_control_not_classified"
UNDECIDED = {
    "in_top_k_of_rows": _BY_INDEX,
    "hits_at_k": _BY_INDEX,
    "sort_tiles": _BY_TABLE,
    "merge_runs": _SEARCH,
    "find_rows": _SEARCH,
    "begin_updates": "partial_warp_launch",
    "sgd_plain_of_several": _BY_TABLE,
    "sgd_momentum_of_several": _BY_TABLE,
    "rms_prop_of_several": _BY_TABLE,
    "ada_grad_of_several": _BY_TABLE,
    "adam_of_several": _BY_TABLE,
    "ams_grad_of_several": _BY_TABLE,
}
#: Kernels of which it cannot tell in some launches, and proves others.
PARTLY = {"cross_entropy_of_ids": _BY_INDEX}


def of_kernel(file: str, kernel: str) -> Said:
    """Of the launches that are chosen, tensors aligned and not."""
    return Counter(said for one in ptx_launches.chosen(file, kernel) for said in _of_launch(one))


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


def complaint(kernel: str, said: Said) -> str:
    """What is wrong with what it said of a kernel; "" if nothing is."""
    if not said:
        return "no launch of the contract is small enough to ask about"
    if is_found(said):
        return "a race, or a barrier that some threads do not reach"
    reasons = {one.why for one in said if one.is_undecided}
    listed = UNDECIDED.get(kernel) or PARTLY.get(kernel)
    is_proved = any(not one.is_undecided for one in said)
    if reasons != ({listed} if listed else set()) or is_proved == (kernel in UNDECIDED):
        return f"undecided otherwise than listed, {listed or 'which it is not'}"
    return ""


def complaint_without(place: barriers.Place, told: Mapping[str, Said]) -> str:
    """What is wrong with what it said of the kernels that have a barrier, less it; "" if nothing is.

    A barrier must be missed in some kernel, and it must be able to tell of the others; `barriers.UNMISSED` are those
    that no kernel needs, which it cannot prove of values that do not change.
    """
    name = f"{place[0]}:{place[1]}"
    unmissed = {kernel for kernel, said in told.items() if not is_found(said)}
    if name in barriers.UNMISSED:
        return "a race is found" if unmissed != told.keys() else ""
    if unmissed == told.keys():
        return "no race is found"
    undecided = {kernel for kernel in unmissed if any(one.is_undecided for one in told[kernel])}
    return f"undecided: {undecided}" if undecided - UNDECIDED.keys() - PARTLY.keys() else ""
