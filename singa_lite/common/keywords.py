"""Keyword arguments of calls: Keras's words become this package's, and others are refused with a hint. See `words`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Any, NoReturn, ParamSpec, TypeVar

from singa_lite.common.deleted_options import check_deleted
from singa_lite.common.option_version import signature_of
from singa_lite.common.words import (
    ALIASES,
    CLASS_HINTS,
    CLASSES,
    CONVERSIONS,
    DEFAULTS,
    DIFFERENT,
    HINTS,
    NO_EFFECT,
    ONLY_OF,
    SAME_WORDS,
    SameAs,
)

P = ParamSpec("P")
R = TypeVar("R")
Row = TypeVar("Row")
Kind = TypeVar("Kind")


def own_word(word: str, parameters: Mapping[str, object]) -> str:
    """The parameter that a keyword stands for: itself, the first alias that is a parameter, else itself."""
    if word in parameters:
        return word
    return next((name for name in ALIASES.get(word, ()) if name in parameters), word)


def own_words(
    where: str, call: Callable[..., object], args: Sequence[object], named: Mapping[str, object], kind: type | None
) -> dict[str, Any]:
    """Keyword arguments of a call by this package's parameters, with Keras's defaults if any is a word of Keras's.

    kind: the class whose constructor is called, for its `DEFAULTS`; None for other calls, which have none. TypeError
    for two words for one parameter, and for one whose meaning differs from Keras's.
    """
    if not named:
        return {}
    parameters = _parameters(call)
    for word in named:
        if kind is not None and word in ONLY_OF and not _derives_from(kind, ONLY_OF[word]):
            _refuse_unknown(where, {word: named[word]}, [name for name in parameters if name != "self"])
    same = [word for word, kinds in SAME_WORDS.items() if named.get(word) is not None and _derives_from(kind, kinds)]
    if named.keys() <= parameters.keys() and not same:
        return dict(named)
    values: dict[str, Any] = dict(zip(_positional(parameters, args), args, strict=False))
    found, foreign = _translated(where, parameters, values, named)
    foreign += same
    if kind is None or not foreign:
        return found
    name, meaning = _of_class(DIFFERENT, kind) or ("", "")
    if name in values or name in found:
        raise TypeError(f"{where}: wanted no {name}, here {meaning}, beside Keras's {foreign[0]}=, received both")
    defaults = keras_defaults(kind, values | found)
    return found | {name: value for name, value in defaults.items() if name in parameters}


def _translated(
    where: str, parameters: Mapping[str, Parameter], values: Mapping[str, object], named: Mapping[str, object]
) -> tuple[dict[str, Any], list[str]]:
    """Keyword arguments by this package's parameters, and the words among them that were Keras's.

    values: of positional arguments. TypeError for two words for one parameter.
    """
    words, found, foreign = dict(zip(values, values, strict=True)), dict[str, Any](), list[str]()
    for word, value in named.items():
        name = own_word(word, parameters)
        if name not in parameters and any(value is each for each in NO_EFFECT.get(word, ())):
            foreign.append(word)
            continue
        if name in words:
            raise TypeError(f"{where}: wanted {words[name]} or {word}, two words for one thing, received both")
        words[name] = word
        found[name] = value
        if name != word:
            foreign.append(word)
            found[name] = CONVERSIONS.get(word, _unchanged)(value)
    return found, foreign


def keras_defaults(kind: type, values: Mapping[str, object]) -> dict[str, object]:
    """Keras's defaults of a class for the parameters that have no value yet."""
    made: dict[str, object] = {}
    for (name, *others), default in (_of_class(DEFAULTS, kind) or {}).items():
        known = {**values, **made}
        if known.keys().isdisjoint((name, *others)):
            made[name] = known[default.parameter] if isinstance(default, SameAs) else default
    return made


def _derives_from(kind: type | None, names: Collection[str]) -> bool:
    """Whether a class or one of its bases has one of these names."""
    return kind is not None and any(base.__name__ in names for base in kind.__mro__)


def _of_class(table: Mapping[str, Row], kind: type) -> Row | None:
    """The table's row for a class: its own, or that of the nearest base which has one; None if there is none."""
    return next((table[base.__name__] for base in kind.__mro__ if base.__name__ in table), None)


