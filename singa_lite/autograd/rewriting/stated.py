"""Shapes for which a rule is stated, and shapes to try it on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from singa_lite.common.checks import is_int
from singa_lite.tensor import Shape

#: Shapes of all inputs; an extent is a number, or a name that stands for one number wherever it occurs.
Stated = tuple[tuple[int | str, ...], ...]

#: Axes of inputs of which nothing is stated but that they are alike.
AXES = ("n", "c", "h", "w")
#: What names are tried as: unequal extents, others, and 1 alone.
EXTENTS = ((3, 5, 2, 4, 7, 6, 9, 8), (2, 7, 6, 3, 5, 9, 4, 11), (1,) * 8)


def checked(where: str, given: object, count: int) -> list[Stated]:
    """The alternatives that a rule is stated for. given: shapes of its inputs, None: all alike, of one to four axes.

    TypeError, ValueError for what is no such thing.
    """
    if given is None:
        return [(AXES[:axes],) * count for axes in range(1, len(AXES) + 1)]
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(
            f'{where} inputs: wanted a shape for each input, such as [("n", "k"), ("k", 3)], received {given!r}'
        )
    if len(given) != count:
        raise ValueError(f"{where} inputs: wanted a shape for each of {count} inputs, received {len(given)}")
    for shape in given:
        if isinstance(shape, str) or not isinstance(shape, Sequence) or not all(map(_is_extent, shape)):
            raise TypeError(f'{where} inputs: wanted shapes of numbers and names, such as ("n", 3), received {shape!r}')
    stated = tuple(tuple(shape) for shape in given)
    if len(_names(stated)) > len(EXTENTS[0]):
        raise ValueError(f"{where} inputs: wanted at most {len(EXTENTS[0])} names, received {_names(stated)}")
    return [stated]


def trials(stated: Stated) -> Iterator[list[Shape]]:
    """Shapes of the inputs, as often as they are tried."""
    for extents in EXTENTS if _names(stated) else EXTENTS[:1]:
        known = dict(zip(_names(stated), extents, strict=False))
        yield [tuple(known[e] if isinstance(e, str) else e for e in shape) for shape in stated]


def fits(stated: Stated, shapes: Sequence[Shape]) -> bool:
    """Whether these are shapes that are stated."""
    known: dict[str, int] = {}
    if [len(shape) for shape in stated] != [len(shape) for shape in shapes]:
        return False
    pairs = (pair for wanted, found in zip(stated, shapes, strict=True) for pair in zip(wanted, found, strict=True))
    return all((known.setdefault(e, found) if isinstance(e, str) else e) == found for e, found in pairs)


def _is_extent(given: object) -> bool:
    return (isinstance(given, str) and bool(given)) or (is_int(given) and int(given) > 0)


def _names(stated: Stated) -> list[str]:
    return list(dict.fromkeys(extent for shape in stated for extent in shape if isinstance(extent, str)))
