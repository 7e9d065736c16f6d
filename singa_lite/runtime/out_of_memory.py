"""OutOfMemoryError: what a pool says that cannot serve a request, and bytes in words."""

from __future__ import annotations


class OutOfMemoryError(MemoryError):
    """A pool could not serve a request. Fields, in bytes: asked, used, free, limit (None: no limit)."""

    def __init__(self, asked: int, used: int, free: int, limit: int | None) -> None:
        super().__init__(asked, used, free, limit)
        self.asked, self.used, self.free, self.limit = asked, used, free, limit

    def __str__(self) -> str:
        """Say what was asked, what is held, and what bounds it."""
        scattered = " in pieces too small for it" if self.free >= self.asked > 0 else ""
        return (
            f"wanted {in_words(self.asked)} from a pool that holds {in_words(self.used + self.free)} "
            f"({in_words(self.used)} used, {in_words(self.free)} free{scattered}), "
            f"received none; limit: {in_words(self.limit)}"
        )


def in_words(nbytes: int | None) -> str:
    """A number of bytes, from 1 MiB on in MiB as well; None is none."""
    if nbytes is None:
        return "none"
    return f"{nbytes} bytes" + (f" ({nbytes / 2**20:.1f} MiB)" if nbytes >= 1 << 20 else "")
