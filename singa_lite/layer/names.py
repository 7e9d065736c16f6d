"""Names of layers: what every snapshot format can hold, names of layers that were given none, Keras's words.

A snapshot's paths are "parameters/<layer>/<name>" and the like, so no name may have a slash in it. PyTorch's are
"<layer>.<name>", where the last dot must be the one between the two. HDF5 leaves out a name "." and ends a name at a
NUL. A zip archive has room for 65,535 bytes of a whole path, in which a character may take three.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from inspect import Parameter, signature
from itertools import islice
from typing import Any, TypeVar

from singa_lite.common.described import Arguments, Described
from singa_lite.common.keywords import own_words, refuse_hinted
from singa_lite.common.option_version import signature_of

#: Bytes in UTF-8.
LONGEST = 1000

Constructor = TypeVar("Constructor", bound=Callable[..., None])


def name_may_be_left_out(constructor: Constructor) -> Constructor:
    """A layer's `__init__`, whose first parameter is `name`, that may be called without it.

    A first argument that is neither text nor None is then the next parameter: Dense(10), Dropout(0.5). The layer is
    named where it is added, see `free_name`. TypeError for a keyword of PyTorch or Keras, with a hint.
    """
    form = signature(constructor)
    parameters = form.parameters
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)
    positional = [name for name, parameter in parameters.items() if parameter.kind in kinds]
    if positional[1:2] != ["name"]:
        return constructor

    @wraps(constructor)
    def named(self: Described, *args: Any, **options: Any) -> None:
        if not options.keys() <= parameters.keys():  # of a subclass's own call, as the class itself translates its own
            options = own_words(type(self).__name__, constructor, args, options, type(self))
            refuse_hinted(type(self).__name__, options, constructor)
        is_short = bool(args) and not isinstance(args[0], str | None) and len(args) + 2 <= len(positional)
        if is_short:
            args = (options.pop("name", None), *args)
        name = args[0] if args else options.pop("name", None)
        is_outermost = type(self).__init__ is named  # and no subclass's, which has arguments of its own
        if is_outermost and (name is None or is_short):
            bound = dict(zip(positional[2:], args[1:], strict=False)) | options
            self._given = Arguments(bound if name is None else bound | {"name": name})
        if name is None:
            name = vars(self)["_unnamed"] = _class_name(self)
        if not isinstance(name, str):
            check_layer(type(self), name)  # here, as a base would take it for its first option
        try:
            form.bind(self, name, *args[1:], **options)
        except TypeError as error:  # said of this class, whichever base takes the argument
            raise TypeError(f"{type(self).__name__}: {error}") from None
        constructor(self, name, *args[1:], **options)

    return named  # type: ignore[return-value]


def free_name(layer: object, taken: Collection[str]) -> str | None:
    """The name of a layer that was given none, the first that is free: dense, dense_1, ...; None: it has its own."""
    name = vars(layer).get("_unnamed")
    if name is None or vars(layer)["_name"].rstrip("_0123456789") != name.rstrip("_0123456789"):
        return None  # it was named, perhaps by the layer that made a copy of it
    number, found = 0, str(name)
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def with_name(layer: Described, arguments: Mapping[str, object]) -> dict[str, object]:
    """Arguments of a layer's constructor, with the layer's name among them if it takes one."""
    parameters = signature_of(type(layer).__init__).parameters.values()
    takes_name = any(each.name == "name" or each.kind is Parameter.VAR_KEYWORD for each in parameters)
    return {**arguments, "name": vars(layer)["_name"]} if takes_name else dict(arguments)


def rename(layer: Described, name: object) -> None:
    """Name a layer that was made like another one, by a constructor that may take no name."""
    if name != vars(layer)["_name"]:
        check_layer(type(layer), name)
        vars(layer)["_name"] = name
        vars(layer).pop("_unnamed", None)


def _class_name(layer: object) -> str:
    """The class's name in snake case: conv2d, max_pooling2d, batch_normalization, lstm."""
    words = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", type(layer).__name__.replace("ReLU", "Relu"))
    return re.sub(r"([a-z0-9])([A-Z][a-z])", r"\1_\2", words).lower().strip("_")


def check_layer(kind: type, name: object) -> None:
    """Raises ValueError unless it will do as the name of a layer of this class."""
    wanted = "a non-empty string without '/'"
    if isinstance(name, str) and name and "/" not in name:
        wanted = "a string that every snapshot format can hold, which is not '.' and has no NUL in it"
        if name != "." and "\0" not in name:
            wanted = _problem_of_bytes(name) or ""
    if wanted:
        shown = ", ".join(islice(signature(kind).parameters, 3))
        raise ValueError(
            f"layer name: wanted {wanted}, received {name!r:.100}; the name comes first: {kind.__name__}({shown})"
        )


def problem_of_tensor(name: object) -> str | None:
    """What is wanted of the name of a layer's parameter or state that this one is not; None if it will do."""
    if not isinstance(name, str) or not name or any(char in name for char in "/.\0"):
        return "a non-empty string without '/', '.' and NUL"
    return _problem_of_bytes(name)


def _problem_of_bytes(name: str) -> str | None:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:  # Python's strings may hold halves of characters
        return "Unicode text"
    return None if len(encoded) <= LONGEST else f"at most {LONGEST} bytes"
