"""FeedBuffer: bytes that the batches of several recorded steps pass through, as many as the largest of them needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

from singa_lite.common.errors import GraphError
from singa_lite.graph.arena import Arena
from singa_lite.tensor import Block


class Feed:
    """The place in the buffer of the batches of one step: `blocks`, one behind the other. nbytes: of all together.

    bound: what copies a batch to where the blocks lie now, kept for whoever does; None: nothing.
    """

    def __init__(self, buffer: FeedBuffer, blocks: Sequence[Block]) -> None:
        self.buffer = buffer
        self.blocks = tuple(blocks)
        self.offsets: list[int] = []
        self.nbytes = 0
        self.span: Block | None = None
        self.bound: Any = None
        self.mark = object()  # by which the buffer knows it without keeping it
        for block in self.blocks:
            self.offsets.append(self.nbytes)
            self.nbytes += buffer.rounded(block.nbytes)

    def bind(self, span: Block) -> None:
        """Let the blocks lie in this span, which they keep alive: somebody may hold a tensor over one of them."""
        self.bound = None
        memory_slice = self.buffer.arena.device.runtime.memory_slice
        for block, offset in zip(self.blocks, self.offsets, strict=True):
            block.memory = memory_slice(span.memory, offset, block.nbytes)
            block.set_give(partial(_let_go, span))
        self.span = span

    def release(self) -> None:
        """Forget the bytes."""
        self.bound = self.span = None  # first: after an interrupt in what follows `open` binds all blocks anew
        for block in self.blocks:
            block.memory = None
            block.set_give(_no_op)

    def check(self) -> None:
        """GraphError unless the batch that was copied in last is this step's, and whole."""
        if self.buffer.holder is not self.mark:
            raise GraphError(
                "running a net's recorded step: wanted the batch that it was fed still in its place, but another step "
                "of the net was fed since, and all of them share it; train a batch of this form first"
            )


class FeedBuffer:
    """The span that the feeds of a net's recorded steps share: they are never needed at the same time.

    arena: of the same steps, whose launches are bound anew when the span grows. holder: the mark of the feed whose
    batch is in.
    """

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.holder: object = None
        self._span: Block | None = None
        self._feeds: WeakSet[Feed] = WeakSet()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._span.nbytes if self._span is not None else 0

    def rounded(self, nbytes: int) -> int:
        """Bytes up to where the next block may begin."""
        alignment = self.arena.device.runtime.alignment
        return -(-nbytes // alignment) * alignment

    def feed(self, blocks: Sequence[Block]) -> Feed:
        """A feed of these blocks, which have no bytes before it is opened."""
        made = Feed(self, blocks)
        self._feeds.add(made)
        return made

    def has(self, block: Block) -> bool:
        """Whether the block is a feed's."""
        return any(block is fed for feed in self._feeds for fed in feed.blocks)

    def drop(self, feed: Feed) -> None:
        """Forget a feed whose step is not to be, and the bytes that no other needs."""
        self._feeds.discard(feed)
        feed.release()
        if all(other.nbytes < self.nbytes for other in self._feeds):
            self.holder = None
            self.arena.turn.run(self._let_go_of_span)  # `open` takes what the next feed needs

    def open(self, feed: Feed) -> None:
        """Before a batch is copied to the blocks of a feed: they get their bytes, and no other feed's batch is left."""
        self.holder = None
        if feed.nbytes > self.nbytes or self._span is None:
            self._grow(feed.nbytes)
        if feed.span is not self._span and self._span is not None:
            feed.bind(self._span)

    def _grow(self, nbytes: int) -> None:
        self.arena.turn.run(self._let_go_of_span)  # give the old span back before taking the larger one
        self._span = self.arena.device.new_block(nbytes)

    def _let_go_of_span(self) -> None:
        self.arena.release()  # launches are bound to the old addresses
        for feed in self._feeds:
            feed.release()
        self._span = None
        self.arena.device.pool.release_free()  # or the system would count both spans


def _let_go(_: Block) -> None:
    """What is called when a block dies that lies in a span: its reference to the span goes."""


def _no_op() -> None:
    """What is called when a block without bytes dies."""
