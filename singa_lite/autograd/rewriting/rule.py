"""Rule: a pattern and its replacement, proved equal when it is made."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence

from singa_lite import device as devices
from singa_lite.autograd.rewriting.proof import Claim, check_on_random_inputs
from singa_lite.autograd.rewriting.traced import Function, checked_shapes
from singa_lite.autograd.rewriting.variants import RuleOn
from singa_lite.common.array_types import DType
from singa_lite.common.checks import at_least_zero, flag
from singa_lite.device import Device
from singa_lite.tensor import DeviceSpec, checked_dtype


class Rule:
    """A rewriting rule, by which one function may stand for another in a recorded step.

        twice = Rule("twice", lambda x: x * 2.0, lambda x: x + x)
        graph.rewrite(twice)                                     # of device.recording()
        net.compile(optimizer.SGD(lr=0.1), rules=[twice])

    name: for messages and counts. pattern, replacement: functions of the same number of tensors, by operations of
    `autograd`, `autograd.Function` among them; each makes one tensor, or a tuple of several, out of its inputs alone,
    and changes none of them. inputs: the shapes that the rule is stated for, one for each input, an extent being a
    number or a name, [("n", "k"), ("k", 3)]; None: inputs of one shape of one to four axes. dtypes: that it is stated
    for. tolerance: 0 for results that are equal to the bit (all NaN are equal), else the largest
    |replacement - pattern| / max(1, |pattern|), with infinities and NaN at the same places.
    derivatives: whether the derivatives by the inputs are equal too, and are rewritten in a training step. With False
    the rule is applied only where the way back does not need what the pattern makes on its way.
    device: that it is proved on now, default `device.default()`; on others it is proved when it is first used there.

    RuleError for a rule that does not hold, with the first input on which both sides differ; for functions that are no
    such. TypeError, ValueError for other arguments.

    >>> from singa_lite.rewriting import Rule
    >>> one_relu = Rule("one relu", lambda x: autograd.relu(autograd.relu(x)), autograd.relu)
    >>> net = Sequential([layers.Input((5,)), layers.Activation("a", "relu"), layers.Activation("b", "relu")])
    >>> net.add(layers.Dense(3))
    <Dense 'dense' -> (3,)>
    >>> net.compile("sgd", "mse", rules=[one_relu])
    >>> net.plan_batch(8).rewrites
    {'one relu': 1}
    """

    def __init__(
        self,
        name: str,
        pattern: Function,
        replacement: Function,
        inputs: Sequence[Sequence[int | str]] | None = None,
        *,
        dtypes: Collection[str] = ("float32", "float64"),
        tolerance: float = 0.0,
        derivatives: bool = True,
        device: DeviceSpec = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"Rule: wanted a name, received {name!r}")
        where = f"rule {name!r}"
        names = _parameters(where, "pattern", pattern)
        if len(_parameters(where, "replacement", replacement)) != len(names):
            raise TypeError(f"{where}: wanted a replacement of the pattern's {len(names)} inputs, received another one")
        self.name = name
        self.tolerance = at_least_zero(f"{where} tolerance", tolerance)
        self.derivatives = flag(f"{where} derivatives", derivatives)
        self._dtypes = _dtypes(where, dtypes)
        self._stated = checked_shapes(where, inputs, len(names))
        self._is_stated = inputs is not None
        self._claim = Claim(name, pattern, replacement, names, self.tolerance)
        self._proved: set[str] = set()
        self.on(devices.get(device))

    def on(self, device: Device) -> RuleOn:
        """The rule for a device, proved for its kernels now, unless it was before, or the device has no bytes."""
        made = RuleOn(self._claim, self._stated, self._is_stated, self._dtypes, self.derivatives, device)
        if not device.is_abstract and device.kernels.name not in self._proved:
            for stated, needs in sorted(made.forms, key=lambda form: sum(form[1])):  # derivatives last
                check_on_random_inputs(self._claim, stated, needs, self._dtypes, device)
            self._proved.add(device.kernels.name)
        return made

    def __deepcopy__(self, memo: dict[int, object]) -> Rule:
        return self  # nothing of it changes

    def __repr__(self) -> str:
        return f"<Rule {self.name!r}>"


def _parameters(where: str, side: str, function: object) -> tuple[str, ...]:
    """Names of a function's inputs. TypeError for what is no function of tensors alone."""
    if not callable(function):
        raise TypeError(f"{where} {side}: wanted a function of tensors, received {function!r:.100}")
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise TypeError(
            f"{where} {side}: wanted a function whose inputs have names, received {function!r:.100}"
        ) from None
    wrong = [one for one in found if one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    plain = [one for one in found if one.default is one.empty]
    if wrong or not plain:
        raise TypeError(f"{where} {side}: wanted a function of one tensor or more, received {function!r:.100}")
    return tuple(one.name for one in plain)


def _dtypes(where: str, given: object) -> tuple[DType, ...]:
    """TypeError or ValueError unless these are dtypes of floats."""
    if isinstance(given, str) or not isinstance(given, Collection) or not given:
        raise TypeError(f'{where} dtypes: wanted some such as ("float32",), received {given!r}')
    found = tuple(checked_dtype(f"{where} dtypes", one) for one in given)
    if wrong := [dtype for dtype in found if dtype.kind != "f"]:
        raise ValueError(f"{where} dtypes: wanted float16, float32 or float64, received {wrong[0]}")
    return found
