"""The table that ends a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from first_run.item import Values

#: Characters of a cell.
WIDE = 150


def summary(results: Sequence[Values]) -> str:
    """A line for each item that says something, one for all contract cases that are right, and the counts."""
    contract = [one for one in results if one["item"].startswith("contract/") and one["status"] == "ok"]
    lines = [_line(one) for one in results if one not in contract]
    if contract:
        equal = sum(any(side.get("equal_bits") for side in one["values"].values()) for one in contract)
        worst = max(float(side["error"]) for one in contract for side in one["values"].values())
        lines.append(
            f"ok        contract: {len(contract)} cases, {equal} with equal bits, largest error {worst:.1f} eps"
        )
    counts = Counter(one["status"] for one in results)
    return "\n".join([*lines, ", ".join(f"{count} {status}" for status, count in counts.items())])


def _line(one: Values) -> str:
    said = one.get("error") or _values(one.get("values", {}))
    return f"{one['status']:9} {one['item']:34} {one.get('seconds', 0):7.1f} s  {str(said)[:WIDE]}"


def _values(values: Any) -> str:
    if not isinstance(values, dict):
        return str(values)
    return ", ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], float):
        return f"{median(value):.4g} (median of {len(value)})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
