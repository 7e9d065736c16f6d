"""Every script in every mode: the state after some steps is that of eager steps, to the bit or to a stated rounding.

A script is a row of `mode_scripts.py`. OPTIONS are given to `compile` beside the script's own. RUNS are ways to run
the same training. A new option of `compile` needs a place in OPTIONS, RUNS or ELSEWHERE, a new layer a script.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from mode_scripts import SCRIPTS, Script
from nets import bits, state_of
from singa_lite import FeedForwardNet, device
from singa_lite.graph.budget_error import BudgetError
from singa_lite.training.settings import NAMES

pytestmark = pytest.mark.filterwarnings("ignore::singa_lite.errors.PrecisionWarning")
STEPS = 4
#: What fused operations may round otherwise, by the largest number of a tensor, after all steps.
FUSED = 2e-5
#: What 8 bits of a mantissa, or 11, may round.
NARROW = {"bfloat16": 0.1, "float16": 0.02}

#: {mode: options of compile}. Recorded steps of each are compared with eager ones of the same options.
OPTIONS: dict[str, Mapping[str, Any]] = {
    "plain": {},
    "clip": {"clip_global_norm": 0.3},
    "accumulate": {"accumulate": 2},
    "micro_batches": {"micro_batches": 3},
    "state in 8 bits": {"state_dtype": "int8"},
    "parameters in 16 bits": {"parameter_dtype": "bfloat16"},
    "with what rounding left over": {"parameter_dtype": "bfloat16", "rounding": "compensated"},
    "loss_scale": {"loss_scale": "dynamic"},
    "all together": {
        "clip_global_norm": 0.3,
        "accumulate": 2,
        "loss_scale": 512.0,
        "state_dtype": "bfloat16",
        "on_nan": None,
    },
    "bfloat16": {"precision": "bfloat16"},
    "clip in bfloat16": {"precision": "bfloat16", "clip_global_norm": 0.3, "state_dtype": "bfloat16"},
    "float16": {"precision": "float16", "loss_scale": 64.0},
}
#: Options that are no modes of a training step, with the test that has them.
ELSEWHERE = {
    "offload": "test_offload.py",
    "float32_layers": "test_mixed_precision.py",
    "limits": "test_observation.py",
    "rules": "test_rewriting.py",
    "parallel": "test_parallel_training.py",
    "workers": "test_workers.py",
}


def net_of(script: Script, kernels: str, **options: Any) -> FeedForwardNet:
    """The script's net, compiled."""
    net = script.build(device.new_cpu(kernels=kernels))
    net.compile(script.optimizer(), **{**script.compiled, **script.beside(net), **options})
    return net


def batch(script: Script, number: int, count: int = 8) -> tuple[Any, ...]:
    """What a step is given: of x, targets and weights so many samples."""
    x, y, *others = script.batch(np.random.default_rng(number))

    def some(given: Any) -> Any:
        return {name: value[:count] for name, value in given.items()} if isinstance(given, dict) else given[:count]

    weights = [some(others[0]), *others[1:]] if others else []
    return (some(x), None if y is None else some(y), *weights)


def train(script: Script, net: FeedForwardNet, first: int = 0, last: int = STEPS) -> list[Any]:
    """Steps over the script's batches; the bits of the losses."""
    return [bits(results(net.train_one_batch(*batch(script, number)))[0]) for number in range(first, last)]


def results(given: Any) -> tuple[Any, ...]:
    """The loss first; a step of the user's own gives a dict."""
    return tuple(given.values()) if isinstance(given, dict) else tuple(given)


def family(net: FeedForwardNet) -> list[FeedForwardNet]:
    """The net, and those that its step trains too."""
    return [net, *(net.compiled_as.get("nets") or {}).values()]


def state(net: FeedForwardNet) -> dict[str, Any]:
    """Of all its nets, and the scale of the loss."""
    found = {f"{at} {name}": value for at, one in enumerate(family(net)) for name, value in state_of(one).items()}
    return found if net.loss_scaling is None else found | {"scale": bits(net.loss_scale)}


def after(script: Script, kernels: str, **options: Any) -> Any:
    """Losses and state of a run."""
    net = net_of(script, kernels, **options)
    return train(script, net), state(net)


def close(found: Any, wanted: Any, rounding: float, only: tuple[str, ...] = ()) -> None:
    """Fail where a number of the state is further off than that share of its tensor's largest. only: of these names."""
    for name, value in wanted[1].items():
        if not isinstance(value, tuple) or not value[0].startswith("float") or (only and name not in only):
            continue
        dtype, shape, raw = value
        there = np.frombuffer(raw, dtype).reshape(shape)
        got = np.frombuffer(found[1][name][2], dtype).reshape(shape)
        least = 0.05 if only else 1e-3
        np.testing.assert_allclose(got, there, rtol=0, atol=rounding * max(np.abs(there).max(), least), err_msg=name)


# ---- ways to run one training: each gives the bits of the recorded step


