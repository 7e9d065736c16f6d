"""Decoders of text in the forms of Llama, Qwen2, Qwen3, Mistral and GPT-2, from one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singa_lite import layers, loss
from singa_lite.common.checks import flag, integer
from singa_lite.common.keywords import explains_keywords
from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.snapshots.language.config import LanguageConfig as LanguageConfig
from singa_lite.tensor import DeviceSpec

INIT = initializer.Normal(std=0.02)


@explains_keywords()
def language_model(
    config: LanguageConfig,
    length: int | None = None,
    *,
    packed: bool = False,
    weight_format: str | Mapping[str, Any] = "float",
    weight_init: initializer.Spec = INIT,
    device: DeviceSpec = None,
    seed: int | None = None,
    parameter_dtype: str | None = None,
) -> FeedForwardNet:
    """Returns the net of a configuration, not compiled, with random weights.

    Input samples of ids (time,), output samples of scores (time, vocabulary), of which SoftmaxCrossEntropy is the
    loss; targets -100 do not count. Layers: tokens (Embedding), of GPT-2 positions, block0 and so on
    (TransformerBlock), norm, and head (TiedDense, or Dense without bias where the configuration is not tied).

    length: of a sample, the configuration's context where None; packed: rows hold several texts, and a second input
    starts (TextStarts) says where each begins, which GPT-2 refuses, as its positions count from the row's first id;
    weight_format: "float", or how products and the embedding are quantised, as for Dense and TransformerBlock: of all,
    or by layer, {"tokens": "q8_0", "block0": {"output": "q6_k"}}, where what is not named is "float"; such weights are
    frozen, and `set_frozen` sets them; weight_init: of all others; device, seed, parameter_dtype: of the net.

    >>> sizes = {"width": 8, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 12, "vocabulary": 100}
    >>> net = models.language_model(models.LanguageConfig(architecture="qwen2", **sizes, biases=True), length=16)
    >>> net.predict(np.ones((3, 16), "int64")).shape
    (3, 16, 100)
    """
    if not isinstance(config, LanguageConfig):
        raise TypeError(f"language_model: wanted a LanguageConfig, received {config!r:.100}")
    time = integer("language_model length", config.context if length is None else length, 1)
    is_gpt2 = config.architecture == "gpt2"
    criterion = loss.SoftmaxCrossEntropy(axis=-1, ignore_index=-100)
    net = FeedForwardNet(criterion, device=device, seed=seed, parameter_dtype=parameter_dtype)
    net.language = config
    formats = _formats(config, weight_format)
    weights = {"weight_init": weight_init, "weight_format": formats.get("tokens", "float")}
    tokens = layers.Embedding("tokens", config.vocabulary, config.width, input_sample_shape=(time,), **weights)
    flow, starts = net.add(tokens), list[Layer]()
    if flag("language_model packed", packed):
        if is_gpt2:
            raise ValueError("language_model packed: wanted False for gpt2, whose positions count from the row's begin")
        starts = [net.add(layers.TextStarts("starts", input_sample_shape=(time,)), [])]
    if is_gpt2:
        flow = net.add(layers.LearnedPositions("positions", config.context, weight_init=weight_init))
    options = {"activation": "gelu_tanh"} if is_gpt2 else {**_llama_options(config), "packed": packed}
    options |= {"hidden_size": config.hidden_size, "epsilon": config.epsilon, "weight_init": weight_init}
    for number in range(config.layers):
        options["weight_format"] = formats.get(f"block{number}", "float")
        block = layers.TransformerBlock(f"block{number}", config.heads, True, **options)
        flow = net.add(block, [flow, *starts])
    norm = layers.LayerNormalization if is_gpt2 else layers.RMSNormalization
    net.add(norm("norm", epsilon=config.epsilon), flow)
    if config.tied:
        net.add(layers.TiedDense("head", tokens))
    else:
        weights["weight_format"] = formats.get("head", "float")
        net.add(layers.Dense("head", config.vocabulary, False, **weights))
    return net


def _formats(config: LanguageConfig, given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """By layer, how its weights are quantised. ValueError for names of other layers."""
    names = ["tokens", *(f"block{number}" for number in range(config.layers)), *([] if config.tied else ["head"])]
    formats = given if isinstance(given, Mapping) else dict.fromkeys(names, given)
    for name in formats:
        if name not in names:
            wanted = f"one of {', '.join(names[:8])}"
            raise ValueError(f"language_model weight_format: wanted as a layer {wanted}, received {name!r:.100}")
    return formats


def _llama_options(config: LanguageConfig) -> dict[str, Any]:
    """Of the blocks of all but GPT-2."""
    return {
        **{"activation": "swiglu", "norm": "rms", "use_bias": False, "qkv_bias": config.biases, "rotary": True},
        **{name: getattr(config, name) for name in ("rotary_base", "rotary_scaling", "head_size", "kv_heads")},
        **{name: getattr(config, name) for name in ("query_key_norm", "window")},
    }
