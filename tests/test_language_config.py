"""Language models by their configurations: what is refused, what is shared, values of rotary tables by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_lite import device, layers, models, tensor
from singa_lite.layers.positions import rotary_table

SIZES: dict[str, Any] = {
    **{"architecture": "llama", "width": 8, "layers": 3, "heads": 2, "hidden_size": 12, "vocabulary": 19},
}
#: (options, the error, words of it).
REFUSED: list[tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = [
    ({"architecture": "mamba"}, ValueError, ("architecture", "qwen3", "'mamba'")),
    ({"layers": 0}, ValueError, ("layers", "0")),
    ({"width": 9}, ValueError, ("heads", "9", "2")),
    ({"heads": 4, "kv_heads": 3}, ValueError, ("kv_heads", "4", "3")),
    ({"head_size": 5}, ValueError, ("head_size", "even", "5")),
    ({"vocabulary": "many"}, TypeError, ("vocabulary", "'many'")),
    ({"rotary_base": -1.0}, ValueError, ("rotary_base", "-1")),
    ({"epsilon": 0.0}, ValueError, ("epsilon", "0")),
    ({"biases": 1}, TypeError, ("biases", "1")),
    ({"window": 0}, ValueError, ("window", "0")),
    ({"rotary_scaling": {"rope_type": "yarn", "factor": 2.0}}, ValueError, ("rotary_scaling", "llama3", "'yarn'")),
    ({"rotary_scaling": {"type": "linear", "factor": 2.0, "base": 1}}, ValueError, ("linear", "factor", "'base'")),
    ({"rotary_scaling": {"type": "factors", "factors": 3}}, TypeError, ("factors", "3")),
    ({"rotary_scaling": "linear"}, TypeError, ("mapping", "'linear'")),
    ({"depth": 3}, TypeError, ("LanguageConfig", "unexpected keyword argument 'depth'")),
    ({"architecture": "gpt2", "window": 4}, ValueError, ("window", "gpt2", "4")),
    ({"architecture": "gpt2", "kv_heads": 1}, ValueError, ("kv_heads", "2", "1")),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_a_configuration_that_no_model_has_is_refused(number):
    options, error, words = REFUSED[number]
    with pytest.raises(error) as caught:
        models.LanguageConfig(**{**SIZES, **options})
    text = str(caught.value)
    assert "LanguageConfig" in text and all(word in text for word in words), text


def test_what_is_no_configuration_and_packed_learned_positions_are_refused():
    with pytest.raises(TypeError, match=r"LanguageConfig, received {'width': 8}"):
        models.language_model({"width": 8})
    with pytest.raises(ValueError, match=r"packed.*gpt2"):
        models.language_model(models.LanguageConfig(**{**SIZES, "architecture": "gpt2"}), packed=True)
    with pytest.raises(ValueError, match=r"length.*0"):
        models.language_model(models.LanguageConfig(**SIZES), 0)
    for given, words in (
        ({"block3": "q8_0"}, "block2, head.*'block3'"),
        (3, "weight_format.*3"),
        (None, "weight_format.*None"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            models.language_model(models.LanguageConfig(**SIZES), 4, weight_format=given)
    with pytest.raises(ValueError, match="factors: wanted 2, one a frequency, received 3"):
        models.language_model(
            models.LanguageConfig(**SIZES, rotary_scaling={"rope_type": "factors", "factors": [1.0, 2.0, 3.0]}), 4
        )


def test_layers_share_a_table_which_is_no_state():
    net = models.language_model(models.LanguageConfig(**SIZES, window=3), 7, device=device.new_cpu())
    attentions = [net.all_layers()[f"block{number}/attention"] for number in range(3)]
    assert not net.states()
    for name, shape in (("table", (2, 7, 2)), ("window", (1, 7))):
        (table,) = {id(each.constants[name]): each.constants[name] for each in attentions}.values()
        assert table.shape == shape
    assert tensor.to_numpy(attentions[0].constants["window"]).tolist() == [[0, 0, 0, 1, 2, 3, 4]]
    before = attentions[1].constants["table"]
    attentions[0].rotary_base = 50.0
    np.testing.assert_allclose(attentions[0].constants["table"], rotary_table(7, 4, 50.0), rtol=1e-6)
    assert attentions[1].constants["table"] is before
    np.testing.assert_allclose(before, rotary_table(7, 4), rtol=1e-6)


def test_a_net_of_a_configuration_is_written_down_and_made_again():
    scaling = {"rope_type": "factors", "factors": (1.0, 3.0)}
    config = models.LanguageConfig(**SIZES, rotary_scaling=scaling, biases=True, query_key_norm=True, window=5)
    net = models.language_model(config, 9, packed=True, seed=4)
    again = type(net).from_config(net.config())
    ids = np.random.default_rng(1).integers(0, 19, (2, 9))
    batch = {"tokens": ids, "starts": np.array([[0] * 4 + [4] * 5, [0] * 9])}
    np.testing.assert_array_equal(net.predict(batch), again.predict(batch))
    assert net.parameters()["block0/attention/key/bias"].shape == (8,)
    assert "block0/attention/output/bias" not in net.parameters()


#: A rate a position of 1 and 1 / 100; their waves are 2 pi and 200 pi long.
ANGLES: dict[str, tuple[Any, list[float]]] = {
    "none": (None, [1.0, 0.01]),
    "linear": ({"type": "linear", "factor": 4.0}, [0.25, 0.0025]),
    "factors": ({"rope_type": "factors", "factors": [2.0, 8.0]}, [0.5, 0.00125]),
    # 8 waves of the first in 16 pi, and 0.08 of the second: more than 4, which stays, and less than 1, which is divided
    "llama3": (
        {
            **{"high_freq_factor": 4.0, "low_freq_factor": 1.0, "factor": 10.0, "rope_type": "llama3"},
            "original_max_position_embeddings": 16 * np.pi,
        },
        [1.0, 0.001],
    ),
    # 2.5 waves of the first in 5 pi, in the middle: half of it stays, half is divided
    "llama3, between": (
        {
            **{"rope_type": "llama3", "factor": 10.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
            "original_max_position_embeddings": 5 * np.pi,
        },
        [0.55, 0.001],
    ),
}


@pytest.mark.parametrize("name", ANGLES)
def test_rotary_tables(name):
    scaling, rates = ANGLES[name]
    wanted = np.arange(3)[:, None] * np.array(rates)
    np.testing.assert_allclose(rotary_table(3, 4, 1e4, scaling), [np.cos(wanted), np.sin(wanted)], rtol=1e-12)


def test_a_layer_by_hand_is_that_of_the_configuration():
    config = models.LanguageConfig(**{**SIZES, "architecture": "qwen2", "kv_heads": 1}, biases=True, rotary_base=1e6)
    net = models.language_model(config, 6)
    block = layers.TransformerBlock(
        *("block", 2, True),
        **{"hidden_size": 12, "activation": "swiglu", "norm": "rms", "use_bias": False, "qkv_bias": True},
        **{"rotary": True, "rotary_base": 1e6, "kv_heads": 1, "epsilon": 1e-5},
    )
    made = net.layers["block0"].given_arguments
    assert all(made[name] == value for name, value in block.given_arguments.items() if name != "name")


#: {published model: (architecture, its configuration, how many parameters it has)}.
PUBLISHED: dict[str, tuple[str, dict[str, Any], int]] = {
    name: (kind, dict(zip(SHAPE, shape, strict=True)) | options, count)
    for SHAPE in [("width", "layers", "heads", "kv_heads", "hidden_size", "vocabulary")]
    for name, kind, shape, options, count in [
        ("SmolLM2-135M", "llama", (576, 30, 9, 3, 1536, 49152), {"tied": True}, 134_515_008),
        ("Llama-3.2-1B", "llama", (2048, 16, 32, 8, 8192, 128256), {"tied": True}, 1_235_814_400),
        ("Llama-3-8B", "llama", (4096, 32, 32, 8, 14336, 128256), {}, 8_030_261_248),
        ("TinyLlama-1.1B", "llama", (2048, 22, 32, 4, 5632, 32000), {}, 1_100_048_384),
        ("Qwen2.5-0.5B", "qwen2", (896, 24, 14, 2, 4864, 151936), {"tied": True, "biases": True}, 494_032_768),
        ("Qwen2.5-7B", "qwen2", (3584, 28, 28, 4, 18944, 152064), {"biases": True}, 7_615_616_512),
        (
            *("Qwen3-0.6B", "qwen3", (1024, 28, 16, 8, 3072, 151936)),
            *({"tied": True, "query_key_norm": True, "head_size": 128}, 596_049_920),
        ),
        ("Mistral-7B", "mistral", (4096, 32, 32, 8, 14336, 32000), {"window": 4096}, 7_241_732_096),
        ("GPT-2", "gpt2", (768, 12, 12, 12, 3072, 50257), {"tied": True, "context": 1024}, 124_439_808),
    ]
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_their_number_of_parameters(name):
    kind, options, count = PUBLISHED[name]
    net = models.language_model(models.LanguageConfig(architecture=kind, **options), 8, device=device.abstract("numpy"))
    assert sum(parameter.size() for parameter in net.parameters().values()) == count
