"""Functions by name, which enter themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Entered = TypeVar("Entered", bound=Callable[..., Any])


class Functions(dict[str, Entered]):
    """{name: function}, into which `@table.enters("name", ...)` puts the function below it."""

    def enters(self, *names: str) -> Callable[[Entered], Entered]:
        """Enter the function below under these names."""

        def entered(function: Entered) -> Entered:
            self.update(dict.fromkeys(names, function))
            return function

        return entered
