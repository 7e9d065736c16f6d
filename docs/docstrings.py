"""Docstrings as Markdown: their prose is plain text, their examples are code. An extension of griffe (mkdocs.yml)."""

from __future__ import annotations

import griffe


class Plain(griffe.Extension):
    """In prose stars outside code spans are stars: x**2 is a power and no bold face."""

    def on_object(self, *, obj: griffe.Object, **others: object) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = "\n\n".join(map(as_markdown, obj.docstring.value.split("\n\n")))


def as_markdown(paragraph: str) -> str:
    """Returns an example as a block of code, prose with its stars escaped."""
    if paragraph.startswith(">>> "):
        return f"```pycon\n{paragraph}\n```"
    parts = paragraph.split("`")
    parts[::2] = [part.replace("*", r"\*") for part in parts[::2]]
    return "`".join(parts)
