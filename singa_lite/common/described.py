"""Described: objects that know what they were constructed with, so that they can be written down and made again.

An option of one of this package's objects may be set after it was made, under the name that its constructor has for it:
the constructor's checks are made again, all that it derives from the option follows, and recorded steps are recorded
again.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from singa_lite.common.keywords import check_keywords, explains_keywords, hint_for, own_words
from singa_lite.common.option_version import Versioned, equal_values, is_option, parameters_of, signature_of
from singa_lite.common.unique import Unique
from singa_lite.common.words import ALIASES

_PACKAGE = __name__.partition(".")[0]
#: How like an option a name is that was meant for it, as `difflib` counts.
NEAR = 0.8

Made = TypeVar("Made")


# Pickles of optimizers, losses, layers and regularizers, and so of scikit-learn estimators that hold one, name this
# class and its module: both stay where they are, so that older files can be read.
class Arguments:
    """A constructor's arguments by the names of its parameters; no defaults. It has slots, as it is no option.

    is_complete: whether the constructor has ended.
    """

    __slots__ = ("by_name", "is_complete")

    def __init__(self, by_name: Mapping[str, object], is_complete: bool = False) -> None:
        self.by_name = by_name
        self.is_complete = is_complete

    def __deepcopy__(self, memo: dict[int, object]) -> Arguments:
        """Copies of what can be copied beside the object: a net among them stays as it is."""
        copied = {
            name: memo.get(id(value), value) if isinstance(value, Unique) else deepcopy(value, memo)
            for name, value in self.by_name.items()
        }
        return Arguments(copied, self.is_complete)


class _Kind(ABCMeta):
    """The metaclass of classes whose objects learn that their constructor has ended."""

    def construct(cls: type[Made], *args: object, **named: object) -> Made:
        """An object of the class, made with this package's words alone, so with none of Keras's defaults."""
        made: Made = ABCMeta.__call__(cls, *args, **named)
        made._given.is_complete = True  # type: ignore[attr-defined]
        return made

    if not TYPE_CHECKING:  # where it would hide what constructors take

        def __call__(cls, *args, **named):
            """An object of the class; Keras's words are taken for this package's, see `common/words.py`."""
            return cls.construct(*args, **(own_words(cls.__name__, cls.__init__, args, named, cls) if named else {}))

        @property
        def __signature__(cls):
            """What the constructor takes, for `help` and other readers."""
            form = signature_of(cls.__init__)
            return form.replace(parameters=list(form.parameters.values())[1:], return_annotation=Signature.empty)


class Described(Versioned, metaclass=_Kind):
    """Base of what a net's configuration can hold: layers, losses, metrics, optimizers and what these are given."""

    _given: Arguments
    #: Whether a step that runs this object's Python is recorded, and replayed without it. False: each step is done
    #: eagerly, so that what the code draws, counts or reads elsewhere is as it is then; budgets and plans refuse it.
    recordable: ClassVar[bool] = True

    def __init_subclass__(cls, without: Collection[str] = (), **options: Any) -> None:
        """`*args` and `**options` of this package's constructors are parameters of the base's, without some of them."""
        super().__init_subclass__(**options)
        own = vars(cls).get("__init__")
        if own is not None and is_ours(own):
            base = next(vars(each)["__init__"] for each in cls.__mro__[1:] if "__init__" in vars(each))
            own.__signature__ = _joined(signature(own), signature(base), without)
            setattr(cls, "__init__", explains_keywords()(own))  # noqa: B010, mypy wants it so; for subclasses' calls

    def __new__(cls, *args: object, **named: object) -> Self:
        if named:
            check_keywords(cls.__name__, named, cls.__init__)
        made = super().__new__(cls)
        object.__setattr__(made, "_given", Arguments(_bound(cls.__init__, args, named)))  # frozen or not
        return made

    def __init__(self) -> None:
        """No arguments: without this, `object` would take any beside a `__new__` of our own."""

    @property
    def given_arguments(self) -> Mapping[str, object]:
        """What the constructor was given, by the names of its parameters; without defaults."""
        return self._given.by_name

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_") or not self._given.is_complete:
            object.__setattr__(self, name, value)
        elif name in options_of(type(self)):
            self.change_options({name: value})
        elif (own := self._own_name(name)) != name:
            setattr(self, own, value)
        else:
            self._check_known(name)
            if not hasattr(self, name) and is_option(type(self), name):  # which the constructor has not set
                self.note_change(name)
            super().__setattr__(name, value)

    if not TYPE_CHECKING:  # where it would say that there is an attribute of any name

        def __getattr__(self, name):
            """An option that has no attribute of its own."""
            default = options_of(type(self)).get(name, _MISSING)
            if default is not _MISSING:
                return self.given_arguments.get(name, default)
            own = self._own_name(name)
            if own == name:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self, own)

    def _own_name(self, name: str) -> str:
        """The option or property that an attribute by a word of Keras's stands for; else the name itself."""
        kind = type(self)
        options = options_of(kind)
        if name in vars(self) or hasattr(kind, name):
            return name
        return next((own for own in ALIASES.get(name, ()) if own in options or hasattr(kind, own)), name)

    def change_options(self, changes: Mapping[str, object]) -> None:
        """Set options of the constructor's, which checks them together: its errors, and nothing is changed by them."""
        defaults = options_of(type(self))
        given = {**self.given_arguments, **changes}
        if all(
            equal_values(value, self.given_arguments.get(name, defaults.get(name))) for name, value in changes.items()
        ):
            return
        self.adopt(changes, self.made_with(self.given_arguments), self.made_with(given))
        self._given = Arguments(given, True)
        for name in changes.keys() - self.live_options:
            self.note_change(name)

    def made_with(self, arguments: Mapping[str, object]) -> Self:
        """An object of the same class, made with these arguments."""
        return type(self).construct(**arguments)

    def adopt(self, changes: Mapping[str, object], before: Self, after: Self) -> None:
        """Take over what differs between an object as this one was made, and one with these options."""
        for name, value in differences(before, after).items():
            object.__setattr__(self, name, value)

    def _check_known(self, name: str) -> None:
        """Raises AttributeError for a misspelt option, and for one that is read only by the constructor.

        Misspelt is what is nearly an option of this package's class, or another framework's word for one. All other
        attributes are the user's own.
        """
        kind = type(self)
        if name in vars(self) or hasattr(kind, name):
            return
        if not is_ours(kind):
            base = next((base.__name__ for base in kind.__mro__ if name in options_of(base)), None)
            if base is None or name in parameters_of(kind.__init__):
                return
            raise AttributeError(
                f"{kind.__name__}: wanted {name} where {base} is constructed, as nothing reads it later, received it "
                "as an attribute"
            )
        options = options_of(kind)
        near = hint_for(name, options) or next(iter(get_close_matches(name, _settable(kind), 1, NEAR)), None)
        if near:
            raise AttributeError(
                f"{kind.__name__}: wanted an option of {', '.join(options)}, received {name!r}; perhaps {near}"
            )


