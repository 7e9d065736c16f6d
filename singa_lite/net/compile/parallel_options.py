"""Checks of what several processes can train together, at `compile` and before each step."""

from __future__ import annotations

from collections.abc import Mapping

from singa_lite.common.errors import GraphError
from singa_lite.device import Device
from singa_lite.loss import Loss
from singa_lite.optimizer import Optimizer
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.training.compile_options import CompileOptions, Trait, check_usual
from singa_lite.training.objective import Objective


def ranks_of(
    options: CompileOptions, device: Device, objective: Objective | None, optimizer: Optimizer
) -> DataParallel | None:
    """The processes that train together, None for this one alone.

    TypeError for what is none, ValueError for options that several processes cannot do, GraphError for losses that are
    no mean over samples.
    """
    given: object = options.parallel
    if given is None:
        return None
    if not isinstance(given, DataParallel):
        raise TypeError(f"compile parallel: wanted parallel.mpi(), received {given!r:.100}")
    if given.size > 1:
        check_usual("compile parallel", options.given(), Trait.ONE_PROCESS)
        given.check_device("compile parallel", device)
        if given.sync and options.precision != "float32":
            raise ValueError(
                f"compile parallel: wanted precision='float32' beside sync=True, received {options.precision!r}"
            )
        if given.shard is not None:
            _check_elementwise(options.state_dtype, optimizer)
        _check_means({} if objective is None else objective.losses)
    return given


def check_step(ranks: DataParallel, objective: Objective, optimizer: Optimizer) -> None:
    """The errors of `compile` for a loss, or settings of the optimizer, that were set since."""
    if ranks.shard is not None:
        _check_elementwise(optimizer.state_dtype, optimizer)
    _check_means(objective.losses)


def _check_elementwise(state_dtype: object, optimizer: Optimizer) -> None:
    """ValueError for updates that a part of a parameter cannot have by itself."""
    if state_dtype is not None:
        raise ValueError(f"compile parallel: wanted no state_dtype beside shard='state', received {state_dtype!r}")
    if any(rule.constraint is not None for rule in optimizer.rules):
        raise ValueError("compile parallel: wanted an optimizer without constraints beside shard='state', received one")


def _check_means(losses: Mapping[str, Loss]) -> None:
    """GraphError for losses whose mean over several processes cannot be made of each one's."""
    for name, loss in losses.items():
        if loss.of_whole_batch and (len(losses) > 1 or not loss.is_counted):
            raise GraphError(
                f"compile parallel: wanted losses that take each sample by itself, received {type(loss).__name__} of "
                f"output {name!r}, whose values go by the whole batch"
                + (", as with ignore_index, beside other outputs" if len(losses) > 1 else "")
            )
