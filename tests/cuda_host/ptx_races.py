"""A static check of the kernels' PTX for races and for barriers that not all threads reach, by SentryWard."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import ptx_launches
import ptx_verdicts
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
        program = ADDRESS.sub(f"uint64({odd})", source.program(launch.file, dict(launch.types)))
        code = ptx_verdicts.of_entry(program, launch.kernel)
        alone = ptx_launches.threads(launch) == 1
        yield ALONE if alone else ptx_verdicts.verdict(code, ptx_launches.settings_of(launch))


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