def unplanned(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
    """Every tensor has bytes of its own."""
    patch.setenv("SINGA_LITE_PLAN", "off")
    return after(script, kernels, **options)


def checked(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
    """Dead bytes are NaN."""
    patch.setenv("SINGA_LITE_CHECKED", "1")
    return after(script, kernels, **options)


@cache
def free_and_least(script: Script, kernels: str, options: tuple[tuple[str, Any], ...]) -> tuple[int, int]:
    """What a step takes without a budget, and the least budget: of all steps, as the last of a group takes more."""
    net, least = net_of(script, kernels, **dict(options)), 1
    train(script, net, last=1)
    while True:
        try:
            train(script, net_of(script, kernels, **dict(options), memory_budget=least))
            return max(net.plan_batch(8).total_bytes, least), least
        except BudgetError as error:
            assert error.total_bytes > least
            least = error.total_bytes


def within(share: float) -> Any:
    """A run within a budget between the least and what a free plan takes."""

    def run(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
        free, least = free_and_least(script, kernels, tuple(options.items()))
        return after(script, kernels, **options, memory_budget=int(least + share * (free - least)))

    return run


def in_waves(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
    """Operations that do not depend on each other share a wave."""
    return after(script, kernels, **options, order="dependencies")


def resumed(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
    """Saved within the run, and loaded into new nets that go on."""
    net = net_of(script, kernels, **options)
    losses = train(script, net, last=3)
    again = net_of(script, kernels, **options)
    with tempfile.TemporaryDirectory() as folder:
        for number, (one, other) in enumerate(zip(family(net), family(again), strict=True)):
            one.save(f"{folder}/{number}.h5")
            other.load(f"{folder}/{number}.h5")
    return losses + train(script, again, 3), state(again)


RUNS = {
    "unplanned": unplanned,
    "checked": checked,
    "half the budget": within(0.5),
    "in waves": in_waves,
    "resumed": resumed,
    "the least budget": within(0.0),
}


def test_every_option_of_compile_has_a_place():
    used = {name for options in OPTIONS.values() for name in options} | {"nets"}
    used |= {name for script in SCRIPTS.values() for name in script.compiled}
    used |= {"graph", "fuse", "memory_budget", "order", "keep"}  # by the tests below
    assert used | set(ELSEWHERE) == set(NAMES)
    assert not used & set(ELSEWHERE)


@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_recorded_step_is_the_eager_one(name, kernels):
    """To the bit; where operations are fused, to rounding. Every run of it gives the same bits."""
    try:
        device.new_cpu(kernels=kernels)
    except device.DeviceError as error:  # says what brings the library
        pytest.skip(str(error))
    script, number = SCRIPTS[name], list(SCRIPTS).index(name)
    few = ("plain", "bfloat16")  # of the other kernel set
    wanted = [mode for mode in OPTIONS if mode not in script.without and (kernels == "numpy" or mode in few)]
    over_rows(
        compare, [(mode, (script, kernels, mode, _runs(mode, number + at, script))) for at, mode in enumerate(wanted)]
    )


def _runs(mode: str, turn: int, script: Script) -> list[str]:
    """All runs of a plain script; one, in turn, where there are options."""
    left_out = ("half the budget", *(["the least budget"] if mode != "plain" else [])) if script.long_to_plan else ()
    names = [name for name in RUNS if name not in left_out]
    if mode == "plain":
        return names
    return sorted({names[turn % len(names)], *(["resumed"] if mode == "state in 8 bits" else [])})


def compare(script: Script, kernels: str, mode: str, runs: list[str]) -> None:
    options = OPTIONS[mode]
    if "precision" in options:  # which wants a recorded step
        wanted = after(script, kernels, **options)
        wide = net_of(script, "numpy", **{name: value for name, value in options.items() if name != "precision"})
        parameters = tuple(f"0 {name.replace('/', ': ')}" for name in wide.param_names())
        if kernels == "numpy":
            close(wanted, (train(script, wide), state(wide)), NARROW[options["precision"]], parameters)
    else:
        eager = after(script, kernels, **options, graph=False)
        fused = after(script, kernels, **options)
        close(fused, eager, FUSED)
        wanted = fused if mode == "plain" else eager
        if mode == "plain":
            assert after(script, kernels, fuse=False) == eager
        else:
            options = {**options, "fuse": False}
    for run in runs:
        with pytest.MonkeyPatch.context() as patch:
            assert RUNS[run](script, kernels, options, patch) == wanted, run


@pytest.mark.parametrize("name", SCRIPTS)
def test_batches_of_other_sizes_evaluations_and_predictions(name, monkeypatch):
    """A step that was recorded comes back behind another, and is recorded again where one alone is kept."""
    script = SCRIPTS[name]

    def run(**options: Any) -> list[Any]:
        net, found = net_of(script, "numpy", **options), []
        for number, count in enumerate((8, 5, 8)):
            x, y, *weights = batch(script, number, count)
            predicted = net.predict_one_batch(x)
            named = predicted if isinstance(predicted, dict) else {"": predicted}
            found.append([bits(results(net.evaluate_one_batch(x, y, *weights))[0]), *map(bits, named.values())])
            found.append(bits(results(net.train_one_batch(x, y, *weights))[0]))
        return [*found, state(net)]

    eager = run(graph=False)
    assert run(fuse=False) == eager
    monkeypatch.setenv("SINGA_LITE_STEPS", "1")
    assert run(fuse=False) == eager


@pytest.mark.parametrize("name", SCRIPTS)
def test_options_that_change_no_result(name):
    """Pieces of a batch, a norm that nothing reaches and a scale that is divided out leave the training as it is."""
    script = SCRIPTS[name]
    plain = after(script, "numpy")
    draws = any("random" in name for name in plain[1])  # which each piece does by itself
    for option, value in {"clip_global_norm": 1e9, "loss_scale": 4.0, "micro_batches": 3}.items():
        if option not in script.without and not (draws and option == "micro_batches"):
            close(after(script, "numpy", **{option: value}), plain, FUSED)


@pytest.mark.parametrize("name", [name for name, script in SCRIPTS.items() if "keep" not in script.without])
def test_what_is_kept_changes_no_bit(name):
    """Outputs and derivatives of a layer that the user asks for."""
    script = SCRIPTS[name]
    net = net_of(script, "numpy")
    layer = next(one.name for one in net.layers.values() if one.param_names())
    assert after(script, "numpy", keep=[layer], fuse=False) == after(script, "numpy", fuse=False)
