"""Prepared: what results are compared with, made beforehand on a machine without a GPU."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from first_run.machine import Types

#: (net, batch, steps) whose losses are compared; small ones for the stand-in.
TRAINED = (("lenet", 64, 6), ("resnet18_32", 16, 6), ("gpt_11m", 2, 6), ("llama", 2, 6), ("lstm", 8, 6))
TINY_TRAINED = (("lenet", 3, 4), ("digits_cnn", 5, 4), ("gpt_11m", 3, 4), ("llama", 3, 4), ("lstm", 3, 4))
#: (n, t, s, heads, kv_heads, size) of attention in float16, which libraries do at such sizes of heads alone.
FUSED = (2, 72, 72, 2, 1, 64)
MOST_BYTES = 30 << 20

Arrays = list[Any]


@dataclass(frozen=True)
class PreparedCall:
    """A call of the contract. exact: results in float64, by tensor; host: the same from the host build, float32."""

    kernel: str
    tensors: Arrays
    settings: dict[str, Any]
    exact: dict[str, Any]
    host: dict[str, Any]

    @property
    def nbytes(self) -> int:
        """Of its tensors."""
        return sum(t.nbytes for t in self.tensors if t is not None)


@dataclass(frozen=True)
class Training:
    """Losses of a net's first steps on the CPU. begins: the sum of all weights before them, so that a GPU's net that
    begins otherwise is seen."""

    net: str
    batch: int
    losses: list[float]
    begins: float


@dataclass(frozen=True)
class Prepared:
    """calls: by the contract's key. sources: what the calls compile. trainings: by net."""

    calls: dict[str, PreparedCall]
    sources: list[tuple[str, Types]]
    trainings: dict[str, Training]

    @staticmethod
    def read(path: str) -> Prepared:
        """The file that `prepare` wrote. ValueError if it is another file."""
        with gzip.open(path) as file:
            made = pickle.load(file)  # our own file, made by --prepare
        if not isinstance(made, Prepared):
            raise ValueError(f"{path}: wanted a file that gpu_first.py --prepare made")
        return made


def prepare(path: str, tiny: bool) -> int:
    """Write the file; its bytes. ValueError if they are too many."""
    calls, sources = _calls()
    trainings = {name: training(name, n, steps) for name, n, steps in (TINY_TRAINED if tiny else TRAINED)}
    data = gzip.compress(pickle.dumps(Prepared(calls, sources, trainings)))
    if len(data) > MOST_BYTES:
        raise ValueError(f"{path}: wanted at most {MOST_BYTES} bytes, received {len(data)}")
    Path(path).write_bytes(data)
    return len(data)


def _calls() -> tuple[dict[str, PreparedCall], list[tuple[str, Types]]]:
    from host_kernels import cuda_on_host, cuda_with_libraries_on_host
    from kernel_sets import is_left

    own, all_of_them = cuda_on_host(), cuda_with_libraries_on_host()
    loader = own.kernels["relu"]._loader  # type: ignore[attr-defined]
    made = {key: _call(key, *case, all_of_them if is_left(key) else own) for key, case in cases().items()}
    sources = sorted({(file, types) for file, _, types in loader.launched})
    return {key: call for key, call in made.items() if call is not None}, sources


def cases() -> dict[str, tuple[Any, str]]:
    """The contract's cases and those in float16, by key, each with its dtype."""
    from kernel_cases import CASES

    return {key: (case, "float32") for key, case in CASES.items()} | {
        f"{kernel}:float16, {label}": (_fused(kernel, causal), "float16")
        for kernel in ("attention", "attention_derivative")
        for label, causal in (("causal", True), ("all keys", False))
    }


def _fused(kernel: str, causal: bool) -> Any:
    """A case of attention whose sums are float32."""
    from kernel_case import Case
    from kernel_cases_attention import attention
    from singa_lite.kernels.interface import SIGNATURES

    case = attention(causal=causal, sizes=(FUSED, FUSED), backward=kernel.endswith("derivative"))
    at = SIGNATURES[kernel].tensors.index("lse")

    def build(*given: Any) -> Any:
        tensors, settings = case.build(*given)
        tensors[at] = tensors[at].astype(np.float32)
        return tensors, settings

    return Case(build)


def _call(key: str, case: Any, dtype: str, kernels: Any) -> PreparedCall | None:
    """None for a kernel that the GPU's own set lacks."""
    from singa_lite.testing.kernel_call import Call

    name = key.split(":")[0]
    if name not in kernels.kernels:
        return None
    tensors, settings = case.build(np.random.default_rng(7), np.dtype(dtype), False)
    exact = exact_results(name, tensors, settings)
    host = Call(kernels, name, tensors, settings).run().results
    return PreparedCall(name, tensors, settings, exact, host)


def exact_results(kernel: str, tensors: Arrays, settings: dict[str, Any]) -> dict[str, Any]:
    """NumPy's results of a call in float64, by tensor; of `uniform`, which draws others for float32, in its own dtype.

    Normal numbers are those that a GPU draws.
    """
    from normal_numbers import NORMALS, drawn
    from singa_lite.kernels.numpy_kernels import NUMPY
    from singa_lite.testing.kernel_call import Call

    if kernel in NORMALS:
        return {"y": drawn(kernel, tensors, settings)[1]}
    wide = tensors if kernel == "uniform" else [_in_float64(t) for t in tensors]
    return dict(Call(NUMPY, kernel, wide, settings).run().results)


def _in_float64(array: Any) -> Any:
    return array.astype(np.float64) if array is not None and array.dtype.kind == "f" else array


def training(name: str, n: int, steps: int) -> Training:
    """The losses of a net on the CPU."""
    from singa_lite import device

    net = built(name, device.new_cpu(kernels="numpy"))
    begins = weight_sum(net)
    return Training(name, n, list(losses(net, name, n, steps)), begins)


def built(name: str, on: Any, rule: str = "momentum", **options: Any) -> Any:
    """The net without dropout behind layers. rule: "momentum" or "adamw"."""
    from nets import entry
    from singa_lite import layers, optimizer

    rules = {"momentum": optimizer.SGD(0.01, momentum=0.9), "adamw": optimizer.AdamW(lr=1e-4)}
    net = entry(name).build(on, seed=3)
    for layer in net.layers.values():
        if isinstance(layer, layers.Dropout):
            layer.p = 0.0
    net.compile(rules[rule], **options)
    return net


def losses(net: Any, name: str, n: int, steps: int) -> Iterator[float]:
    """Of steps over one batch."""
    from nets import batch

    x, y = batch(name, n)
    for _ in range(steps):
        yield float(net.train_one_batch(x, y)[0])


def weight_sum(net: Any) -> float:
    """Of all parameters, in float64."""
    from singa_lite import tensor

    return float(sum(np.abs(tensor.to_numpy(value).astype(np.float64)).sum() for value in net.param_values()))
