"""Every operation of `autograd` in a net that is exported and run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnx_runs import check
from op_cases import CASES, Case
from singa_lite import FeedForwardNet, Tensor, autograd, device, tensor
from singa_lite.errors import SnapshotError
from singa_lite.layer import Layer

#: {beginning of a case's name: what the error names}. Random numbers, statistics of a batch, and losses.
REFUSED = {
    **dict.fromkeys(("dropout", "spatial_dropout", "normal"), "draw_key"),
    **dict.fromkeys(("linear:with an adapter that drops", "conv2d:with an adapter that drops"), "draw_key"),
    **{"batch_norm_inference": "", "batch_norm:processes": "SyncedBatchNorm", "batch_norm": "BatchNorm"},
    **{"softmax_cross_entropy": "SoftmaxCrossEntropy", "sigmoid_cross_entropy": "sigmoid_cross_entropy"},
    **{
        "attention:dropout": "dropout",
        "cast": "longdouble|float128",
        "squared_error": "squared_error",
        "huber": "huber",
    },
}


class Applied(Layer):
    """x (n, 1) -> (n, elements): x plus what an operation gives of tensors that the layer holds."""

    def __init__(self, case: Case, function: str) -> None:
        super().__init__("applied", input_sample_shape=(1,))
        self.case, self.function = case, function
        inputs, fixed = case.arrays()
        dtype = np.float64 if function == "normal" else np.float32  # its row is of float64
        arrays = [array.astype(dtype) if array.dtype == np.float64 else array for array in (*inputs, *fixed)]
        self.held = [tensor.from_numpy(array, device.cpu()) for array in arrays]

    def setup(self, *shapes: tuple[int, ...]) -> tuple[int, ...]:
        return (self.values().size(),)

    def values(self) -> Tensor:
        """All that the operation gives, in one row of floats."""
        with autograd.no_grad():
            function = getattr(autograd, self.function)
            before = () if self.case.call is None else (function,)
            result = (self.case.call or function)(*before, *self.held, **self.case.settings)
            results = result if isinstance(result, tuple | list) else [result]
            rows = [autograd.reshape(self.as_floats(one), (1, -1)) for one in results]
            return autograd.concat(rows, 1)

    def as_floats(self, x: Tensor) -> Tensor:
        """Masks as 1 and 0."""
        if x.dtype.kind == "f":
            return autograd.cast(x, np.float32)
        zeros = tensor.zeros(x.shape, "float32", device=x.device)
        return autograd.where(x, zeros + 1.0, zeros)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        return autograd.add(self.values(), x)


@pytest.mark.parametrize("key", CASES)
def test_an_operation_gives_the_same_in_the_file(key: str, tmp_path: Path) -> None:
    net = FeedForwardNet(device=device.cpu())
    net.add(Applied(CASES[key], key.partition(":")[0]))
    path = tmp_path / "net.onnx"
    refused = next((words for begins, words in REFUSED.items() if key.startswith(begins)), "")
    if refused:
        with pytest.raises(SnapshotError, match=refused):
            net.export(path)
        return
    for opset in (21, 23) if key.startswith(("attention", "rotary", "rms_norm")) else (21,):
        net.export(path, opset=opset)
        for count in (1, 3):
            check(net, path, {"applied": np.zeros((count, 1), np.float32)})
