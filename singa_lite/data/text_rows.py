"""Texts: rows of ids and targets that language models are trained on, as `fit` takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import Array
from singa_lite.common.errors import DataError
from singa_lite.common.notice import warn
from singa_lite.data.bucketed import Bucketed, bucketed
from singa_lite.data.given import Paired

#: The target of a position whose loss does not count.
IGNORED = -100
#: What becomes of a text that is longer than a row.
LONGER = ("cut", "split", "error")

#: A text's inputs and the targets behind them, int32 (n,) each.
Row = tuple[NDArray[np.int32], NDArray[np.int32]]


class Encoded(NamedTuple):
    """A text as ids. place: where it stands, for messages; counts: of each id, whether its loss counts."""

    place: str
    ids: list[int]
    counts: list[bool]


class Texts(Paired):
    """Rows of texts for language models, which `data.chat`, `data.prompts` and `data.texts` make.

    x: ids, int32 (n, length), padded by 0; y: the id behind each, or -100 where its loss does not count and behind a
    text's end. Several texts in a row: x is {"tokens": ids, "starts": the position at which each one's text begins}.
    lengths: of each row without its padding; count: texts; truncated: how many of them were cut; dropped: how many have
    nothing that counts; counted: how many targets count. len() is the number of rows.

    >>> from pathlib import Path
    >>> _ = Path("words.jsonl").write_text('{"text": "abc"}' + chr(10) + '{"text": "d"}')
    >>> words = data.texts("words.jsonl", data.ByteTokenizer(), length=4, packed=True)
    >>> words.x["tokens"].tolist(), words.x["starts"].tolist()
    ([[97, 98, 99, 100]], [[0, 0, 0, 3]])
    """

    x: Array | dict[str, Array]
    y: Array

    def __init__(
        self, rows: Sequence[Row], length: int, packed: bool, count: int, truncated: int, dropped: int
    ) -> None:
        groups = packed_rows([len(x) for x, _ in rows], length) if packed else [[each] for each in range(len(rows))]
        ids, starts = (np.zeros((len(groups), length), np.int32) for _ in range(2))
        targets = np.full((len(groups), length), IGNORED, np.int32)
        self.lengths = np.zeros(len(groups), np.int64)
        for number, group in enumerate(groups):
            at = 0
            for x, y in (rows[each] for each in group):
                end = at + len(x)
                ids[number, at:end], targets[number, at:end], starts[number, at:] = x, y, at
                at = end
            starts[number, at:] = at  # padding sees itself alone
            self.lengths[number] = at
        super().__init__({"tokens": ids, "starts": starts} if packed else ids, targets, len(groups))
        self.length, self.count, self.truncated, self.dropped = length, count, truncated, dropped
        self.counted = int(np.count_nonzero(targets != IGNORED))

    def bucketed(self, batch_size: int | None = None, **options: Any) -> Bucketed:
        """Returns the same rows in batches that are padded to one of a few lengths. options: of `data.bucketed`.

        ValueError for rows of several texts, which have no padding to save.
        """
        if isinstance(self.x, dict):
            raise ValueError("Texts.bucketed: wanted texts with a row of their own, received packed=True")
        x, y = ([row[:n] for row, n in zip(every, self.lengths, strict=True)] for every in (self.x, self.y))
        return bucketed(x, y, batch_size, **{"ignore_index": IGNORED, **options})

    def __repr__(self) -> str:
        padding = 1 - int(self.lengths.sum()) / (len(self) * self.length)
        return (
            f"<Texts: {self.count} texts in {len(self)} rows of {self.length} ids, {padding:.0%} padding; "
            f"{self.counted} targets count; {self.truncated} texts cut, {self.dropped} dropped>"
        )


def text_rows(path: str, encoded: Iterable[Encoded], length: int, longer: str, packed: bool) -> Texts:
    """Returns the rows of texts. A warning says how many were cut, and how many have nothing that counts.

    longer: one of `LONGER`. DataError for a text that is longer, where that is an error, and where no text is left.
    """
    rows, counts = list[Row](), dict.fromkeys(("count", "truncated", "dropped"), 0)
    for text in encoded:
        pieces = [piece for piece in _pieces(text, length, longer) if (piece[1] != IGNORED).any()]
        counts["count"] += 1
        counts["truncated"] += longer == "cut" and len(text.ids) > length + 1
        counts["dropped"] += not pieces
        rows += pieces
    found = f"{counts['truncated']} of {counts['count']} texts are longer than {length} positions"
    if not rows:
        wanted = f"a text with a target that counts, as answers have, within {length} positions"
        raise DataError(f"{path}: wanted {wanted}, received none; {found}")
    cut = [f"{found} and were cut there"] if counts["truncated"] else []
    lost = [f"{counts['dropped']} have nothing whose loss counts and were dropped"] if counts["dropped"] else []
    if cut or lost:
        warn(f"{path}: {'; '.join(cut + lost)}")
    return Texts(rows, length, packed, **counts)


def _pieces(text: Encoded, length: int, longer: str) -> list[Row]:
    """A text's rows: one, or, where it is split, some that have one id in common each."""
    if longer == "error" and len(text.ids) > length + 1:
        raise DataError(f"{text.place}: wanted a text of at most {length + 1} ids, received {len(text.ids)}")
    ids = np.array(text.ids, np.int32)
    targets = np.where(text.counts, ids, IGNORED).astype(np.int32)
    starts = range(0, max(len(ids) - 1, 1), length) if longer == "split" else [0]
    return [(ids[start : start + length + 1][:-1], targets[start + 1 : start + length + 1]) for start in starts]


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
