"""The kernel interface: each kernel's name, arguments, shapes and what it may overwrite.

A kernel is called as `kernel(*tensors, **settings)`, tensors in the order written here. It writes into outputs
that the caller gives, allocates nothing, and gets its temporaries as `scratch`, whose bytes it states beforehand.
Settings are frozen when a step is recorded; whatever changes between steps (learning rate, counts, random keys)
is a tensor. A kernel set may lack a kernel: the next set down serves.
"""

from importlib import import_module

from singa_lite.kernels.interface.signature import SIGNATURES as SIGNATURES
from singa_lite.kernels.interface.signature import Facts as Facts
from singa_lite.kernels.interface.signature import Signature as Signature
from singa_lite.kernels.interface.signature import is_user_kernel as is_user_kernel
from singa_lite.kernels.interface.signature import joined_name as joined_name
from singa_lite.kernels.interface.signature import joined_of as joined_of
from singa_lite.kernels.interface.signature import stored_update as stored_update
from singa_lite.kernels.interface.signature import update_of as update_of

#: Modules whose stubs enter `SIGNATURES`.
_MODULES = (
    "activation attention convolution elementwise embedding linear loss low_rank metric normalization pooling position "
    "quantized random recurrent reduction stored_value update"
)
for _name in _MODULES.split():
    import_module(f"{__name__}.{_name}")
