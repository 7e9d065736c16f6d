"""Training steps of nets as one CUDA graph: one launch a step, nothing on the host, the losses of the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import host_loader
from cuda_devices import new_device
from late_gpu import late_gpu, missing_libraries
from mode_scripts import SCRIPTS, Batch, Script, with_blocks
from nets import bits, state_of
from singa_lite import FeedForwardNet, device, layers, loss, models, optimizer
from singa_lite.device import Device
from singa_lite.device.host_fallback import HostFallback

MISSING = host_loader.missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}")
needs_libraries = pytest.mark.skipif(bool(missing_libraries()), reason=f"wants {missing_libraries()}")

IDS, TIME, STEPS = 37, 11, 4


def texts(rng: np.random.Generator) -> Batch:
    """3 texts, with the next id at each place; some places do not count."""
    ids = rng.integers(0, IDS, (3, TIME + 1))
    return ids[:, :-1], np.where(rng.random((3, TIME)) > 0.2, ids[:, 1:], -100)


def gpt(on: Device) -> FeedForwardNet:
    """Learned positions, layer norms, dropout, a head that is the table of ids."""
    net = models.gpt2(IDS, TIME, 12, 3, 2, dropout=0.1, device=on, seed=3)
    net.loss = loss.SoftmaxCrossEntropy(axis=-1, ignore_index=-100)
    return net


def llama(on: Device, **options: Any) -> FeedForwardNet:
    """RMS norms, rotary positions, two heads of queries for each of keys, SwiGLU."""
    sizes = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 96, "vocabulary": IDS}
    config = models.LanguageConfig(architecture="llama", **sizes, tied=False)
    return models.language_model(config, TIME, device=on, seed=3, **options)


def adapted_blocks(on: Device) -> FeedForwardNet:
    """Adapters that drop, over quantised weights."""
    net = with_blocks(llama(on, weight_format="q4_0"))
    net.add_lora(3, 6.0, dropout=0.2)
    return net


def tagger(on: Device) -> FeedForwardNet:
    """A class for each word, by what stands before and behind it; id 0 is padding."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1, ignore_index=-100), device=on, seed=3)
    net.add(layers.Embedding("words", IDS, 9, mask_zero=True, input_sample_shape=(TIME,)))
    net.add(layers.LSTM("lstm", 7, 0.2, num_stacks=2, bidirectional=True, return_sequences=True))
    net.add(layers.Dense("tags", 5))
    return net


def tagged(rng: np.random.Generator) -> Batch:
    """4 sentences of unequal lengths."""
    padding = np.arange(TIME) >= rng.integers(2, TIME + 1, (4, 1))
    ids, tags = rng.integers(1, IDS, (4, TIME)), rng.integers(0, 5, (4, TIME))
    return np.where(padding, 0, ids), np.where(padding, -100, tags)


def adamw() -> optimizer.Optimizer:
    """With a rate at which steps change losses by more than a rounding."""
    return optimizer.AdamW(lr=0.01)


NETS = {
    "gpt": Script(gpt, texts, adamw),
    "llama": Script(llama, texts, adamw),
    "adapters over quantised weights": Script(adapted_blocks, texts, adamw),
    "tagger": Script(tagger, tagged, adamw),
}
#: Of `test_modes.py`: nets that draw normal numbers, which a GPU draws by a formula of its own.
DRAWING = ("two nets", "one walk through two nets")
#: All others but the one with a user's own function over NumPy's arrays.
OTHERS = [name for name in SCRIPTS if name not in ("own layer", *DRAWING)]


def compiled(script: Script, on: Device, **options: Any) -> FeedForwardNet:
    net = script.build(on)
    net.compile(script.optimizer(), **script.compiled, **script.beside(net), **options)
    return net


def trained(net: FeedForwardNet, script: Script, steps: int = STEPS) -> list[float]:
    """Losses of steps, each with its own batch."""
    return [float(net.train_one_batch(*script.batch(np.random.default_rng(step)))[0]) for step in range(steps)]


@pytest.mark.parametrize("name", NETS)
def test_a_step_is_one_launch_with_the_losses_of_a_cpu(name, monkeypatch):
    is_one_launch(NETS[name], new_device("stand-in"), of_a_cpu(NETS[name]), monkeypatch)


@pytest.mark.parametrize("name", NETS)
def test_a_step_in_16_bits_is_one_launch(name, monkeypatch):
    """Attention is the library's there, where heads are as it wants them."""
    on = new_device("stand-in")
    is_one_launch(NETS[name], on, of_a_cpu(NETS[name]), monkeypatch, 2.0**-8, precision="bfloat16")


@pytest.mark.nightly
@pytest.mark.parametrize("name", OTHERS)
def test_steps_of_other_nets_are_one_launch(name, monkeypatch):
    is_one_launch(SCRIPTS[name], new_device("stand-in"), of_a_cpu(SCRIPTS[name]), monkeypatch)


@pytest.mark.parametrize("name", DRAWING)
def test_steps_with_normal_numbers_are_one_launch_with_the_losses_of_calls_one_by_one(name, monkeypatch):
    script, kind = SCRIPTS[name], "stand-in"
    wanted = trained(compiled(script, new_device(kind), graph=False), script)
    is_one_launch(script, new_device(kind), wanted, monkeypatch)


def of_a_cpu(script: Script) -> list[float]:
    """Losses of NumPy's kernels in float32."""
    return trained(compiled(script, device.new_cpu(kernels="numpy")), script)


def is_one_launch(
    script: Script,
    on: Device,
    wanted: list[float],
    monkeypatch: pytest.MonkeyPatch,
    off: float = 2e-5,
    **options: Any,
) -> None:
    """Fail unless it is, from the third step on. off: what losses may differ by from those wanted, relatively."""

    def refused(kernel: HostFallback, *_: Any) -> None:
        raise AssertionError(f"{kernel._name} is done on the host")

    net, stream = compiled(script, on, **options), on.runtime.stream
    monkeypatch.setattr(HostFallback, "prepare", refused)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none says that the step cannot be captured
        found = trained(net, script)
    eager, graphs = stream.eager, stream.graph_launches
    trained(net, script, 2)
    assert stream.graph_launches - graphs == 2
    assert stream.eager - eager <= 2 * 8, "beside it: the batch in, loss and metrics out"
    assert len({round(value, 4) for value in wanted}) == STEPS, "losses that change"
    np.testing.assert_allclose(found, wanted, rtol=off)


@needs_libraries
@pytest.mark.parametrize("name", NETS)
def test_a_net_trains_to_equal_bits_in_every_legal_order(name):
    def in_order(seed: int) -> list[Any]:
        with late_gpu(seed) as (_, _, on):
            net, batch = compiled(NETS[name], on), NETS[name].batch
            losses = [net.train_one_batch(*batch(np.random.default_rng(step)))[0] for step in range(STEPS)]
            assert net.training_graph._executables["recorded"]._replay.is_captured
            return [*map(bits, losses), state_of(net)]

    first, *others = map(in_order, (0, 1, 99))
    assert all(found == first for found in others)
