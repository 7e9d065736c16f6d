"""The reference kernel set: plain NumPy, always there, every dtype NumPy has and bfloat16, imports numpy only."""

from importlib import import_module

from singa_lite.kernels import low_rank_product, quantized_product
from singa_lite.kernels.kernel_set import collect
from singa_lite.kernels.numpy_kernels.batch_norm import FUSIONS
from singa_lite.kernels.numpy_kernels.scratch import RULES
from singa_lite.kernels.widening import WideningSet

_MODULES = (
    "activation adafactor attention batch_norm bfloat16 cached_attention class_scores convolution elementwise "
    "embedding functions group_norm linear loss metric normalization ordering pooling position quantized random "
    "recurrent reduction rms_norm token_loss update"
)

NUMPY = WideningSet(
    "numpy", collect((import_module(f"{__name__}.{name}") for name in _MODULES.split()), RULES), fusions=FUSIONS
)
NUMPY.kernels |= quantized_product.products(NUMPY) | low_rank_product.products(NUMPY)
