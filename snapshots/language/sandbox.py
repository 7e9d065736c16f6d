"""Runs chat templates of strangers' files: Jinja without access to Python, with a bound on what it makes.

Whatever makes a value or goes on in a loop spends from one budget of bytes. So time and memory are bounded, whatever
the template is. What could make much at once without spending first is refused: most methods and filters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from datetime import datetime
from functools import wraps
from time import monotonic
from typing import Any

from jinja2 import Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.filters import FILTERS
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from singa_lite.common.errors import SnapshotError

#: Bytes that one rendering may make; of each value and each turn of a loop; characters of a template; bits of a number.
_BUDGET, _VALUE, _LONGEST, _BITS = 16 << 20, 60, 1 << 18, 1 << 10
#: Seconds that one rendering may take.
_SECONDS = 5

_OF_TEXT = (
    "strip lstrip rstrip removeprefix removesuffix split rsplit splitlines partition rpartition startswith endswith "
    "upper lower title capitalize find rfind index rindex count isdigit isalpha isalnum isspace islower isupper"
)
#: {type: its methods that a template may call}; they make at most as much as they are given.
_METHODS = {str: _OF_TEXT.split(), dict: ["get", "items", "keys", "values"], list: ["index", "count"]}
_FILTERS = (
    "trim upper lower title capitalize length count first last default d list map select reject selectattr rejectattr "
    "items dictsort sort reverse unique int float abs round min max"
)
_TEXTS = (str, int, float, type(None), Undefined)


class _Bounded(NodeTransformer):
    """Puts filters that spend around the parts of a template that make values without a call."""

    def visit(self, node: nodes.Node, *args: Any, **options: Any) -> Any:
        """Returns a loop that spends for each turn what its body could print, a slice that spends, texts joined."""
        self.generic_visit(node)
        if isinstance(node, nodes.For):
            node.iter = _filtered(node.iter, "counted_loop", nodes.Const(_cost(node)))
        elif isinstance(node, nodes.Concat):
            return _filtered(nodes.List(node.nodes, lineno=node.lineno), "join")
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            return _filtered(node, "counted")
        return node


def _filtered(node: Any, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _cost(node: nodes.Node) -> int:
    """Bytes of all constants in a part of a template, and of lists as long as it."""
    inside = list(node.find_all(nodes.Node))
    texts = [each.data for each in inside if isinstance(each, nodes.TemplateData)]
    texts += [each.value for each in inside if isinstance(each, nodes.Const) and isinstance(each.value, str)]
    return _VALUE + 8 * len(inside) + sum(map(len, texts))


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one template, which `rendered` goes through."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, source: str, where: str) -> None:
        """SnapshotError for a template that is none, or is too long. where: the file."""
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=self._printed)
        self.add_extension("jinja2.ext.loopcontrols")
        self._where, self._left, self._until, self._size = where, 0, 0.0, len(source)
        own = {"join": self._join, "replace": self._replace, "indent": self._indent, "tojson": self._tojson}
        own |= {"counted": self._counted, "counted_loop": self._loop, "string": self._text, "safe": self._text}
        self.filters = {name: self._spending(FILTERS[name]) for name in _FILTERS.split()} | own
        self.globals = {name: self.globals[name] for name in ("range", "dict", "namespace")}
        self.globals |= {"raise_exception": _raise, "strftime_now": _now}
        self._functions = list(self.globals.values())
        if len(source) > _LONGEST:
            raise SnapshotError(f"{where}: wanted at most {_LONGEST} characters, received {len(source)}")
        try:
            tree = _Bounded().visit(self.parse(source))
            self._template = self.template_class.from_code(self, self.compile(tree), self.make_globals(None))
        except Exception as error:  # whatever Jinja and Python raise of code that is none
            raise SnapshotError(f"{where}: wanted a template of Jinja, received {_reason(error)}") from error

    def rendered(self, variables: Mapping[str, object]) -> str:
        """Returns the text. SnapshotError where the template does what it may not; ValueError where it fails."""
        self._left, self._until = _BUDGET, monotonic() + _SECONDS
        try:
            return "".join(map(self._counted, self._template.generate(**variables)))
        except SecurityError as error:
            raise SnapshotError(f"{self._where}: {error}") from error
        except Exception as error:  # whatever Python raises in the code of a template
            raise ValueError(f"{self._where}: {_reason(error)}") from error

    # ---- what Jinja asks

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls what a template may call."""
        self, obj = __self, __obj
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str) and name == "replace":
            return self._replace(owner, *args, **kwargs)
        if isinstance(owner, str) and name == "join":
            return self._join(args[0], owner)
        if isinstance(obj, Macro | LoopContext):
            self._spend(4 * self._size * (len(args[0]) if args and isinstance(args[0], Sized) else 1))
        elif not isinstance(owner, LoopContext) and obj not in self._functions:
            allowed = next((names for kind, names in _METHODS.items() if isinstance(owner, kind)), [])
            if name not in allowed:
                raise SecurityError(f"wanted a call of {', '.join(allowed) or 'a macro'}, received {name!r}")
        return self._counted(super().call(__context, obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Does arithmetic; texts and lists are only added."""
        if operator == "**" or (operator != "+" and not all(isinstance(one, int | float) for one in (left, right))):
            raise SecurityError(f"wanted numbers beside {operator!r}, no powers, received {type(left).__name__}")
        if any(isinstance(one, int) and one.bit_length() > _BITS for one in (left, right)):
            raise SecurityError(f"wanted numbers of at most {_BITS} bits, received more")
        return self._counted(super().call_binop(context, operator, left, right))

    # ---- what spends

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0 or monotonic() > self._until:
            wanted = f"makes at most {_BUDGET} bytes in {_SECONDS} seconds"
            raise SecurityError(f"wanted a template that {wanted}, received one that makes more")

    def _counted(self, value: Any) -> Any:
        """The value, whose bytes are spent."""
        each = 1 if isinstance(value, str) else _VALUE
        self._spend(_VALUE + each * (len(value) if isinstance(value, str | list | tuple | dict) else 0))
        return value

    def _spending(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def spending(*args: Any, **kwargs: Any) -> Any:
            return self._counted(function(*args, **kwargs))

        return spending

    def _loop(self, values: Iterable[Any], each: int) -> Iterator[Any]:
        for value in values:
            self._spend(each)
            yield value

    @pass_context  # else Jinja would call it while it compiles
    def _printed(self, context: Any, value: Any) -> str:
        return self._text(value)

    def _text(self, value: Any) -> str:
        """The text of a text or a number, as it is printed."""
        if not isinstance(value, _TEXTS):
            raise TypeError(f"wanted a text or a number to print, received {type(value).__name__}; tojson writes it")
        found: str = self._counted(value if isinstance(value, str) else str(value))
        return found

    def _join(self, values: Iterable[Any], between: str = "", attribute: str | None = None) -> str:
        texts = [self._text(value if attribute is None else value[attribute]) for value in values]
        self._spend(len(self._text(between)) * len(texts))
        return between.join(texts)

    def _replace(self, text: str, old: str, new: str, count: int = -1) -> str:
        text, old, new = map(self._text, (text, old, new))
        self._spend(text.count(old) * len(new))
        return text.replace(old, new, -1 if count is None else count)

    def _indent(self, text: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
        self._spend(max(0, int(width)) * (1 + text.count("\n")))
        return self._text(FILTERS["indent"](text, int(width), first, blank))

    def _tojson(
        self, value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
    ) -> str:
        """As transformers writes it: without escapes for HTML."""
        steps = None if indent is None else min(int(indent), 8)
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=steps, separators=separators, sort_keys=sort_keys)
        return "".join(map(self._text, encoder.iterencode(value)))


def _reason(error: BaseException) -> str:
    line = f"line {error.lineno}: " if isinstance(error, TemplateSyntaxError) else ""
    return f"{line}{type(error).__name__}: {str(error)[:300]}"


def _raise(message: object) -> None:
    raise ValueError(str(message)[:300])


def _now(form: str) -> str:
    if len(form) > 100 or not re.fullmatch(r"(%-?[a-zA-Z%]|[^%])*", form):
        raise SecurityError(f"wanted the form of a date, received {form[:100]!r}")
    return datetime.now().strftime(form)
