"""Signatures of kernels: what each reads, updates and writes, and what it may overwrite."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from weakref import WeakValueDictionary


class Read:
    """Annotation of an argument that a kernel only reads."""


class Update:
    """Annotation of an argument that a kernel reads and overwrites with its new value."""


class Write:
    """Annotation of an argument that a kernel fills; what it held before does not matter."""


@dataclass(frozen=True)
class Facts:
    """What the passes may take for granted of a kernel, whatever kernel set does it.

    strides_matter: it may sum in another order, and so round otherwise, where tensors have other strides.
    inner_strides_matter: the same, but not where only the stride of axis 0 is larger than the extents need. Of any
    other kernel results are the same for all such strides, bit for bit. by_elements: an update that treats each element
    of a gradient by itself, whatever piece of the gradient it is given. multiplies: "tensors" of a kernel that is a
    product of its own tensors as matrices, "blocks" where one of these is quantised, "patches" where one of the
    matrices has the elements under each window and is no tensor of the call, "scores" of attention, whose products are
    of rows and keys, head by head, "steps" of a recurrent layer, which multiplies each step's state by its weight, else
    "". commutes_with_max: an activation f with max(f(a), f(b)) = f(max(a, b)), to the bit, that is flat only where it
    passes nothing back. again: the kernel that gives y again from what this one kept, to the bit, where this one moves
    state that must move once; its tensors and settings have the names that they have here. "": the kernel itself.
    by_samples: names of the tensors whose axis 0 are samples that are done each by itself, so that pieces of a batch
    give what the batch gives; all others are the same for all samples. (): samples are not done by themselves.
    joins_samples: an optional tensor with which they are not, as its random numbers go on from sample to sample.
    sums_over: names of the tensors whose axis 0 are samples, of a kernel all of whose results are sums over these.
    once: it may not be done again, as it would not give the same. activations: names of the tensors that are
    activations or derivatives by these, None: those that the interface calls so everywhere, x, y, dx and so on.
    collective: whether it begins something that several processes take part in, or waits for its end; until then nobody
    else may read or write its tensors. "poll" lets what was begun go on, and has none.
    """

    strides_matter: bool = False
    inner_strides_matter: bool = False
    by_elements: bool = False
    multiplies: Literal["", "tensors", "blocks", "patches", "scores", "steps"] = ""
    commutes_with_max: bool = False
    again: str = ""
    by_samples: tuple[str, ...] = ()
    joins_samples: str = ""
    sums_over: tuple[str, ...] = ()
    once: bool = False
    activations: tuple[str, ...] | None = None
    collective: Literal["", "begin", "wait", "poll"] = ""


#: Of most kernels.
NONE = Facts()


@dataclass(frozen=True)
class Signature:
    """One kernel of the interface.

    tensors: names of the tensor arguments in order; roles: the role of each ("Read", "Update", "Write");
    optional: names that may be None; settings: names of the plain values, all passed by keyword;
    defaults: of those settings that a call may leave out. A record leaves out each that has its default;
    overwrites: {output: inputs whose bytes that output may share, if shapes and dtypes are equal};
    facts: what else holds in every kernel set; family: the module of this folder that states it, whose kernels take
    about as long a byte; doc: shapes and formula.
    """

    name: str
    tensors: tuple[str, ...]
    roles: tuple[str, ...]
    optional: frozenset[str]
    settings: tuple[str, ...]
    overwrites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    facts: Facts = NONE
    family: str = ""
    doc: str = ""
    defaults: Mapping[str, object] = field(default_factory=dict)

    def settings_of(self, given: Mapping[str, object]) -> dict[str, object]:
        """Those of the given settings that a call of this kernel states. KeyError for one that is missing."""
        known = {**self.defaults, **given}
        pairs = [(name, known[name]) for name in self.settings]
        return {name: value for name, value in pairs if name not in self.defaults or value != self.defaults[name]}


class Signatures(dict[str, Signature]):
    """Kernels by name. Those of the interface are gone over; those of users' own operations are only found by name.

    A name of an own kernel has a dot, no other has one. An own kernel is there for as long as somebody holds its
    signature, and its name never stands for another one, as rules that were worked out by name are remembered.
    Nor are joined calls gone over (`joined_name`), or updates of values that are stored in bfloat16 (`stored_update`):
    their signatures follow from others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own: WeakValueDictionary[str, Signature] = WeakValueDictionary()
        self._names = Counter[str]()
        self._derived: dict[str, Signature] = {}

    def __missing__(self, name: str) -> Signature:
        kernel, count = joined_of(name)
        update = update_of(name)
        if not kernel and not update:
            return self._own[name]
        if name not in self._derived:
            self._derived[name] = _joined(self[kernel], count) if kernel else _stored(self[update])
        return self._derived[name]

    def own_name(self, wanted: str) -> str:
        """A name for an own kernel that none had before."""
        self._names[wanted] += 1
        return wanted if self._names[wanted] == 1 else f"{wanted}#{self._names[wanted]}"

    def enter_own(self, signature: Signature) -> None:
        """Enter the signature of an own kernel, whose name is from `own_name`."""
        self._own[signature.name] = signature


