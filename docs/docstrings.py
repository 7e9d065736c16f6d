"""Docstrings are plain text: x**2 is a power and no bold face. An extension of griffe (mkdocs.yml)."""

from __future__ import annotations

import griffe


class Plain(griffe.Extension):
    """Stars outside code spans are stars."""

    def on_object(self, *, obj: griffe.Object, **others: object) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            parts = obj.docstring.value.split("`")
            parts[::2] = [part.replace("*", r"\*") for part in parts[::2]]
            obj.docstring.value = "`".join(parts)