def _positional(parameters: Mapping[str, Parameter], args: Sequence[object]) -> list[str]:
    """The parameters that positional arguments fill; a layer's name, which may be left out, only if it is text."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, each in parameters.items() if each.kind in kinds and name != "self"]
    if args and names[:1] == ["name"] and not isinstance(args[0], str | None):
        names = names[1:]
    return names[: len(args)]


def _unchanged(value: object) -> object:
    return value


def check_keywords(where: str, given: Mapping[str, object], call: Callable[..., object]) -> None:
    """Raises TypeError for a keyword that the call does not take, with a hint for another framework's.

    A constructor of a user's that takes any keywords may hand it on.
    """
    if not given or _parameters(call).keys() >= given.keys():
        return
    check_deleted(where, given)
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in _parameters(call).values())
    is_users = (call.__module__ or "").partition(".")[0] != __name__.partition(".")[0]
    if not (is_users and takes_any):
        refuse_hinted(where, given, call)
    if not takes_any:
        _refuse_unknown(where, given, [name for name in _parameters(call) if name != "self"])


def _refuse_unknown(where: str, given: Mapping[str, object], options: Sequence[str]) -> NoReturn:
    unknown = next(name for name in given if name not in options)
    near = get_close_matches(unknown, options, 1)
    raise TypeError(
        f"{where}: wanted an option of {', '.join(options) or 'none'}, received {unknown}={given[unknown]!r:.100}"
        + (f"; perhaps {near[0]}" if near else "")
    )


def refuse_hinted(where: str, given: Mapping[str, object], call: Callable[..., object]) -> None:
    """Raises TypeError for a keyword that the call does not take and `HINTS` has a hint for."""
    parameters = _parameters(call)
    for option in given:
        hint = "" if option in parameters else hint_for(option, parameters)
        if hint:
            raise TypeError(f"{where}: wanted {hint}, received {option}=, which is another framework's word for it")


def hint_for(word: str, parameters: Mapping[str, object]) -> str:
    """The hint for a word of another framework: a parameter that is among these, or a sentence; "" if none."""
    return next((hint for hint in HINTS.get(word, ()) if hint in parameters or not hint.isidentifier()), "")


def explains_keywords(**checks: Callable[[str, Any], object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function, method or constructor that takes Keras's words and refuses unknown ones with a hint.

    checks: {parameter: raises for an argument that is not as wanted, given its name for the message, and itself}.
    """

    def decorate(call: Callable[P, R]) -> Callable[P, R]:
        form = signature(call)

        @wraps(call)
        def checked(*args: P.args, **options: P.kwargs) -> R:
            where = type(args[0]).__name__ if args and call.__name__ == "__init__" else call.__name__
            is_method = next(iter(form.parameters), "") == "self"
            own = own_words(where, call, args[1:] if is_method else args, options, None)
            check_keywords(where, own, call)
            try:
                given = form.bind(*args, **own).arguments if checks else {}
                for name in given.keys() & checks.keys():
                    checks[name](f"{where} {name}", given[name])
                return call(*args, **own)
            except TypeError:
                problem = _unfit(form, args, own)
                if problem is None:
                    raise
            raise TypeError(f"{where}: {problem}")

        return checked

    return decorate


def _unfit(form: Signature, args: Sequence[object], named: Mapping[str, object]) -> TypeError | None:
    """Why arguments do not fit a call; None: they fit, so that an error is of something within it."""
    try:
        form.bind(*args, **named)
    except TypeError as error:
        return error
    return None


def class_lookup(module: str) -> Callable[[str], object]:
    """The `__getattr__` of a module: its class for a class of Keras's; AttributeError with a hint for other names.

    One with defaults of Keras's is a function that makes the object with these.
    """

    def find(name: str) -> object:
        ours, given = CLASSES.get(name, ("", {}))
        kind = vars(sys.modules[module]).get(ours)
        if kind is not None:
            has_defaults = bool(given) or _of_class(DEFAULTS, kind) is not None
            return partial(_made_as_in_keras, kind, given) if has_defaults else kind
        hint = CLASS_HINTS.get(name)
        if hint is None and not name.startswith("_"):
            known = [key for key, value in vars(sys.modules[module]).items() if isinstance(value, type)]
            hint = next(iter(get_close_matches(name, known, 1)), None)
        said = f"; here it is {hint}" if hint else ""
        raise AttributeError(f"module {module!r} has no attribute {name!r}{said}", name=name)

    return find


def by_name(what: str, name: str, kinds: Mapping[str, Kind], others: Mapping[str, str]) -> Kind:
    """The entry of a name. others: what names of other frameworks are called here.

    ValueError for one that is unknown, which names those there are; TypeError for what is no name.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what}: wanted one of {sorted(kinds)}, received {name!r:.100}")
    if name in kinds:
        return kinds[name]
    meant = others.get(name.lower())
    near = get_close_matches(name.lower(), kinds, 1)
    hint = f"; {name!r} is {meant} here" if meant else f"; perhaps {near[0]!r}" if near else ""
    raise ValueError(f"{what}: wanted one of {sorted(kinds)}, received {name!r}{hint}")


def _made_as_in_keras(kind: type, given: Mapping[str, object], *args: Any, **named: Any) -> object:
    """An object of a class that a script calls by Keras's name, with Keras's defaults. given: of that name."""
    call = kind.__init__  # type: ignore[misc]
    own = own_words(kind.__name__, call, args, named, None)
    values = dict(zip(_positional(_parameters(call), args), args, strict=False)) | own
    defaults = {name: value for name, value in given.items() if name not in values}
    return kind(*args, **own, **defaults, **keras_defaults(kind, values | defaults))


def accepts_arguments(call: object, count: int) -> bool:
    """Whether a callable can be called with so many arguments; true for one without a signature."""
    if not callable(call):
        return False
    try:
        signature(call).bind(*range(count))
    except ValueError:  # of a function in C
        return True
    except TypeError:
        return False
    return True


def _parameters(call: Callable[..., object]) -> Mapping[str, Parameter]:
    return signature_of(call).parameters
