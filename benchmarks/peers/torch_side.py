"""PyTorch's side of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from agreement import PERTURBATION
from peak_memory import high_water

from .process import Task, measured, read_batch, read_weights
from .torch_nets import NETS, parameters_by_our_names
from .torch_texts import TEXTS, Text

#: By optimizer; everything but the rate and the momentum as PyTorch sets it.
OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]] = {
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr),
    "momentum": lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9),
    "adam": lambda parameters, lr: torch.optim.Adam(parameters, lr, fused=True),
    "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr, fused=True),
}


def run(task: Task) -> dict[str, Any]:
    """Train and measure."""
    torch.set_num_threads(task.threads)
    use_once(task.way)
    level = high_water()
    return {**measured(task, level, stepper(task)), "versions": {"torch": torch.__version__}}


def noise(task: Task) -> dict[str, Any]:
    """The losses of three trainings with perturbed weights, see agreement.py."""
    torch.set_num_threads(task.threads)
    steps = range(task.warmup + task.steps)
    return {"losses": [[step() for _ in steps] for step in (stepper(task, seed) for seed in range(3))]}


def stepper(task: Task, seed: int | None = None) -> Callable[[], float]:
    """A function that does a step and returns its loss. seed: of changes to the weights, none for None."""
    x, y = (torch.from_numpy(array) for array in read_batch(task.folder))
    net = built(task.net)
    named = net.by_our_names() if isinstance(net, Text) else parameters_by_our_names(net)
    targets = ((name, as_ours(p, turned)) for name, p, turned in named)
    read_weights(task.folder, targets)
    if task.way.endswith("channels-last"):
        net, x = net.to(memory_format=torch.channels_last), _channels_last(x)
    update = _inside_backward(net, task) if task.way == "torch-inbackward" else _after_backward(net, task)
    forward = torch.compile(net) if "compile" in task.way else net

    random = None if seed is None else torch.Generator().manual_seed(seed)

    def step() -> float:
        with nullcontext() if random is None else _perturbed(net, random):
            loss = cross_entropy(forward(x), y.flatten())
            loss.backward()
        update()
        return loss.item()

    return step


def built(name: str) -> nn.Module:
    """The net with parameters that hold anything, since they are read next, and fresh running statistics."""
    with torch.device("meta"):
        net = NETS[name]() if name in NETS else TEXTS[name]()
    net.to_empty(device="cpu")
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
    return net.train()


@contextmanager
def _perturbed(net: nn.Module, random: torch.Generator) -> Iterator[None]:
    """Inside, every weight is off by PERTURBATION of itself, up or down."""
    kept = [parameter.detach().clone() for parameter in net.parameters()]
    with torch.no_grad():
        for parameter in net.parameters():
            signs = torch.randint(2, parameter.shape, generator=random, dtype=torch.float32)
            parameter.mul_(1 + PERTURBATION * (2 * signs - 1))
    yield
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), kept, strict=True):
            parameter.copy_(value)


def as_ours(parameter: torch.Tensor, turned: bool) -> Any:
    """The parameter's memory as a NumPy array of our shape."""
    array = parameter.detach().numpy()
    return array.T if turned else array


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last) if x.ndim == 4 else x


def _after_backward(net: nn.Module, task: Task) -> Callable[[], None]:
    """The usual loop."""
    optimizer = OPTIMIZERS[task.optimizer](net.parameters(), task.lr)

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return update


def _inside_backward(net: nn.Module, task: Task) -> Callable[[], None]:
    """An optimizer a parameter, stepped as soon as its gradient is there, which is then freed (PyTorch's tutorial)."""
    optimizers = {p: OPTIMIZERS[task.optimizer]([p], task.lr) for p in net.parameters()}

    def update(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(update)
    return lambda: None


def use_once(way: str) -> None:
    """What loads at first use belongs to the import: kernels, threads of backward, or the whole compiler."""
    members = [nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    net = nn.Sequential(*members, nn.Linear(4 * 2 * 3, 2))
    forward = torch.compile(net) if "compile" in way else net
    cross_entropy(forward(torch.zeros(4, 2, 6, 8)), torch.zeros(4, dtype=torch.int64)).backward()
    torch.optim.SGD(net.parameters(), 0.1).step()
