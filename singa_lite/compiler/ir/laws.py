"""Laws: which calls are the same as which others, in one small language. They are what the passes that rewrite go by.

    conv2d x weight bias z; $f z y    ->    conv2d x weight bias y~z

A word behind a kernel is a value, in the order of the interface's tensors: the same word is the same value. `v>w` is a
value that is updated, and what it is then; `y~z` one that lies as z does; `-` none; `$f` any activation without
settings, `$m` one that commutes with a maximum, whose derivative goes by its result. A word whose tensor the kernel may
do without stands for none as well. A call to the right has the settings of those to the left, by their names, and
`activation` is the name of $f or $m. A call to the left has no activation in its settings, but where a `+` is behind
its kernel, which says that it may have one. A call to the left in parentheses stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from singa_lite.compiler.ir.matching import CallPattern
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.kernels.kernel_set import Settings

NOTHING: Settings = MappingProxyType({})
#: Whether a law holds for these calls of its left side.
Condition = Callable[[Sequence[Instruction]], bool]


class LawWord(NamedTuple):
    """A word of a law. before: the value before its call, "-" for none; after: what an update makes of it, "" for none;
    like: the word that it lies as, "" where nothing is said.
    """

    before: str
    after: str
    like: str

    @property
    def result(self) -> str:
        """The value behind the call."""
        return self.after or self.before


class LawCall(NamedTuple):
    """A call of a law. kernel: may begin with a variable; words: of its tensors; stays: whether it is kept; activated:
    whether it may have an activation in its settings.
    """

    kernel: str
    words: tuple[LawWord, ...]
    stays: bool
    activated: bool

    @property
    def variable(self) -> str:
        """That the kernel begins with; "" where it has none."""
        return self.kernel[:2] if self.kernel.startswith("$") else ""

    @property
    def pattern(self) -> CallPattern:
        """What a program is searched for: blocks, by the words before the call."""
        words = tuple(None if word.before == "-" else word.before for word in self.words)
        return CallPattern(self.kernels(), self.variable, words, open=True)

    def kernels(self) -> Mapping[str, str]:
        """{kernel that it may be of: what the variable stands for then}."""
        return _kernels(self.variable, self.kernel[len(self.variable) :])

    def kernel_for(self, variables: Mapping[str, str]) -> str:
        """The kernel that it is of. variables: {variable: activation}."""
        return variables.get(self.variable, "") + self.kernel[len(self.variable) :]


class Law(NamedTuple):
    """left, right: calls that make the same; holds: whether they do so for these to the left."""

    left: tuple[LawCall, ...]
    right: tuple[LawCall, ...]
    holds: Condition

    @property
    def heirs(self) -> dict[str, str]:
        """{word of the left side: the new word that lies as it does, where the right side has no use for it itself}."""
        known, used = ({word.before for part in side for word in part.words} for side in (self.left, self.right))
        words = (word for part in self.right for word in part.words)
        return {one.like: one.before for one in words if one.like and one.before not in known and one.like not in used}


def law(text: str, holds: Condition = lambda calls: True) -> Law:
    """A law as it is written."""
    left, right = (tuple(_part(part) for part in side.split(";")) for side in text.split("->"))

    def is_plain(calls: Sequence[Instruction]) -> bool:
        pairs = zip(left, calls, strict=True)
        return all(part.activated or not call.settings.get("activation") for part, call in pairs)

    return Law(left, right, lambda calls: is_plain(calls) and holds(calls))


def _part(text: str) -> LawCall:
    kernel, *words = text.strip(" ()").split()
    return LawCall(kernel.rstrip("+"), tuple(map(_word, words)), text.strip().startswith("("), kernel.endswith("+"))


def _word(text: str) -> LawWord:
    name, _, like = text.partition("~")
    before, _, after = name.partition(">")
    return LawWord(before, after, like)


def settings_of(
    kernel: str, left: Sequence[Instruction], variables: Mapping[str, str], known: Settings = NOTHING
) -> Settings:
    """The settings of a call to the right of a law. left: the calls to the left; variables: {variable: activation};
    known: settings that no call to the left has.
    """
    found: dict[str, object] = {"first": 0, "share": 0.0, **known}
    for instruction in reversed(left):
        found |= instruction.settings
    for activation in variables.values():
        found["activation"] = activation
    return SIGNATURES[kernel].settings_of(found)


@cache
def _kernels(variable: str, rest: str) -> Mapping[str, str]:
    return {f"{one}{rest}": one for one in activations(variable)} if variable else {rest: ""}


def activations(variable: str) -> Collection[str]:
    """The kernels that a variable stands for."""
    plain = {
        name
        for name, s in SIGNATURES.items()
        if s.family == "activation" and s.tensors == ("x", "y") and not s.settings
    }
    return {name for name in plain if SIGNATURES[name].facts.commutes_with_max} if variable == "$m" else plain


def applies_activation(kernel: str) -> bool:
    """Whether a kernel of the interface may apply an activation to its result y."""
    return "activation" in SIGNATURES[kernel].defaults and "y" in SIGNATURES[kernel].tensors


def _fused() -> Iterator[Law]:
    """That a kernel with an activation is the kernel, and then the activation."""
    for name, signature in SIGNATURES.items():
        if not applies_activation(name):
            continue
        pairs = zip(signature.tensors, signature.roles, strict=True)
        words = [f"{tensor}>{tensor}2" if role == "Update" else tensor for tensor, role in pairs]
        apart = " ".join("z" if word == "y" else word for word in words)
        together = " ".join("y~z" if word == "y" else word for word in words)
        yield law(f"{name} {apart}; $f z y -> {name} {together}")


def _sums_of_norms() -> Iterator[Law]:
    norm = "batch_norm x gamma beta rm>rm2 rv>rv2"
    for terms in ("z other", "other z"):
        yield law(f"{norm} - z mean inv_std; add+ {terms} y -> {norm} other y mean inv_std")


def _is_linear_gradient(calls: Sequence[Instruction]) -> bool:
    product, sums = (call.settings for call in calls)
    plain = all(operand is not None and len(operand.shape) == 2 for operand in calls[0].operands)
    return plain and bool(product["transpose_a"]) and not product["transpose_b"] and sums["axis"] in (1, -1)


def _moves_rows_alone(calls: Sequence[Instruction]) -> bool:
    """Whether SGD leaves a value alone where the gradient is 0."""
    gradient, update = (call.settings for call in calls)
    hyper = update["hyper"]
    plain = isinstance(hyper, SgdHyper) and not hyper.momentum and not hyper.weight_decay
    return plain and gradient["first"] == 0


def _is_of_one_activation(calls: Sequence[Instruction]) -> bool:
    """Whether what is derived is what the normalisation applied."""
    return calls[0].kernel == f"{calls[2].settings.get('activation')}_derivative"


def _has_ids(calls: Sequence[Instruction]) -> bool:
    """Whether the targets of a loss are ids."""
    target = calls[0].by_name["target"]
    return target is not None and len(target.shape) == 1


# What the activation alone has touched may have another shape: a sequence, which is pooled as an image of height 1.
POOL_FIRST = law("max_pool2d y p i; $m x y -> max_pool2d x~y r~p j~i; $m r p")
POOL_FIRST_BOTH_WAYS = law(
    "max_pool2d y p i; $m x y; max_pool2d_derivative g i e; $m_derivative e y d"
    "-> max_pool2d x~y r~p j~i; $m r p; $m_derivative g p m~g; max_pool2d_derivative m j d~e"
)
ACTIVATED = tuple(_fused())
SUMS_OF_NORMS = tuple(_sums_of_norms())
SUM_OF_DERIVATIVES = tuple(
    law(
        f"batch_norm_derivative dy x gamma - mean inv_std - d dgamma dbeta; add {terms} dx"
        "-> batch_norm_derivative dy x gamma - mean inv_std other dx dgamma dbeta"
    )
    for terms in ("d other", "other d")
)
MASK_OF_NORM = law(
    "$m_derivative dy y d; batch_norm_derivative d x gamma - mean inv_std - dx dgamma dbeta;"
    "(batch_norm+ x gamma beta rm>rm2 rv>rv2 - y mean inv_std)"
    "-> batch_norm_derivative dy x gamma beta mean inv_std - dx dgamma dbeta",
    _is_of_one_activation,
)
LINEAR_GRADIENT = law(
    "matmul x dy dweight; bias_gradient dy dbias -> linear_gradient x dy dweight dbias", _is_linear_gradient
)
ADDED_BY_ROWS = tuple(
    law(f"embedding_gradient ids dy e; add {terms} s -> embedding_gradient_add ids dy t>s") for terms in ("t e", "e t")
)
SGD_BY_ROWS = law(
    "embedding_gradient ids dy g; sgd g rate v>v2 - c>c2 -> sgd_rows ids dy rate v>v2 c>c2", _moves_rows_alone
)
#: In the order in which one may need what another gives.
LAWS = (
    POOL_FIRST,
    POOL_FIRST_BOTH_WAYS,
    *ACTIVATED,
    *SUMS_OF_NORMS,
    *SUM_OF_DERIVATIVES,
    MASK_OF_NORM,
    LINEAR_GRADIENT,
    *ADDED_BY_ROWS,
    SGD_BY_ROWS,
    law(
        "softmax_cross_entropy z target losses p; softmax_cross_entropy_derivative dlosses p target d"
        "-> log_sum_exp z l~losses; softmax_classes_derivative dlosses z l target d",
        _has_ids,
    ),
    law(
        "softmax_cross_entropy z target losses p; softmax_cross_entropy_derivative dlosses p target d;"
        "smooth_labels_derivative dlosses target d>e"
        "-> log_sum_exp z l~losses; softmax_classes_derivative dlosses z l target e",
        _has_ids,
    ),
)
