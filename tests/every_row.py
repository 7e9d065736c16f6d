"""A check over all rows of a table within one test: each test by itself costs some milliseconds of pytest's, and a line
that each worker makes and reports, which for a check of microseconds is most of its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def over_rows(check: Callable[..., object], rows: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
    """Call `check(*arguments)` for each row, (label, arguments), and fail with the errors of all that fail, by label.

    No rows are an error too, for a test of nothing cannot fail.
    """
    count, errors = 0, []
    for label, arguments in rows:
        count += 1
        try:
            check(*arguments)
        except Exception as error:
            error.add_note(f"in row {label}")
            errors.append(error)
    assert count, f"{getattr(check, '__name__', check)}: no rows"
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {count} rows fail", errors)
