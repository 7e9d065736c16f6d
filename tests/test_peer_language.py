"""Language models beside transformers: equal scores and gradients, of random weights, in each architecture."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import skips
from singa_lite import device, loss, models, tensor
from singa_lite.net.feed_forward_net import FeedForwardNet

pytestmark = pytest.mark.peer

TIME, IDS = 29, 41
SIZES = {"width": 24, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 20, "vocabulary": IDS, "context": 64}
LLAMA3 = {
    **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "original_max_position_embeddings": 16,
}
#: {case: (our configuration, what transformers' has beside the sizes)}.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": ({"rotary_base": 500.0, "epsilon": 1e-3}, {"rope_theta": 500.0, "rms_norm_eps": 1e-3}),
    "llama, linear": (
        {"rotary_scaling": {"rope_type": "linear", "factor": 3.0}, "tied": True},
        {"rope_scaling": {"rope_type": "linear", "factor": 3.0}, "tie_word_embeddings": True},
    ),
    "llama, scaled as Llama 3": (
        {"rotary_scaling": LLAMA3, "rotary_base": 100.0},
        {"rope_scaling": LLAMA3, "rope_theta": 100.0},
    ),
    "qwen2": ({"biases": True, "tied": True}, {"tie_word_embeddings": True}),
    "qwen3": ({"query_key_norm": True, "head_size": 10}, {"head_dim": 10}),
    "mistral": ({"window": 7, "head_size": 8}, {"sliding_window": 7, "head_dim": 8}),
    "gpt2": ({"kv_heads": 4, "tied": True}, {}),
}
#: {path in a block: (module there, weights and norms by ours)}.
BLOCK = {
    "attention_norm/gamma": "input_layernorm.weight",
    "hidden_norm/gamma": "post_attention_layernorm.weight",
    **{
        f"attention/{ours}/{kind}": f"self_attn.{ours[0]}_proj.{kind}"
        for ours in ("query", "key", "value")
        for kind in ("weight", "bias")
    },
    "attention/output/weight": "self_attn.o_proj.weight",
    "attention/query_norm/gamma": "self_attn.q_norm.weight",
    "attention/key_norm/gamma": "self_attn.k_norm.weight",
    "hidden/gate/weight": "mlp.gate_proj.weight",
    "hidden/value/weight": "mlp.up_proj.weight",
    "output/weight": "mlp.down_proj.weight",
}
GPT2 = {
    **{f"attention_norm/{ours}": f"ln_1.{theirs}" for ours, theirs in (("gamma", "weight"), ("beta", "bias"))},
    **{f"hidden_norm/{ours}": f"ln_2.{theirs}" for ours, theirs in (("gamma", "weight"), ("beta", "bias"))},
    **{
        f"attention/{each}/{kind}": f"attn.c_attn.{kind}"
        for each in ("query", "key", "value")
        for kind in ("weight", "bias")
    },
    **{
        f"{ours}/{kind}": f"{theirs}.{kind}"
        for ours, theirs in (("attention/output", "attn.c_proj"), ("hidden", "mlp.c_fc"), ("output", "mlp.c_proj"))
        for kind in ("weight", "bias")
    },
}


def their_model(case: str) -> Any:
    """A model of transformers with random weights, in float64."""
    transformers, torch = skips.library("transformers"), skips.library("torch")
    config, options = (
        models.LanguageConfig(architecture=case.partition(",")[0], **{**SIZES, **CASES[case][0]}),
        deepcopy(CASES[case][1]),
    )
    torch.manual_seed(3)
    if config.architecture == "gpt2":
        made = transformers.GPT2Config(
            vocab_size=IDS,
            n_positions=64,
            n_embd=24,
            n_layer=2,
            n_head=4,
            n_inner=20,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
        model = transformers.GPT2LMHeadModel(made)
    else:
        kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}[config.architecture]
        made = getattr(transformers, f"{kind}Config")(
            **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
            **{"intermediate_size": 20, "vocab_size": IDS, "max_position_embeddings": 64},
            **{
                "rms_norm_eps": 1e-5,
                "tie_word_embeddings": False,
                "rope_theta": 10000.0,
                "attn_implementation": "eager",
                **options,
            },
        )
        model = getattr(transformers, f"{kind}ForCausalLM")(made)
    model = model.double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn_like(weight) * 0.3 + (1.0 if "norm" in name or ".ln_" in name else 0.0))
    return model


def their_name(path: str) -> str:
    """The parameter of transformers that ours stands in."""
    layer, _, rest = path.partition("/")
    number = layer.removeprefix("block")
    return f"model.layers.{number}.{BLOCK[rest]}" if number.isdigit() else TOP[path]


TOP = {"tokens/weight": "model.embed_tokens.weight", "norm/gamma": "model.norm.weight", "head/weight": "lm_head.weight"}
TOP_OF_GPT2 = {
    "tokens/weight": "transformer.wte.weight",
    "positions/weight": "transformer.wpe.weight",
    "norm/gamma": "transformer.ln_f.weight",
    "norm/beta": "transformer.ln_f.bias",
}


def placed(case: str, path: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The values of a parameter of ours among transformers' arrays."""
    if not case.startswith("gpt2"):
        found = arrays[their_name(path)]
        return found.T if found.ndim == 2 and path != "tokens/weight" else found
    layer, _, rest = path.partition("/")
    number = layer.removeprefix("block")
    if not number.isdigit():
        return arrays[TOP_OF_GPT2[path]]
    found = arrays[f"transformer.h.{number}.{GPT2[rest]}"]
    if "c_attn" not in GPT2[rest]:
        return found
    return np.split(found, 3, -1)[("query", "key", "value").index(rest.split("/")[1])]


@pytest.mark.parametrize("case", CASES)
def test_scores_and_gradients_are_those_of_transformers(case):
    torch, theirs = skips.library("torch"), their_model(case)
    config = models.LanguageConfig(architecture=case.partition(",")[0], **{**SIZES, **CASES[case][0]})
    net = in_float64(models.language_model(config, TIME))
    arrays = {name: weight.detach().numpy() for name, weight in theirs.named_parameters()}
    for path, parameter in net.parameters().items():
        parameter.copy_from_numpy(placed(case, path, arrays).copy())
    count = sum(weight.size for weight in arrays.values())
    assert sum(parameter.size() for parameter in net.parameters().values()) == count
    ids = np.random.default_rng(4).integers(0, IDS, (3, TIME + 1))
    x, y = ids[:, :-1], ids[:, 1:]
    given = theirs(torch.from_numpy(x.copy())).logits
    wanted = given.detach().numpy()
    assert wanted.std() > 0.3
    np.testing.assert_allclose(tensor.to_numpy(net.predict(x)), wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())
    torch.nn.functional.cross_entropy(given.flatten(0, 1), torch.from_numpy(y.flatten().copy())).backward()
    slopes = {name: weight.grad.numpy() for name, weight in theirs.named_parameters()}
    net.compile("sgd", loss.SoftmaxCrossEntropy(axis=-1))
    found = {name: tensor.to_numpy(value) for name, value in net.gradients(x, y).items()}
    assert found.keys() == net.parameters().keys()
    for path, value in found.items():
        right = placed(case, path, slopes)
        np.testing.assert_allclose(value, right, rtol=0, atol=1e-5 * np.abs(right).max() + 1e-12, err_msg=path)


def in_float64(net: FeedForwardNet) -> FeedForwardNet:
    """The same net, made anew in float64."""
    return FeedForwardNet.from_config({**net.config(), "dtype": "float64"}, device=device.cpu())
