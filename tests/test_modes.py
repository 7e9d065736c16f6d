"""Every script in every mode: the state after some steps is that of eager steps, to the bit or to a stated rounding.

A script is a row of `mode_scripts.py`. OPTIONS are given to `compile` beside the script's own. RUNS are ways to run
the same training. A new option of `compile` needs a place in OPTIONS, RUNS or ELSEWHERE, a new layer a script.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from mode_scripts import SCRIPTS, Script
from nets import bits, state_of
from singa_lite import FeedForwardNet, device, tensor
from singa_lite.training.compile_options import NAMES

STEPS = 4
#: What fused operations may round otherwise, by the largest number of a tensor, after STEPS steps.
FUSED = 2e-5

#: {mode: options of compile}. Recorded steps of each are compared with eager ones of the same options.
OPTIONS: dict[str, Mapping[str, Any]] = {
    "plain": {},
    "clip": {"clip_global_norm": 0.3},
    "accumulate": {"accumulate": 2},
    "micro_batches": {"micro_batches": 3},
    "clip and accumulate": {"clip_global_norm": 0.3, "accumulate": 2},
    "state in bfloat16": {"state_dtype": "bfloat16"},
    "state in 8 bits": {"state_dtype": "int8"},
    "loss_scale": {"loss_scale": 512.0},
    "weights of losses": {"on_nan": None},
}
#: Options that are no modes of a training step, with the test that has them.
ELSEWHERE = {
    "offload": "test_offload.py",
    "budget_profile": "test_budget_profile.py",
    "float32_layers": "test_mixed_precision.py",
    "nets": "test_own_step.py",
    "limits": "test_observation.py",
    "rules": "test_rewriting.py",
    "parallel": "test_parallel_training.py",
    "workers": "test_workers.py",
    "loss_weights": "test_net.py",
}


def net_of(script: Script, kernels: str, **options: Any) -> FeedForwardNet:
    """The script's net, compiled."""
    net = script.build(device.new_cpu(kernels=kernels))
    net.compile(script.optimizer(), **{**script.compiled, **options})
    return net


def train(script: Script, net: FeedForwardNet, first: int = 0, last: int = STEPS) -> list[Any]:
    """Steps over the script's batches; the bits of the losses."""
    found = []
    for number in range(first, last):
        value, *_ = results(net.train_one_batch(*script.batch(np.random.default_rng(number))))
        found.append(bits(value))
    return found


def results(given: Any) -> tuple[Any, ...]:
    """The loss first; a step of the user's own gives a dict."""
    return tuple(given.values()) if isinstance(given, dict) else tuple(given)


def after(script: Script, kernels: str, **options: Any) -> Any:
    """Losses and state of a run."""
    net = net_of(script, kernels, **options)
    return train(script, net), state_of(net)


def close(found: Any, wanted: Any, rounding: float) -> None:
    """Fail where a number of the state is further off than that share of its tensor's largest."""
    for name, value in wanted[1].items():
        if not isinstance(value, tuple) or not value[0].startswith("float"):
            continue
        dtype, shape, raw = value
        there = np.frombuffer(raw, dtype).reshape(shape)
        got = np.frombuffer(found[1][name][2], dtype).reshape(shape)
        np.testing.assert_allclose(got, there, rtol=0, atol=rounding * max(np.abs(there).max(), 1e-3), err_msg=name)


# ---- ways to run one training: each gives the bits of the recorded step


