"""What cuDNN has for operations that are ours today: its batch normalization timed, its other plans listed."""

from __future__ import annotations

import time
from functools import partial

from first_run import cudnn_graphs
from first_run.item import Context, Skipped, Values
from first_run.machine import here
from singa_lite.kernels.cuda_kernels.libraries import cudnn_library
from singa_lite.kernels.cuda_kernels.libraries.cudnn_plan import Knobs, Planner


def _planner(context: Context) -> tuple[Planner, cudnn_library.Handle]:
    """A planner of cuDNN graphs on the GPU, TF32 allowed, and the handle that runs its plans. Skipped without a GPU."""
    if context.options.stand_in:
        raise Skipped("cuDNN's engines for it are compiled on a GPU alone")
    with here(context.machine.on):
        handle = cudnn_library.Handle(context.machine.on.runtime.stream.ptr)
        return Planner(handle.target, handle, Knobs(allow_tf32=True)), handle


def normalization_by_cudnn(context: Context) -> Values:
    """cuDNN's batch normalization and ours, forward in training, at the first and last shapes of ResNet-50."""
    planner, handle = _planner(context)
    machine, values = context.machine, {}
    for shape in cudnn_graphs.IMAGES:
        draw = partial(cudnn_graphs.batch_norm, cudnn_library.frontend(), shape=shape)
        start = time.perf_counter()
        with here(machine.on):
            plan = planner.plan(draw, "float32")
        row: Values = {"shape": str(shape), "seconds_to_plan": time.perf_counter() - start}
        if plan is None:
            row["cudnn"] = "no plan"
        else:
            row["us, cudnn"] = cudnn_graphs.timed(machine, handle, plan, shape)
        values[str(shape)] = row
        context.row(row)
    return values


def further_plans(context: Context) -> Values:
    """Whether cuDNN plans layer normalization and attention here, by dtype: engines and bytes of workspace."""
    planner, _ = _planner(context)
    values: Values = {}
    with here(context.machine.on):
        for draw in (cudnn_graphs.layer_norm, cudnn_graphs.attention):
            for dtype in ("float32", "bfloat16"):
                try:
                    made = partial(draw, cudnn_library.frontend())
                    plan = planner.plan(made, dtype)
                    said = "no plan" if plan is None else f"{plan.candidates} engines, {plan.workspace_bytes} bytes"
                except Exception as error:
                    said = f"{type(error).__name__}: {error}"
                values[f"{draw.__name__} {dtype}"] = said
    return values
