"""Packing: which texts go into one row, so that few positions are padding."""

from __future__ import annotations

from collections.abc import Sequence


def packed_rows(lengths: Sequence[int], length: int) -> list[list[int]]:
    """Returns the numbers of the texts of each row, whose lengths add up to at most `length`.

    The longest texts go first, each into the row with the least space that is enough (best fit decreasing: at most
    11 / 9 of the fewest rows and one more, Johnson 1973). Rows hold their texts in rising order, and stand in the order
    of their first texts.
    """
    rows: list[list[int]] = []
    by_space: dict[int, list[int]] = {}
    for number in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        space = next((each for each in range(lengths[number], length) if by_space.get(each)), None)
        if space is None:
            row, space = len(rows), length
            rows.append([])
        else:
            row = by_space[space].pop()
        rows[row].append(number)
        by_space.setdefault(space - lengths[number], []).append(row)
    return sorted(sorted(row) for row in rows)
