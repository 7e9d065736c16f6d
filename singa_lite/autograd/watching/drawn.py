"""Drawn: generators of random numbers, and counters, that code of the user's has at hand, and where they stand."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import count
from types import FunctionType, ModuleType

import numpy as np

from singa_lite.autograd.watching.closed_over import called, outside_reads
from singa_lite.common.described import is_ours

_KINDS = (np.random.Generator, np.random.RandomState, random.Random, count)


def sources(functions: Iterable[FunctionType], objects: Iterable[object]) -> list[object]:
    """Those that these functions read from outside, and that objects or their classes have as attributes; each once."""
    found = [value for function in functions for value in _of_function(function)]
    found += [value for each in objects for value in _attributes(each) if isinstance(value, _KINDS)]
    return list({id(value): value for value in found}.values())


def _attributes(thing: object) -> Iterator[object]:
    yield from vars(thing).values()
    for kind in type(thing).__mro__:
        yield from () if is_ours(kind) else vars(kind).values()


def stands_at(source: object) -> object:
    """Equal values where nothing was drawn between."""
    if isinstance(source, np.random.Generator):
        return repr(source.bit_generator.state)
    if isinstance(source, np.random.RandomState) or source is np.random:
        kind, keys, *place = source.get_state()
        return kind, np.asarray(keys).tobytes(), place
    return repr(source) if isinstance(source, count) else source.getstate()  # type: ignore[attr-defined]


def called_by(source: object) -> str:
    """What a message calls it."""
    return source.__name__ if isinstance(source, ModuleType) else f"a {type(source).__module__}.{type(source).__name__}"


def _of_function(function: FunctionType) -> Iterator[object]:
    for each in called(function):
        for _, value in outside_reads(each):
            if isinstance(value, _KINDS) or value is random or value is np.random:
                yield value
            elif value is np and "random" in each.__code__.co_names:
                yield np.random
