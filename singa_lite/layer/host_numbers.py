"""First values of the host's normal numbers on any device: equal seeds give equal weights."""

from __future__ import annotations

from singa_lite.device import cpu, device_of
from singa_lite.tensor import Tensor, from_numpy, to_numpy


def draw_on_host(kernel: str, key: Tensor, value: Tensor, *, mean: float, std: float) -> None:
    """Fill a tensor by `kernel`, and copy to a device whose own kernel draws other numbers."""
    if device_of(value).runtime.reads_host:
        value.device.run(kernel, key, value, mean=mean, std=std)
        return
    host = cpu()
    drawn: Tensor = host.empty(value.shape, value.dtype)
    host.run(kernel, from_numpy(to_numpy(key), host), drawn, mean=mean, std=std)
    value.copy_from_numpy(to_numpy(drawn))
