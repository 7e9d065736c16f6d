"""Tensors: the class, what makes them, and copies between them and other arrays."""

from singa_lite.common.array_types import Array as Array
from singa_lite.tensor.devices import find_devices_by as find_devices_by
from singa_lite.tensor.frozen import frozen as frozen
from singa_lite.tensor.frozen import release_pages as release_pages
from singa_lite.tensor.frozen import set_pages_apart as set_pages_apart
from singa_lite.tensor.geometry import LAYOUTS as LAYOUTS
from singa_lite.tensor.geometry import Shape as Shape
from singa_lite.tensor.geometry import checked_dtype as checked_dtype
from singa_lite.tensor.geometry import checked_shape as checked_shape
from singa_lite.tensor.geometry import contiguous_strides as contiguous_strides
from singa_lite.tensor.making import as_tensor as as_tensor
from singa_lite.tensor.making import empty as empty
from singa_lite.tensor.making import from_dlpack as from_dlpack
from singa_lite.tensor.making import from_numpy as from_numpy
from singa_lite.tensor.making import full as full
from singa_lite.tensor.making import ones as ones
from singa_lite.tensor.making import operand as operand
from singa_lite.tensor.making import to_numpy as to_numpy
from singa_lite.tensor.making import zeros as zeros
from singa_lite.tensor.tensor import Block as Block
from singa_lite.tensor.tensor import DeviceSpec as DeviceSpec
from singa_lite.tensor.tensor import Tensor as Tensor
from singa_lite.tensor.tensor import TensorDevice as TensorDevice
