"""`python -m singa_lite plan`: the memory plan of a net, made where nothing has bytes, for a machine of any size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from singa_lite import device, models, optimizer
from singa_lite.commands.named_net import net_of
from singa_lite.common.sizes import memory_size
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.device import Device
from singa_lite.device.abstract import WORKSPACE
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.optimizer import Optimizer
from singa_lite.runtime.pool_numbers import in_words

OPTIMIZERS: Mapping[str, Callable[[], Optimizer]] = {
    "sgd": optimizer.SGD,
    "momentum": lambda: optimizer.SGD(momentum=0.9),
    "nesterov": optimizer.Nesterov,
    "rmsprop": optimizer.RMSProp,
    "adagrad": optimizer.AdaGrad,
    "adam": optimizer.Adam,
    "adamw": optimizer.AdamW,
    "lion": optimizer.Lion,
    "adafactor": optimizer.Adafactor,
}

#: What says something of a training step alone, and what it is where nothing is said.
_OF_TRAINING: Mapping[str, object] = {
    **{"optimizer": "", "loss": "", "precision": "", "state_dtype": "", "parameter_dtype": "", "rounding": ""},
    **{"accumulate": 1, "micro_batches": 1, "curve": False},
}

#: What says something of a language model alone.
_OF_LANGUAGE: Mapping[str, object] = {"length": 0, "weights": ""}

#: What is not known without the GPU.
_GPU = (
    "a GPU that is not asked: each call of cuBLASLt and cuDNN is counted with all the workspace that it may have, "
    "{limit}; it may want less"
)


@dataclass(frozen=True)
class PlanRequest:
    """The request of a command line. Options of `compile` that are None or 1 stay as the function has compiled the net.

    function: "MODULE:FUNCTION", or the GGUF file, the folder or the config.json of a language model; batch: samples;
    optimizer, loss: names, "" for the net's own; device: a kind of `device.abstract`; memory: of the machine;
    input_shape: "3,224,224", which the function is given, "" for nothing; prediction: plan that in the place of a
    training step; curve: budgets, too; lora: rank of adapters on all linear layers, 0 for none. Of a language model:
    length of a sample, 0 for the context, at most 2,048; weights: a format in the place of the file's, or "float32"
    or "bfloat16" for parameters.
    """

    function: str
    batch: int = 16
    optimizer: str = ""
    loss: str = ""
    device: str = "cpu"
    memory: str = ""
    memory_budget: str = ""
    precision: str = ""
    state_dtype: str = ""
    parameter_dtype: str = ""
    rounding: str = ""
    accumulate: int = 1
    micro_batches: int = 1
    input_shape: str = ""
    prediction: bool = False
    curve: bool = False
    lora: int = 0
    length: int = 0
    weights: str = ""


def planned(wanted: PlanRequest) -> Iterator[str]:
    """Lines to print. ValueError for what names no net, or one that lacks something; PlanError where there is too
    little memory.
    """
    if wanted.prediction:
        _check_prediction(wanted)
    on = device.abstract(wanted.device, wanted.memory or None)
    with device.as_default(on):
        net = _net(wanted)
    if net.device is not on:
        raise ValueError(
            f"{wanted.function}: wanted a net on the default device, which is {on.name} while the function is called, "
            f"received one on {net.device.name}; leave device= out"
        )
    if wanted.lora:
        net.add_lora(wanted.lora, 2.0 * wanted.lora)
    if not wanted.prediction:
        _compile(net, wanted)
    yield from _plan_lines(net, wanted)
    budget = wanted.memory_budget or None
    certificate = budget is not None and find_spec("scipy") is not None
    plan = net.plan_batch(wanted.batch, not wanted.prediction, memory_budget=budget, certificate=certificate)
    yield plan.summary()
    yield from _totals(plan, wanted)
    if wanted.curve:
        yield "budgets, and by how much each slows a step, as estimated:"
        for nbytes, slowdown in net.budget_curve(wanted.batch):
            yield f"  {nbytes:>19,} bytes {slowdown:8.1%}"


def _net(wanted: PlanRequest) -> FeedForwardNet:
    """The net on the default device. ValueError for options of a language model beside a function."""
    if is_model(wanted.function):
        if wanted.input_shape:
            raise ValueError(f"--input-shape: wanted --length for a language model, received {wanted.input_shape!r}")
        return models.load(wanted.function, wanted.length or None, weights=wanted.weights or "stored")
    given = [name for name, unsaid in _OF_LANGUAGE.items() if getattr(wanted, name) != unsaid]
    if given:
        raise ValueError(f"--{given[0]}: wanted it beside a language model, received {wanted.function!r}")
    return net_of(wanted.function, *_arguments(wanted.input_shape))


def is_model(name: str) -> bool:
    """Whether a name is that of a language model: a GGUF file, a config.json or a folder."""
    return name.lower().endswith((".gguf", ".json")) or os.path.isdir(name)


def _check_prediction(wanted: PlanRequest) -> None:
    """ValueError for options that a prediction would not go by."""
    given = [name for name, unsaid in _OF_TRAINING.items() if getattr(wanted, name) != unsaid]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"--prediction: wanted no option of a training step beside it, received {options}")


def _arguments(input_shape: str) -> tuple[object, ...]:
    """What the function is given. ValueError for text that is no shape."""
    if not input_shape:
        return ()
    parts = input_shape.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"--input-shape: wanted whole numbers such as 3,224,224, received {input_shape!r}")
    return (tuple(map(int, parts)),)


def _compile(net: FeedForwardNet, wanted: PlanRequest) -> None:
    """Compile the net as it is asked for, over what the function has said. ValueError where something is missing."""
    if wanted.optimizer and wanted.optimizer not in OPTIMIZERS:
        raise ValueError(f"--optimizer: wanted one of {', '.join(OPTIMIZERS)}, received {wanted.optimizer!r}")
    names = ("precision", "state_dtype", "parameter_dtype", "rounding")
    given = {name: getattr(wanted, name) for name in names if getattr(wanted, name)}
    given |= {name: getattr(wanted, name) for name in ("accumulate", "micro_batches") if getattr(wanted, name) != 1}
    own = net.trainer.own_step is not None
    if net.optimizer is not None and not (given or wanted.optimizer or wanted.loss):
        return
    if net.optimizer is None and not wanted.optimizer and not is_model(wanted.function):
        raise ValueError(f"{wanted.function}: wanted --optimizer NAME, or a net that is compiled, received neither")
    if net.loss is None and not wanted.loss and not own:
        raise ValueError(f"{wanted.function}: wanted --loss NAME, or a net that has a loss, received neither")
    chosen = net.optimizer if net.optimizer and not wanted.optimizer else OPTIMIZERS[wanted.optimizer or "adamw"]()
    kept = {name: value for name, value in net.compiled_as.items() if name != "loss_weights" or not wanted.loss}
    net.compile(chosen, wanted.loss or None, **{**kept, **given})  # as it was compiled


def _plan_lines(net: FeedForwardNet, wanted: PlanRequest) -> Iterator[str]:
    """What is planned: the net, the step and the device."""
    values = net.param_values()
    nbytes = in_words(sum(value.nbytes for value in values))
    dtypes = " and ".join(sorted({value.dtype.name for value in values})) or net.dtype
    yield f"{wanted.function}: {sum(value.size() for value in values):,} parameters of {dtypes}, {nbytes}"
    if frozen := sum(value.nbytes for value in net.frozen().values()):
        yield f"frozen weights beside them, {in_words(frozen)}"
    if wanted.lora:
        trained = sum(value.size() for value in values if value.stores_grad)
        yield f"adapters of rank {wanted.lora} on {len(net.adapted_layers())} layers, {trained:,} parameters train"
    doing = "a prediction" if wanted.prediction else f"training by {type(net.optimizer).__name__}"
    yield f"{doing}, batch {wanted.batch}, {net.device.name}, {_memory(net.device)}"
    if wanted.device == "cuda":
        yield _GPU.format(limit=in_words(WORKSPACE))


def _memory(on: Device) -> str:
    return "any number of bytes" if on.pool.limit is None else f"memory of {in_words(on.pool.limit)}"


def _totals(plan: MemoryPlan, wanted: PlanRequest) -> Iterator[str]:
    """All of it, and what is left."""
    yield f"in all     {plan.total_bytes:,} bytes ({plan.total_bytes / 2**30:.2f} GiB)"
    for name, text in (("memory budget", wanted.memory_budget), ("memory", wanted.memory)):
        if text:
            left = memory_size(name, text) - plan.total_bytes
            yield f"left       {left:,} bytes of the {name}"
