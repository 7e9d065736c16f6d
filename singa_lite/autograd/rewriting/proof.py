"""The proof of a rule: both sides give the same on random inputs, with zeros of both signs, infinities and NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from singa_lite.autograd.rewriting.traced import Function, Needs, Stated, results, trials
from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import RuleError
from singa_lite.device import Device
from singa_lite.tensor import Shape, from_numpy, to_numpy

#: What stands among the random numbers, one set after the other.
SPECIALS: tuple[tuple[float, ...], ...] = (
    (),
    (0.0, -0.0),
    (np.inf, -np.inf),
    (np.nan,),
    (0.0, -0.0, np.inf, -np.inf, np.nan),
)
#: Which share of the elements they are.
SHARE = 0.3
#: Of the random numbers; every proof draws the same.
SEED = 41


class Claim(NamedTuple):
    """The claim that two functions give the same, up to a tolerance. name: of the rule; names: of their inputs."""

    name: str
    pattern: Function
    replacement: Function
    names: tuple[str, ...]
    tolerance: float

    @property
    def where(self) -> str:
        """What messages begin with."""
        return f"rule {self.name!r}"


def check_on_random_inputs(claim: Claim, stated: Stated, needs: Needs, dtypes: Sequence[DType], device: Device) -> None:
    """Raises RuleError for the first random input on which the two sides of a rule differ, results and derivatives
    alike. Each dtype is tried, with shapes of unequal extents; derivatives are by the inputs that need one.
    """
    random = np.random.default_rng(SEED)
    for shapes in trials(stated):
        for dtype in dtypes:
            for specials in SPECIALS:
                arrays = [_values(random, shape, dtype, specials) for shape in shapes]
                _compare(claim, arrays, needs, specials, random, device)


def _compare(
    claim: Claim,
    arrays: Sequence[Array],
    needs: Needs,
    specials: Sequence[float],
    random: np.random.Generator,
    device: Device,
) -> None:
    """RuleError unless both sides give the same for these arrays."""
    dy: Array | None = None
    if any(needs):
        (y,) = _run(claim.pattern, arrays, needs, None, device)
        dy = _values(random, y.shape, y.dtype, specials)
    wanted, found = (_run(side, arrays, needs, dy, device) for side in (claim.pattern, claim.replacement))
    whats = _result_names(claim.names, needs, len(wanted))
    given = dict(zip(claim.names, arrays, strict=True)) | ({} if dy is None else {"dy": dy})
    for what, one, other in zip(whats, wanted, found, strict=True):
        index = first_difference(one, other, claim.tolerance)
        if index is not None:
            raise RuleError(_difference_text(claim, what, index, one, other, given))


def _run(side: Function, arrays: Sequence[Array], needs: Needs, dy: Array | None, device: Device) -> list[Array]:
    """The results of a side, which may not change its inputs."""
    inputs = [from_numpy(array, device) for array in arrays]
    with np.errstate(all="ignore"):
        found = results(side, inputs, needs, None if dy is None else from_numpy(dy, device))
        return [to_numpy(tensor) for tensor in found]


def first_difference(wanted: Array, found: Array, tolerance: float) -> tuple[int, ...] | None:
    """The index of the first element that differs; () of arrays of two shapes or dtypes; None where none does.

    tolerance: 0: to the bit, but that all NaN are equal; else the largest |found - wanted| / max(1, |wanted|).
    """
    if (wanted.shape, wanted.dtype) != (found.shape, found.dtype):
        return ()
    same = wanted == found
    if wanted.dtype.kind == "f":
        with np.errstate(all="ignore"):
            near = np.isfinite(wanted) & (np.abs(found - wanted) <= tolerance * np.maximum(1, np.abs(wanted)))
        same = same | near if tolerance else same & (np.signbit(wanted) == np.signbit(found))
        same |= np.isnan(wanted) & np.isnan(found)
    wrong = np.argwhere(~same)
    return tuple(int(index) for index in wrong[0]) if len(wrong) else None


def _values(random: np.random.Generator, shape: Shape, dtype: DType, specials: Sequence[float]) -> Array:
    """Normal numbers, with some of the special ones among them."""
    made: Array = (3 * random.standard_normal(shape)).astype(dtype)
    if specials:
        made = np.where(random.random(shape) < SHARE, random.choice(specials, shape), made).astype(dtype)
    return made


def _result_names(names: Sequence[str], needs: Needs, count: int) -> Iterator[str]:
    """What each of the results is."""
    derivatives = [f"the derivative by {name!r}" for name, needed in zip(names, needs, strict=True) if needed]
    plain = count - len(derivatives)
    yield from ["the result"] if plain == 1 else [f"result {index}" for index in range(plain)]
    yield from derivatives


def _difference_text(
    claim: Claim, what: str, index: tuple[int, ...], wanted: Array, found: Array, given: dict[str, Array]
) -> str:
    within = f"equal within {claim.tolerance:g}" if claim.tolerance else "equal to the bit"
    if (wanted.shape, wanted.dtype) != (found.shape, found.dtype):
        return (
            f"{claim.where}: wanted both sides of one shape and dtype, received {wanted.shape} {wanted.dtype} of the "
            f"pattern and {found.shape} {found.dtype} of the replacement"
        )
    at = list(index)
    shown = "; ".join(_input_text(name, array, index, wanted.shape) for name, array in given.items())
    return (
        f"{claim.where}: wanted both sides {within}, received {wanted[index]} of the pattern and {found[index]} of the "
        f"replacement, at {at} of {what}, in {wanted.dtype}, from {shown}"
    )


def _input_text(name: str, array: Array, index: tuple[int, ...], shape: Shape) -> str:
    """An input: the element that stands where the results differ, if there is one, else all."""
    if array.shape == shape:
        return f"{name}{list(index)} = {array[index]} of shape {array.shape}"
    text = np.array2string(array, precision=4, separator=", ", threshold=64).replace("\n", "")
    return f"{name} = {text} of shape {array.shape}"
