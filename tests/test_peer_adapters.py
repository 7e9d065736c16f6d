"""Adapters beside those of peft: gradients from equal weights, and files both ways."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapter_nets import TWINS, Twin, predicted, set_adapters
from nets import bits
from singa_lite import FeedForwardNet, SnapshotError, models, snapshots, tensor

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")]
every_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
MODULES = {"images": ["first", "point", "hidden", "scores"], "series": ["first", "scores"], "llama": "all-linear"}


@pytest.fixture(scope="module")
def peft() -> Any:
    """The package; a skip where it is missing."""
    pytest.importorskip("torch", reason="PyTorch, the peer, is missing: pip install torch==2.13.0")
    pytest.importorskip("transformers", reason="transformers, the peer, is missing: pip install transformers")
    return pytest.importorskip("peft", reason="peft, the peer, is missing: pip install peft")


def module_of(twin: Twin) -> Any:
    """The net in PyTorch, with drawn values."""
    import torch

    torch.manual_seed(5)
    return twin.theirs(torch).eval()


def scores(module: Any, x: np.ndarray) -> Any:
    import torch

    found = module(torch.from_numpy(x))
    return getattr(found, "logits", found)


def with_adapters(peft: Any, twin: Twin, name: str, **options: Any) -> Any:
    """The net in PyTorch with adapters whose values are not zero."""
    import torch

    config = peft.LoraConfig(**{"r": 3, "lora_alpha": 5, "target_modules": MODULES[name], **options})
    made = peft.get_peft_model(module_of(twin), config)
    for key, value in made.named_parameters():
        if "lora" in key:
            value.data = 0.3 * torch.randn(value.shape)
    return made


def ours_of(twin: Twin) -> FeedForwardNet:
    """Our net with the values of theirs, no adapters yet."""
    net = twin.ours()
    twin.copy_base(module_of(twin), net)
    return net


@every_twin
def test_gradients_are_those_of_peft(peft, twin, tmp_path):
    import torch

    net = ours_of(twin)
    net.add_lora(3, 5.0, "all")
    if "head/lora_a" in net.parameters():  # which peft leaves out of "all-linear"
        net.merge_lora()
        net.add_lora(3, 5.0)
    set_adapters(net)
    net.save_adapter(tmp_path / "ours")
    module = peft.PeftModel.from_pretrained(module_of(twin), tmp_path / "ours", is_trainable=True)
    x, y = twin.batch(np.random.default_rng(2))
    found = scores(module, x)
    np.testing.assert_allclose(predicted(net, x), found.detach().numpy(), rtol=0, atol=3e-6)
    torch.nn.functional.cross_entropy(found.flatten(0, -2), torch.from_numpy(y).flatten()).backward()
    net.compile("sgd")
    gradients = {name: tensor.to_numpy(value) for name, value in net.gradients(x, y).items()}
    wanted = twin.their_adapters(module, {name: value.shape for name, value in gradients.items()}, grads=True)
    assert wanted.keys() == gradients.keys() and len(wanted) >= 4
    for name, value in wanted.items():
        np.testing.assert_allclose(
            gradients[name], value, rtol=0, atol=1e-5 * max(1, np.abs(value).max()), err_msg=name
        )


#: A module that has a rank or a factor of its own.
PATTERN = {"images": "point", "series": "first", "llama": "q_proj"}
OPTIONS = {
    "plain": lambda name: {},
    "scaled by roots": lambda name: {"use_rslora": True},
    "several ranks": lambda name: {"rank_pattern": {PATTERN[name]: 2}, "use_rslora": True},
    "several factors": lambda name: {"alpha_pattern": {PATTERN[name]: 11}, "lora_dropout": 0.1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", TWINS)
def test_files_of_peft(peft, name, options, tmp_path):
    """Their outputs are ours; what is written again is the same, and gives their outputs again."""
    twin = TWINS[name]
    module = with_adapters(peft, twin, name, **options(name))
    module.save_pretrained(tmp_path / "theirs")
    net = ours_of(twin)
    net.load_adapter(tmp_path / "theirs")
    x, _ = twin.batch(np.random.default_rng(2))
    wanted = scores(module.eval(), x).detach().numpy()
    np.testing.assert_allclose(predicted(net, x), wanted, rtol=0, atol=3e-6)
    net.save_adapter(tmp_path / "ours", base="somewhere")
    again = peft.PeftModel.from_pretrained(module_of(twin), tmp_path / "ours")
    np.testing.assert_array_equal(scores(again, x).detach().numpy(), wanted)
    assert json.loads((tmp_path / "ours/adapter_config.json").read_text())["base_model_name_or_path"] == "somewhere"


@every_twin
def test_merged_weights_are_those_of_peft(peft, twin, request, tmp_path):
    name = request.node.callspec.id
    module = with_adapters(peft, twin, name)
    module.save_pretrained(tmp_path)
    net = ours_of(twin)
    net.load_adapter(tmp_path)
    paths = net.merge_lora()
    merged = twin.ours()
    twin.copy_base(module.merge_and_unload(), merged)
    for key, value in merged.parameters().items():
        np.testing.assert_allclose(tensor.to_numpy(net.parameters()[key]), tensor.to_numpy(value), rtol=0, atol=1e-6)
    assert paths and not any("lora" in key for key in net.parameters())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_files_of_16_bits(peft, dtype, tmp_path):
    import torch

    module = with_adapters(peft, TWINS["images"], "images")
    for key, value in module.named_parameters():
        if "lora" in key:
            value.data = value.data.to(getattr(torch, dtype))
    module.save_pretrained(tmp_path)
    net = ours_of(TWINS["images"])
    net.load_adapter(tmp_path)
    shapes = {name: value.shape for name, value in net.parameters().items()}
    for key, value in TWINS["images"].their_adapters(module.float(), shapes).items():
        assert bits(net.parameters()[key]) == bits(value)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"use_dora": True}, "use_dora"), ({"bias": "all"}, "bias"), ({"modules_to_save": ["scores"]}, "modules_to_save")],
)
def test_what_peft_can_do_beyond_this_is_refused(peft, options, word, tmp_path: Path):
    targets = ["hidden"] if word == "modules_to_save" else MODULES["images"]
    with_adapters(peft, TWINS["images"], "images", **{"target_modules": targets, **options}).save_pretrained(tmp_path)
    net = ours_of(TWINS["images"])
    before = {name: bits(value) for name, value in net.parameters().items()}
    with pytest.raises(SnapshotError, match=word):
        net.load_adapter(tmp_path)
    assert {name: bits(value) for name, value in net.parameters().items()} == before


def gpt2() -> FeedForwardNet:
    sizes = {"width": 8, "layers": 2, "heads": 2, "hidden_size": 12, "vocabulary": 20, "context": 16}
    return models.language_model(models.LanguageConfig(architecture="gpt2", tied=True, **sizes), 5, seed=2)


def test_gpt2_whose_products_lie_the_other_way(peft, tmp_path):
    """Its feed-forward part takes adapters; query, key and value are parts of one module there, and are refused."""
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel

    net = gpt2()
    net.save(tmp_path / "base.safetensors", names=snapshots.maps.gpt2(net), weights_only=True)
    net.add_lora(2, targets=["hidden", "block0/output"])
    set_adapters(net)
    net.save_adapter(tmp_path / "ours")
    sizes = {"vocab_size": 20, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_inner": 12}
    base = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    base.load_state_dict(load_file(tmp_path / "base.safetensors"), strict=False)
    x = np.random.default_rng(2).integers(0, 20, (3, 5))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")  # peft sets it to what it is
        module = peft.PeftModel.from_pretrained(base, tmp_path / "ours")
    found = scores(module, x).detach().numpy()
    np.testing.assert_allclose(predicted(net, x), found, rtol=0, atol=3e-6)
    net.merge_lora()
    net.add_lora(2)
    with pytest.raises(SnapshotError, match="block0/attention/"):
        net.save_adapter(tmp_path / "none")
    assert not (tmp_path / "none").exists()
