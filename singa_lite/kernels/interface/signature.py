"""How the interface states a kernel: what it reads, updates and writes, and what it may overwrite."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


class Read:
    """Annotation of an argument that a kernel only reads."""


class Update:
    """Annotation of an argument that a kernel reads and overwrites with its new value."""


class Write:
    """Annotation of an argument that a kernel fills; what it held before does not matter."""


@dataclass(frozen=True)
class Signature:
    """One kernel of the interface.

    tensors: names of the tensor arguments in order; roles: the role of each ("Read", "Update", "Write");
    optional: names that may be None; settings: names of the plain values, all passed by keyword;
    overwrites: {output: inputs whose bytes that output may share, if shapes and dtypes are equal};
    doc: shapes and formula.
    """

    name: str
    tensors: tuple[str, ...]
    roles: tuple[str, ...]
    optional: frozenset[str]
    settings: tuple[str, ...]
    overwrites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    doc: str = ""


#: Kernels that may sum in another order, and so round otherwise, where tensors have other strides: of a tensor of any
#: other kernel the outermost stride may be larger than its extents need, and the result is the same, bit for bit.
STRIDES_MATTER = frozenset({"matmul", "linear", "linear_gradient", "reduce_sum", "clip_norm"})

#: The same for strides of any axis.
INNER_STRIDES_MATTER = STRIDES_MATTER | {"conv2d", "conv2d_derivative", "conv2d_gradient"}

#: Every kernel by name. Filled by the modules of this folder, complete once the folder is imported.
SIGNATURES: dict[str, Signature] = {}


def kernel(**overwrites: str) -> Callable[[Callable[..., None]], Signature]:
    """Enter the decorated stub into `SIGNATURES`; its annotations give the roles, its docstring the shapes.

    overwrites: output name = the input names, separated by spaces, whose bytes it may share.
    """
    shared = {output: tuple(inputs.split()) for output, inputs in overwrites.items()}

    def enter(stub: Callable[..., None]) -> Signature:
        parameters = inspect.signature(stub).parameters.values()
        tensors = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        signature = Signature(
            name=stub.__name__,
            tensors=tuple(p.name for p in tensors),
            roles=tuple(str(p.annotation).split(" ")[0] for p in tensors),
            optional=frozenset(p.name for p in tensors if "None" in str(p.annotation)),
            settings=tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
            overwrites=shared,
            doc=inspect.getdoc(stub) or "",
        )
        SIGNATURES[signature.name] = signature
        return signature

    return enter