def is_user_kernel(name: str) -> bool:
    """Whether the kernel of this name is of a user's own operation."""
    return "." in name


def joined_name(kernel: str, count: int) -> str:
    """The name of so many calls of a kernel as one, "sgd*12": the operands of one call stand behind those of another.

    The settings are of all of them, and none writes what another one reads or writes.
    """
    return f"{kernel}*{count}"


def joined_of(name: str) -> tuple[str, int]:
    """The kernel of joined calls and how many they are; of any other name "" and 0."""
    kernel, star, count = name.partition("*")
    return (kernel, int(count)) if star else ("", 0)


#: Behind the name of an update.
_STORED = ":bfloat16"


def stored_update(kernel: str) -> str:
    """The name of an update of a value that is stored in bfloat16, "sgd:bfloat16".

    The value is widened, updated and rounded piece by piece. error: int8 of the value's shape, what rounding to nearest
    left over (`split_error`); without it the value is rounded by chance, and count is that of `round_by_chance`.
    first: the number of the value's first row in the parameter.
    """
    return f"{kernel}{_STORED}"


def update_of(name: str) -> str:
    """The update that a name of `stored_update` stands for; "" of any other name."""
    return name.removesuffix(_STORED) if name.endswith(_STORED) else ""


def _stored(one: Signature) -> Signature:
    return replace(
        one,
        name=stored_update(one.name),
        tensors=(*one.tensors, "error"),
        roles=(*one.roles, "Update"),
        optional=one.optional | {"error"},
        settings=(*one.settings, "first"),
        doc=f"`{one.name}` of a value that is stored in bfloat16.",
    )


def _joined(one: Signature, count: int) -> Signature:
    """Of so many calls. All that is stated of a single one is asked for before calls are joined."""
    tensors = tuple(f"{name}_{call}" for call in range(1, count + 1) for name in one.tensors)
    optional = frozenset(f"{name}_{call}" for call in range(1, count + 1) for name in one.optional)
    name, doc = joined_name(one.name, count), f"{count} calls of `{one.name}`, none of which uses what another writes."
    facts, defaults = NONE, one.defaults
    return Signature(name, tensors, one.roles * count, optional, one.settings, {}, facts, one.family, doc, defaults)


#: Every kernel by name. Filled by the modules of this folder, complete once the folder is imported.
SIGNATURES = Signatures()


def kernel(facts: Facts = NONE, /, **overwrites: str) -> Callable[[Callable[..., None]], Signature]:
    """Enter the decorated stub into `SIGNATURES`; its annotations give the roles, its docstring the shapes.

    facts: what else holds in every kernel set. overwrites: output name = the input names, separated by spaces, whose
    bytes it may share.
    """
    shared = {output: tuple(inputs.split()) for output, inputs in overwrites.items()}

    def enter(stub: Callable[..., None]) -> Signature:
        parameters = inspect.signature(stub).parameters.values()
        tensors = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        plain = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        signature = Signature(
            name=stub.__name__,
            tensors=tuple(p.name for p in tensors),
            roles=tuple(str(p.annotation).split(" ")[0] for p in tensors),
            optional=frozenset(p.name for p in tensors if "None" in str(p.annotation)),
            settings=tuple(p.name for p in plain),
            defaults={p.name: p.default for p in plain if p.default is not p.empty},
            overwrites=shared,
            facts=facts,
            family=stub.__module__.rpartition(".")[2],
            doc=inspect.getdoc(stub) or "",
        )
        SIGNATURES[signature.name] = signature
        return signature

    return enter