_MISSING = object()


def _joined(own: Signature, base: Signature, without: Collection[str]) -> Signature:
    """The signature of a constructor with those parameters in the place of its `*args` and `**options`."""
    left = [each for name, each in base.parameters.items() if name not in own.parameters and name not in without]
    kinds = {Parameter.VAR_POSITIONAL: Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_KEYWORD: Parameter.KEYWORD_ONLY}
    found: list[Parameter] = []
    for each in own.parameters.values():
        found += [other for other in left if other.kind == kinds[each.kind]] if each.kind in kinds else [each]
    return own.replace(parameters=found)


def is_ours(made: type | Callable[..., object]) -> bool:
    """Whether a class or a function is this package's own, and no user's. One that `exec` made may have no module."""
    return (made.__module__ or "").partition(".")[0] == _PACKAGE


def differences(before: object, after: object) -> dict[str, object]:
    """The attributes of `after` that are not as those of `before`; not what it was made with."""
    known = vars(before)
    return {
        name: value
        for name, value in vars(after).items()
        if name != "_given" and not equal_values(known.get(name, _MISSING), value)
    }


@lru_cache(maxsize=1024)
def options_of(kind: type) -> Mapping[str, object]:
    """{option: its default} of this package's constructors, which may be called again; those of others may do anything.

    Not among them is what the class has a property for.
    """
    constructor = kind.__init__  # type: ignore[misc]
    if not issubclass(kind, Described) or not is_ours(constructor):
        return {}
    return {
        name: parameter.default
        for name, parameter in parameters_of(constructor).items()
        if not isinstance(getattr(kind, name, None), property)
    }


@lru_cache(maxsize=1024)
def _settable(kind: type) -> list[str]:
    """The names by which options of a class are set: its constructor's, `trainable`, and Keras's words for these."""
    names = [*parameters_of(kind.__init__), *(["trainable"] if hasattr(kind, "trainable") else [])]  # type: ignore[misc]
    return names + [word for word, own in ALIASES.items() if not set(own).isdisjoint(names)]


def _bound(
    constructor: Callable[..., None], args: tuple[object, ...], named: Mapping[str, object]
) -> dict[str, object]:
    """The arguments by parameter; nothing where they do not fit, which the constructor is about to say."""
    form = signature_of(constructor)
    try:
        found = form.bind_partial(None, *args, **named).arguments
    except TypeError:
        return {}
    merged: dict[str, object] = {}
    for name, value in list(found.items())[1:]:
        if form.parameters[name].kind is Parameter.VAR_KEYWORD:
            merged |= value
        else:
            merged[name] = value
    return merged
