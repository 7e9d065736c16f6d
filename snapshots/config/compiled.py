"""How a net was compiled, in a configuration: its optimizer, with rules and settings, and the options of `compile`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from singa_lite.common.errors import ConfigError
from singa_lite.optimizer import Optimizer, schedule
from singa_lite.optimizer.rules import Rule
from singa_lite.snapshots.config.values import Plain, Reader, Writer
from singa_lite.training.settings import OF_MACHINE
from singa_lite.training.stepping_net import SteppingNet


def compiled_form(net: SteppingNet, writer: Writer) -> Plain:
    """The optimizer and the options of `compile`; None for a net that is not compiled."""
    if net.optimizer is None:
        return None
    options = {name: value for name, value in net.compiled_as.items() if name not in OF_MACHINE}
    return {
        "optimizer": _optimizer_form(net.optimizer, writer.at("optimizer")),
        "options": writer.write(options),
    }


def _optimizer_form(optimizer: Optimizer, writer: Writer) -> Plain:
    """Its constructor's arguments, with the schedule of now; what was changed of its settings; its rules."""
    rate = optimizer.schedule
    arguments = {**optimizer.given_arguments, "lr": rate.value if isinstance(rate, schedule.Constant) else rate}
    form = writer.described(optimizer, arguments)
    rules, general = list(optimizer.rules)[1:], optimizer.rules[0]
    form["settings"] = writer.at("settings").write(optimizer.settings)
    form["rules"] = [
        writer.at(f"register {rule.pattern!r}").write(_register_arguments(rule, general)) for rule in rules
    ]
    return form


def _register_arguments(rule: Rule, general: Rule) -> dict[str, object]:
    """What `register` takes to make the rule."""
    found: dict[str, object] = {"pattern": rule.pattern, "lr_mult": rule.lr_mult, "decay_mult": rule.decay_mult}
    own = {"regularizer": rule.regularizer, "constraint": rule.constraint}
    theirs = {"regularizer": general.regularizer, "constraint": general.constraint}
    return found | {name: value for name, value in own.items() if value is not theirs[name]}


def compile_by(compile: Callable[..., object], form: Plain, reader: Reader) -> None:
    """Compile a net, by its `compile`, as `compiled_form` says. ConfigError for what is no such form."""
    if form is None:
        return
    if not isinstance(form, dict):
        raise ConfigError(f"config: wanted how the net was compiled, received {form!r:.100}")
    options = reader.read(form.get("options"))
    if not isinstance(options, Mapping):
        raise ConfigError(f"config: wanted options of compile, received {options!r:.100}")
    compile(_optimizer_of(form.get("optimizer"), reader), **options)


def _optimizer_of(form: Plain, reader: Reader) -> Optimizer:
    made = reader.read(form)
    if not isinstance(form, dict) or not isinstance(made, Optimizer):
        raise ConfigError(f"config: wanted an optimizer, received {form!r:.100}")
    settings, rules = reader.read(form.get("settings")), reader.read(form.get("rules"))
    if isinstance(settings, dict):
        made.settings |= settings
    for rule in rules if isinstance(rules, list) else []:
        made.register(**rule)
    return made
