"""Which items each part has, in their order: what is small comes first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from first_run import (
    attention_times,
    basics,
    beside_cudnn,
    contract,
    gpt_beside_torch,
    kernel_times,
    thresholds,
    tools,
    torch_side,
    training,
)
from first_run.item import Context, Item, Options
from first_run.prepared import Prepared

#: Nets of the table, with their batches.
TABLE = {"mlp": 64, "lenet": 64, "vgg16": 32, "mobilenet_v2": 32, "resnet50": 32}
TINY_TABLE = {"lenet": 3}
#: Chunks that the sanitizer's calls are cut into; rounds of the table, sides in turn.
CHUNKS, ROUNDS = 4, 2
#: Cases of the contract that are looked at again before all else of part 2; the others come behind it.
FIRST_AGAIN = 8
PRECISIONS = ("float32", "tf32", "bfloat16")
#: PyTorch's; of the stand-in without its compiler, which takes a minute.
TINY_WAYS = ("tf32", "bfloat16")
WAYS = (*TINY_WAYS, "tf32-compile", "bfloat16-compile")


def items_of(options: Options) -> list[Item]:
    """The items of the part that --only lets through."""
    parts = {1: _first, 2: _second, 3: _third, 4: _fourth}
    return [item for item in parts[options.part](options) if options.wants(item.name)]


def _first(options: Options) -> Iterator[Item]:
    prepared = Prepared.read(options.expected)
    yield Item("versions", 0.1, basics.versions)
    yield Item("one_kernel", 0.1, basics.one_kernel)
    yield Item("compile", 0.3, basics.compile_all)
    for key in prepared.calls:
        yield Item(f"contract/{key}", 0.04, partial(contract.check, key=key))
    yield Item("products", 0.1, basics.products)
    yield Item("convolutions", 0.1, basics.convolutions)
    yield Item("no_allocations", 0.1, basics.no_allocations)
    for name in prepared.trainings:
        for mode in ("eager", "recorded", "captured"):
            yield Item(f"losses/{name}/{mode}", 0.15, partial(training.compare_losses, name=name, mode=mode))
    name, n, steps = ("digits_cnn", 5, 2) if options.tiny else ("resnet50", 32, 40)
    for precision in PRECISIONS:
        run = partial(training.measure, name=name, n=n, precision=precision, steps=steps)
        yield Item(f"step/{name}/{precision}", 0.25, run)
    yield Item("all_reduce", 0.06, basics.all_reduce)
    name = "lenet" if options.tiny else name
    for way in TINY_WAYS:
        yield Item(
            f"torch/{name}/{way}", 0.2, partial(torch_side.measure, name=name, n=n, way=way, steps=steps), "torch"
        )


def _second(options: Options) -> Iterator[Item]:
    wrong = list(_wrong(options))
    yield from wrong[:FIRST_AGAIN]
    yield Item("embedding_gradient", 0.1, kernel_times.embedding_gradient)
    yield Item("attention", 0.15, attention_times.attention)
    yield Item("thresholds", 0.2, thresholds.thresholds)
    yield Item("further_plans", 0.1, beside_cudnn.further_plans)
    yield Item("normalization_by_cudnn", 0.1, beside_cudnn.normalization_by_cudnn)
    for name, n in (kernel_times.TINY_NETS if options.tiny else kernel_times.NETS).items():
        yield Item(f"kernels/{name}", 0.3, partial(kernel_times.of_net, name=name, n=n))
    yield from wrong[FIRST_AGAIN:]


def _wrong(options: Options) -> Iterator[Item]:
    """What failed in the contract, in detail."""
    for line in Context(options, lambda values: None).earlier():
        if line.get("status") in ("wrong", "failed", "poisoned") and line["item"].startswith("contract/"):
            key = line["item"].removeprefix("contract/")
            yield Item(f"again/{key}", 0.1, partial(contract.again, key=key))


def _third(options: Options) -> Iterator[Item]:
    for tool in ("memcheck", "racecheck"):
        for chunk in range(CHUNKS):
            run = partial(tools.sanitized, tool=tool, chunk=chunk, chunks=CHUNKS)
            yield Item(f"{tool}/{chunk + 1}", 0.12, run, "tools")
    yield Item("profile", 0.3, tools.profiled, "tools")
    steps, nets, ways = (2, TINY_TABLE, TINY_WAYS) if options.tiny else (40, TABLE, WAYS)
    for turn in range(1, ROUNDS + 1):
        for name, n in nets.items():
            for precision in PRECISIONS:
                run = partial(training.measure, name=name, n=n, precision=precision, steps=steps)
                yield Item(f"table/{turn}/{name}/{precision}", 0.15, run)
        for name, n in nets.items():
            for way in ways:
                run = partial(torch_side.measure, name=name, n=n, way=way, steps=steps)
                yield Item(f"table/{turn}/{name}/torch-{way}", 0.3, run, "torch")


def _fourth(options: Options) -> Iterator[Item]:
    yield from gpt_beside_torch.items(options.tiny)
