"""`--tiny`, which every benchmark has: the same run in seconds, at the smallest sizes. Its figures mean nothing.

options = parsed(parser, rounds=1)  # values in the place of the options' usual ones
SIZES = size((1024, 2048), (64,))   # a constant of the program, and the one in its place
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TypeVar

#: By this variable the processes that a benchmark starts know of it.
VARIABLE = "SINGA_LITE_BENCHMARK_TINY"
TINY = "--tiny" in sys.argv or VARIABLE in os.environ
if TINY:
    os.environ[VARIABLE] = "1"

T = TypeVar("T")


def size(usual: T, tiny: T) -> T:
    """The second with `--tiny`, else the first."""
    return tiny if TINY else usual


def parsed(parser: argparse.ArgumentParser, **tiny: object) -> argparse.Namespace:
    """The command line. tiny: with `--tiny`, the values of options that are not given."""
    parser.add_argument("--tiny", action="store_true", help="seconds, at the smallest sizes: to see that it runs")
    given = parser.parse_args()
    for name, value in {"anyway": True, **tiny}.items() if TINY else ():
        if getattr(given, name, None) == parser.get_default(name):
            setattr(given, name, value)
    return given