def unplanned(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
    """Every tensor has bytes of its own."""
    patch.setenv("SINGA_LITE_PLAN", "off")
    return after(script, kernels, **options)


def checked(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
    """Dead bytes are NaN."""
    patch.setenv("SINGA_LITE_CHECKED", "1")
    return after(script, kernels, **options)


def within(share: float) -> Any:
    """A run within a budget between the least and what a free plan takes."""

    def run(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
        net = net_of(script, kernels, **options)
        net.evaluate_one_batch(*script.batch(np.random.default_rng(0)))  # which shows a step of one's own its targets
        curve = net.budget_curve(8)
        free, least = curve[0][0], curve[-1][0]
        return after(script, kernels, **options, memory_budget=int(least + share * (free - least)))

    return run


def in_waves(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
    """Operations that do not depend on each other share a wave."""
    return after(script, kernels, **options, order="dependencies")


def resumed(script: Script, kernels: str, options: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
    """Saved within the run, and loaded into a new net that goes on."""
    import tempfile

    net = net_of(script, kernels, **options)
    losses = train(script, net, last=3)
    again = net_of(script, kernels, **options)
    with tempfile.TemporaryDirectory() as folder:
        net.save(f"{folder}/net.h5")
        again.load(f"{folder}/net.h5")
    return losses + train(script, again, 3), state_of(again)


RUNS = {
    "unplanned": unplanned,
    "checked": checked,
    "half the budget": within(0.5),
    "the least budget": within(0.0),
    "in waves": in_waves,
    "resumed": resumed,
}


def test_every_option_of_compile_has_a_place():
    used = {name for options in OPTIONS.values() for name in options}
    used |= {name for script in SCRIPTS.values() for name in script.compiled}
    used |= {"graph", "fuse", "memory_budget", "order", "precision", "keep"}  # by the tests below
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
    wanted = [mode for mode in OPTIONS if mode not in script.without and (kernels == "numpy" or mode == "plain")]
    over_rows(compare, [(mode, (script, kernels, mode, _runs(mode, number + at))) for at, mode in enumerate(wanted)])


def _runs(mode: str, turn: int) -> list[str]:
    """All runs of a plain script; one, in turn, where there are options."""
    names = list(RUNS)
    return names if mode == "plain" else [names[turn % len(names)]]


def compare(script: Script, kernels: str, mode: str, runs: list[str]) -> None:
    options = OPTIONS[mode]
    eager = after(script, kernels, **options, graph=False)
    assert after(script, kernels, **options, fuse=False) == eager
    fused = after(script, kernels, **options)
    close(fused, eager, FUSED)
    for run in runs:
        with pytest.MonkeyPatch.context() as patch:
            assert RUNS[run](script, kernels, options, patch) == fused, run


@pytest.mark.parametrize("name", SCRIPTS)
def test_options_that_change_no_result(name):
    """Pieces of a batch, a norm that nothing reaches and a scale that is divided out leave the training as it is."""
    script = SCRIPTS[name]
    plain = after(script, "numpy")
    same = {"clip_global_norm": 1e9, "loss_scale": 4.0, "micro_batches": 3}
    for option, value in same.items():
        if option not in script.without:
            close(after(script, "numpy", **{option: value}), plain, FUSED)


@pytest.mark.parametrize("name", [name for name, script in SCRIPTS.items() if "bfloat16" not in script.without])
def test_storage_in_16_bits_is_near(name):
    """Parameters after some steps differ by what 8 bits of a mantissa round; recorded is eager, to the bit."""
    script = SCRIPTS[name]
    narrow = net_of(script, "numpy", precision="bfloat16")
    train(script, narrow)
    wide = net_of(script, "numpy")
    train(script, wide)
    for parameter, value in wide.parameters().items():
        exact, got = tensor.to_numpy(value), tensor.to_numpy(narrow.parameters()[parameter])
        assert np.abs(got - exact).max() <= 0.1 * max(np.abs(exact).max(), 0.05), parameter


@pytest.mark.parametrize("name", [name for name, script in SCRIPTS.items() if "keep" not in script.without])
def test_what_is_kept_changes_no_bit(name):
    """Outputs and derivatives of a layer that the user asks for."""
    script = SCRIPTS[name]
    net = net_of(script, "numpy")
    layer = next(one.name for one in net.layers.values() if one.param_names())
    assert after(script, "numpy", keep=[layer], fuse=False) == after(script, "numpy", fuse=False)
