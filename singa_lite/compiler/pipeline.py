"""The pipeline: what a record goes through on its way to a plan, from the first pass to the last.

A pass is a function from program to program, in a file of its own. It is named here, and nowhere else. For debugging,
SINGA_LITE_PASSES leaves some out by name: "-concat,-in_place".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.order.improve import done_early, improved
from singa_lite.compiler.order.order import in_least_order
from singa_lite.compiler.order.parallel import in_waves
from singa_lite.compiler.order.updates import updated_together
from singa_lite.compiler.ranks.flight import polled, spread_sums, waiting_later
from singa_lite.compiler.ranks.in_pieces import summed_in_pieces
from singa_lite.compiler.ranks.own_parts import made_by_strips
from singa_lite.compiler.recompute.budget import Searches, within_limit
from singa_lite.compiler.recompute.free_recompute import free_recompute
from singa_lite.compiler.recompute.offload import offloaded
from singa_lite.compiler.rewrite.fusions import (
    added_by_rows,
    added_within,
    applied_by_rows,
    fused,
    joined,
    masked_within,
    pool_first,
    summed_within,
)
from singa_lite.compiler.rewrite.head import by_tiles_of_rows
from singa_lite.compiler.rewrite.head_classes import by_tiles_of_classes
from singa_lite.compiler.rewrite.narrow import narrowed
from singa_lite.compiler.rewrite.rules import ruled
from singa_lite.compiler.rewrite.tiles import tiled
from singa_lite.compiler.share.concat import assembled_in_place
from singa_lite.compiler.share.in_place import in_place, without_dead


class Pass(NamedTuple):
    """A step of the pipeline. brings: what is better behind it.

    rewrites: whether it replaces recorded calls by others. parallel: whether only those plans go through it whose
    instructions may run at the same time. limited: whether it goes by the target's limit; it then takes `Searches` too,
    which remember what was found for other limits. always: whether a pass that rewrites is gone through also where
    nothing is to be fused.
    """

    name: str
    run: Callable[..., Program]
    brings: str
    rewrites: bool = False
    parallel: bool = False
    limited: bool = False
    always: bool = False


#: In this order. Those that rewrite stand first.
PASSES = (
    Pass("rules", ruled, "what the user's rules say", rewrites=True, always=True),
    Pass("narrow", narrowed, "activations and derivatives take 16 bits", rewrites=True, always=True),
    Pass("pool_first", pool_first, "what goes into a max pooling is not kept for its activation", rewrites=True),
    Pass("fuse", fused, "an activation is applied within the operation before it", rewrites=True),
    Pass("norm_sum", summed_within, "a sum behind a normalisation is made within its call", rewrites=True),
    Pass("norm_derivative", masked_within, "an activation's mask is made again, not kept", rewrites=True),
    Pass("derivative_sum", added_within, "a sum of derivatives is made where one of them is", rewrites=True),
    Pass("table_sum", added_by_rows, "a table that is used twice has one gradient", rewrites=True),
    Pass("head_classes", by_tiles_of_classes, "neither scores nor gradient of a head exists whole", rewrites=True),
    Pass("head", by_tiles_of_rows, "scores of many classes exist for some rows at a time", rewrites=True),
    Pass("rows", applied_by_rows, "only the rows of a table that occur are updated", rewrites=True),
    Pass("tiles", tiled, "a large gradient never exists whole", rewrites=True),
    Pass("own_parts", made_by_strips, "nor one of which each process updates a part", rewrites=True),
    Pass("linear_gradient", joined, "gradients of weight and bias read the derivative once", rewrites=True),
    Pass("pieces", summed_in_pieces, "other ranks send gradients in pieces", rewrites=True, always=True),
    Pass("flight", waiting_later, "sums over the ranks go on beside the walk back", rewrites=True, always=True),
    Pass("dead", without_dead, "nothing is done that nobody uses"),
    Pass("concat", assembled_in_place, "producers write straight into their piece of a concatenation"),
    Pass("early", done_early, "what gives bytes back is done as soon as it can be"),
    Pass("order", in_least_order, "the order of lowest floor, of several"),
    Pass("paid_for", free_recompute, "fused calls pay for repeats of what one cheap call makes again", limited=True),
    Pass("offload", offloaded, "values go to host memory and come back, where the arena is limited", limited=True),
    Pass("repeat", within_limit, "values are dropped and made again, where the arena is limited", limited=True),
    Pass("improve", improved, "single instructions leave the peak"),
    Pass("apart", spread_sums, "sums over the ranks have time to go on"),
    Pass("in_place", in_place, "outputs are written over inputs that die there"),
    Pass("updates", updated_together, "small parameters are updated by one call"),
    Pass("polls", polled, "sums over the ranks go on"),
    Pass("waves", in_waves, "what may run at the same time stands in lanes of a wave", parallel=True),
)


def rewriting(fuse: bool = True) -> list[Pass]:
    """The passes that rewrite; where nothing is to be fused, those that are gone through always."""
    return [one for one in _switched_on() if one.rewrites and (fuse or one.always)]


def planning(parallel: bool = False) -> list[Pass]:
    """The passes that move, order and leave out what the others have left. parallel: for plans whose instructions may
    run at the same time.
    """
    return [one for one in _switched_on() if not one.rewrites and one.parallel <= parallel]


def parted(parallel: bool = False) -> tuple[list[Pass], list[Pass]]:
    """Of `planning`, those whose result is the same for any limit, and the others: from the first limited one on."""
    passes = planning(parallel)
    at = next((at for at, one in enumerate(passes) if one.limited), len(passes))
    return passes[:at], passes[at:]


def run_passes(
    program: Program, passes: Iterable[Pass], gains: dict[str, int] | None = None, searches: Searches | None = None
) -> Program:
    """The program behind these passes. gains: where to put by how many bytes each of them lowers the floor; searches:
    what limited passes go by; None where none of the passes is one.
    """
    level = 0 if gains is None else floor(program)
    for one in passes:
        before, program = program, one.run(program, searches) if one.limited else one.run(program)
        if gains is not None:
            reached = level if program.instructions is before.instructions else floor(program)
            gains[one.name], level = level - reached, reached
    return program


def _switched_on() -> list[Pass]:
    """Those that SINGA_LITE_PASSES does not leave out. ValueError where it says anything else than that."""
    text = os.environ.get("SINGA_LITE_PASSES", "")
    off = [word.strip() for word in text.split(",") if word.strip()]
    names = [f"-{one.name}" for one in PASSES]
    if not set(off) <= set(names):
        raise ValueError(f"SINGA_LITE_PASSES: wanted some of '{','.join(names)}', received {text!r}")
    return [one for one in PASSES if f"-{one.name}" not in off]
