"""All that `compile` is told, checked and made before the net has any of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from singa_lite import optimizer as optimizers
from singa_lite.common.checks import integer, names
from singa_lite.layer import freezing
from singa_lite.layer.freezing import Freeze
from singa_lite.loss import Loss
from singa_lite.net.compile import (
    objective_checks as compile_checks,
)
from singa_lite.net.compile import (
    parallel_options as parallel_checks,
)
from singa_lite.net.compile import (
    step_options as own_step_checks,
)
from singa_lite.net.compile.recording_options import step_options_of
from singa_lite.optimizer import GlobalNorm, Optimizer, state_dtype
from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.optimizer.loss_scale import checked as loss_scale_of
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.training import non_finite
from singa_lite.training.compile_options import CompileOptions
from singa_lite.training.criteria import GivenLosses, GivenMetrics, Losses, Metrics, losses_of, metrics_of
from singa_lite.training.objective import Objective
from singa_lite.training.step_options import StepOptions
from singa_lite.training.stepping_net import SteppingNet
from singa_lite.training.steps.micro_batches import checked_count


def counts_positions(losses: Losses | None) -> bool:
    """Whether an only loss is a mean of the positions that count, by which the batches of a group are weighed then."""
    return isinstance(losses, Loss) and losses.is_counted and losses.of_whole_batch


@dataclass(frozen=True, eq=False, kw_only=True)
class Checked:
    """What a net is to train by, checked. options: as they were given; beside: the other nets of a step of the user's
    own; accumulate, clip, scale: of the updates; how: steps are recorded; keep: paths of layers.
    """

    options: CompileOptions
    optimizer: Optimizer
    losses: Losses | None
    metrics: Metrics | None
    freeze: Freeze
    micro_batches: int
    clip: GlobalNorm | None
    accumulate: int
    scale: LossScale | None
    on_nan: str | None
    keep: tuple[str, ...]
    how: StepOptions
    ranks: DataParallel | None
    beside: Mapping[str, SteppingNet]

    @property
    def needs_all_gradients(self) -> bool:
        """Whether a step does something when all of them are there."""
        return self.clip is not None or self.scale is not None

    def compiled_as(self) -> dict[str, object]:
        """The options as the net tells them: whatever can be gone over once alone is a list by now."""
        found = self.options.given() | {"freeze": self.freeze}
        several: dict[str, Sequence[object]] = {"keep": self.keep, "rules": self.how.rules}
        return found | {name: list(given) for name, given in several.items() if given}


def checked(
    net: SteppingNet,
    given: Optimizer | str,
    loss: GivenLosses | None,
    metric: GivenMetrics | None,
    options: CompileOptions,
) -> Checked:
    """The errors of `compile`. net: that is compiled, of which nothing changes."""
    optimizer = optimizers.get(given) if isinstance(given, str) else given
    compile_checks.check_optimizer(optimizer)
    losses = net.loss if loss is None else losses_of(loss)
    metrics = net.metric if metric is None else metrics_of(metric)
    beside = own_step_checks.other_nets(net, options, losses, metrics)
    nodes, device, dtype = net.ordered(), net.device, net.dtype
    freeze = freezing.checked("compile freeze", options.freeze, net.all_layers() if net.layers else {})
    objective = None if losses is None else Objective(losses, metrics, net.output_names(), options.loss_weights)
    compile_checks.check(nodes, objective, optimizer, freeze, dtype)
    pieces = checked_count(nodes, options.micro_batches, freeze, () if objective is None else objective.criteria)
    state_dtype.check(optimizer, options.state_dtype, dtype)
    limit = options.clip_global_norm
    clip = None if limit is None else GlobalNorm(limit, "compile clip_global_norm")
    accumulate = integer("compile accumulate", options.accumulate, 1)
    scale = loss_scale_of(options.loss_scale, options.precision, dtype)
    return Checked(
        options=options,
        optimizer=optimizer,
        losses=losses,
        metrics=metrics,
        freeze=freeze,
        micro_batches=pieces,
        clip=clip,
        accumulate=accumulate,
        scale=scale,
        on_nan=non_finite.checked(options.on_nan),
        keep=_kept_layers(net, options, pieces, scale is not None),
        how=step_options_of(options, [node.layer for node in nodes], device),
        ranks=parallel_checks.ranks_of(options, device, objective, optimizer),
        beside=beside,
    )


def _kept_layers(net: SteppingNet, options: CompileOptions, pieces: int, is_scaled: bool) -> tuple[str, ...]:
    """Paths of layers to keep. TypeError, GraphError or ValueError for no such, and where none can be kept."""
    found = tuple(dict.fromkeys(names("compile keep", () if options.keep is None else options.keep)))
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise TypeError(f"compile keep: wanted names of layers, received {wrong[0]!r}")
    net._check_names("compile keep", found)
    if found and pieces > 1:
        raise ValueError(f"compile keep: wanted micro_batches=1, whose outputs are whole, received {pieces}")
    if found and is_scaled:
        raise ValueError("compile keep: wanted no loss_scale beside it, which derivatives would be multiplied by")
    return found
