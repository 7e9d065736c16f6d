"""Calls of operands with gaps, or in another order of axes, by builders that want C order: over copies in scratch."""

from __future__ import annotations

from functools import wraps

from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.built import Builder
from singa_lite.kernels.cuda_kernels.mixed import over_copies
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import TensorSpec


def without_gaps(build: Builder[Routine]) -> Builder[Routine]:
    """The builder of the kernel of its name, which is given specs in C order without gaps alone."""
    signature = SIGNATURES[build.__name__]

    @wraps(build)
    def built(*specs: TensorSpec | None, **settings: object) -> Routine | None:
        forms = tuple(None if spec is None or _is_plain(spec) else _plain(spec) for spec in specs)
        if not any(forms):
            return build(*specs, **settings)
        return over_copies(signature, build, specs, settings, forms)

    return built


def _is_plain(spec: TensorSpec) -> bool:
    """Whether it lies in C order without gaps."""
    wanted = _plain(spec).strides
    return all(extent == 1 or a == b for extent, a, b in zip(spec.shape, spec.strides, wanted, strict=True))


def _plain(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.shape, spec.dtype, ordered_strides(spec.shape, range(spec.ndim), spec.dtype.itemsize))
