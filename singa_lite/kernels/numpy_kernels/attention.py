"""Attention by tiles: NumPy's products and exponentials over a tile of one key head at a time.

Forward, the largest score of each row so far and the sum of e**(score - largest) are kept, and what was summed up is
scaled whenever a larger score comes (Milakov and Gimelshein, arXiv 1805.02867; Dao and others, arXiv 2205.14135).
Backward, the probabilities of a tile are made again from the log of the sum of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.numpy_kernels.attention_tiles import HIDDEN, Tiles
from singa_lite.kernels.numpy_kernels.scratch import RULES, Bytes


class _Forward(Tiles):
    """y and lse."""

    def own_buffers(self) -> dict[str, int]:
        """top: the largest score; total: the sum of powers; result: y so far."""
        vectors = dict.fromkeys(("top", "new", "shrink", "part", "total"), self.lines)
        return {"result": self.lines * self.size, **vectors}

    def block(self, sample: int, heads: slice, block: slice) -> None:
        """All tiles of these rows of these query heads."""
        lines = self.share * (block.stop - block.start)
        query, result = (self.matrix(name, lines, self.size) for name in ("query", "result"))
        top, new, shrink, part, total = (self.matrix(name, lines) for name in ("top", "new", "shrink", "part", "total"))
        np.multiply(self.part("q", sample, heads, block), self.scale, out=self.by_heads(query))
        top.fill(-np.inf)
        total.fill(0)
        result.fill(0)
        kept = self.draw_kept(sample, heads, block)
        for tile in self.tiles(block):
            scores = self.scores(block, tile)
            np.maximum.reduce(scores, axis=1, out=part)
            np.maximum(top, part, out=new)
            np.subtract(top, new, out=shrink)
            np.exp(shrink, out=shrink)
            np.copyto(top, new)
            np.subtract(scores, top[:, None], out=scores)
            np.exp(scores, out=scores)
            np.add.reduce(scores, axis=1, out=part)
            np.multiply(total, shrink, out=total)
            np.add(total, part, out=total)
            if kept is not None:
                np.multiply(scores, kept[:, tile], out=scores)
            if tile.start:
                np.multiply(result, shrink[:, None], out=result)
            self.add_product(scores, self.lines_of("values", tile), result)
        self._finish(sample, heads, block)

    def _finish(self, sample: int, heads: slice, block: slice) -> None:
        """y = what was summed up / total, lse = top + log of total; 0 of rows that see no key."""
        lines = self.share * (block.stop - block.start)
        top, part, total, new = (self.matrix(name, lines) for name in ("top", "part", "total", "new"))
        hidden = new.view(np.bool_)[:lines]
        np.log(total, out=part)
        np.add(part, top, out=part)
        np.less(top, HIDDEN / 2, out=hidden)
        np.copyto(part, 0, where=hidden)
        np.copyto(self.given["lse"][sample, heads, block], self.by_heads(part), casting="same_kind")
        np.copyto(total, np.inf, where=hidden)
        np.multiply(total, 1 - self.p, out=total)
        result = self.by_heads(self.matrix("result", lines, self.size))
        np.divide(result, self.by_heads(total)[..., None], out=self.part("y", sample, heads, block))


class _Backward(Tiles):
    """dq, dk and dv."""

    def own_buffers(self) -> dict[str, int]:
        """dkeys, dvalues: sums over all rows; slopes: the derivative by a tile's scores."""
        lines, keys = self.lines * self.size, self.keys * self.size
        sums = {"dy": lines, "dquery": lines, "dkeys": keys, "dvalues": keys}
        return {**sums, "slopes": self.lines * self.key_step, "lse": self.lines, "delta": self.lines}

    def head(self, sample: int, head: int) -> None:
        """All rows of this key head."""
        for name in ("dkeys", "dvalues"):
            self.buffers[name].fill(0)
        super().head(sample, head)
        np.divide(self.buffers["dvalues"], 1 - self.p, out=self.buffers["dvalues"])
        for tensor, name in (("dk", "dkeys"), ("dv", "dvalues")):
            total = self.matrix(name, self.keys, self.size)
            np.copyto(self.given[tensor][sample, :, head], total, casting="same_kind")

    def block(self, sample: int, heads: slice, block: slice) -> None:
        """All tiles of these rows of these query heads."""
        lines = self.share * (block.stop - block.start)
        query, dy, dquery = (self.matrix(name, lines, self.size) for name in ("query", "dy", "dquery"))
        lse, delta = (self.matrix(name, lines) for name in ("lse", "delta"))
        np.multiply(self.part("q", sample, heads, block), self.scale, out=self.by_heads(query))
        np.copyto(self.by_heads(lse), self.given["lse"][sample, heads, block])
        np.copyto(self.by_heads(dy), self.part("dy", sample, heads, block))
        np.multiply(self.by_heads(dy), self.part("y", sample, heads, block), out=self.by_heads(dquery))
        np.add.reduce(dquery, axis=1, out=delta)
        dquery.fill(0)
        kept = self.draw_kept(sample, heads, block)
        for tile in self.tiles(block):
            p = self.scores(block, tile)
            np.subtract(p, lse[:, None], out=p)
            np.exp(p, out=p)
            ds = self._slopes(p, dy, tile, None if kept is None else kept[:, tile])
            self.add_product(ds, self.lines_of("keys", tile), dquery)
            self.add_product(ds.T, query, self.lines_of("dkeys", tile))
        dq = self.part("dq", sample, heads, block)
        np.multiply(self.by_heads(dquery), self.scale, out=dq, casting="same_kind")

    def _slopes(self, p: Array, dy: Array, tile: slice, kept: Array | None) -> Array:
        """The derivative by the scores of a tile; adds to that by its values."""
        ds, used = self.matrix("slopes", *p.shape), p
        if kept is not None:
            used = np.multiply(p, kept, out=ds)
        self.add_product(used.T, dy, self.lines_of("dvalues", tile))
        np.matmul(dy, self.lines_of("values", tile).T, out=ds)
        if kept is not None:
            np.multiply(ds, kept, out=ds)
            np.divide(ds, 1 - self.p, out=ds)
        np.subtract(ds, self.matrix("delta", len(p))[:, None], out=ds)
        return np.multiply(ds, p, out=ds)


def _kernel(name: str, kind: type[Tiles]) -> Callable[..., None]:
    """The kernel whose calls this direction does."""

    def tiles(tensors: Sequence[Any], scratch: Bytes | None, settings: Mapping[str, Any]) -> Tiles:
        return kind(dict(zip(SIGNATURES[name].tensors, tensors, strict=True)), scratch, **settings)

    def run(*tensors: Array | None, scratch: Bytes, **settings: Any) -> None:
        tiles(tensors, scratch, settings)()

    RULES[run] = lambda *tensors, **settings: tiles(tensors, None, settings).scratch_bytes
    return run


KERNELS = {
    "attention": _kernel("attention", _Forward),
    "attention_derivative": _kernel("attention_derivative", _Backward),
}
