"""Nets for the tests of adapters, each with the same net in PyTorch that peft puts adapters into."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_lite import FeedForwardNet, device, layers, models, tensor

Batch = tuple[np.ndarray, np.ndarray]
CLASSES, IDS, TIME = 4, 31, 9


def images(**options: Any) -> FeedForwardNet:
    """Convolutions with and without a window, and matrices; called as in `_torch_images`."""
    net = FeedForwardNet("softmax_cross_entropy", device=device.new_cpu(), seed=3, **options)
    net.add(layers.Conv2D("first", 6, (3, 2), stride=(2, 1), pad=1, activation="relu", input_sample_shape=(3, 9, 8)))
    net.add(layers.Conv2D("point", 5, 1))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("hidden", 7, activation="tanh"))
    net.add(layers.Dense("scores", CLASSES))
    return net


def series() -> FeedForwardNet:
    """A convolution over time, and a matrix; called as in `_torch_series`."""
    net = FeedForwardNet("softmax_cross_entropy", device=device.new_cpu(), seed=3)
    net.add(layers.Conv1D("first", 5, 3, stride=2, pad=(2, 2), activation="tanh", input_sample_shape=(3, TIME)))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", CLASSES))
    return net


def llama() -> FeedForwardNet:
    """Two blocks as of Llama, called as `models.language_model` calls them."""
    sizes = {"width": 16, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 24, "vocabulary": IDS, "epsilon": 1e-6}
    config = models.LanguageConfig(architecture="llama", tied=False, **sizes)
    net = models.language_model(config, TIME, device=device.new_cpu(), seed=3)
    net.compile("sgd", "softmax_cross_entropy")
    return net


def _torch_images(torch: Any) -> Any:
    nn = torch.nn

    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 6, (3, 2), stride=(2, 1), padding=1)
            self.point, self.hidden, self.scores = nn.Conv2d(6, 5, 1), nn.Linear(225, 7), nn.Linear(7, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.point(torch.relu(self.first(x)))
            return self.scores(torch.tanh(self.hidden(x.flatten(1))))

    return Images()


def _torch_series(torch: Any) -> Any:
    nn = torch.nn

    class Series(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv1d(3, 5, 3, stride=2, padding=2)  # to dilated ones peft adds windows without gaps
            self.scores = nn.Linear(30, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.scores(torch.tanh(self.first(x)).flatten(1))

    return Series()


def _torch_llama(torch: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": IDS, "hidden_size": 16, "intermediate_size": 24, "max_position_embeddings": TIME}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, rms_norm_eps=1e-6, tie_word_embeddings=False))


#: Of Llama's modules, what our layers are called.
_LLAMA = (
    (r"model\.embed_tokens", "tokens"),
    (r"model\.layers\.(\d)\.input_layernorm", r"block\1/attention_norm"),
    (r"model\.layers\.(\d)\.post_attention_layernorm", r"block\1/hidden_norm"),
    (r"model\.layers\.(\d)\.self_attn\.q_proj", r"block\1/attention/query"),
    (r"model\.layers\.(\d)\.self_attn\.k_proj", r"block\1/attention/key"),
    (r"model\.layers\.(\d)\.self_attn\.v_proj", r"block\1/attention/value"),
    (r"model\.layers\.(\d)\.self_attn\.o_proj", r"block\1/attention/output"),
    (r"model\.layers\.(\d)\.mlp\.gate_proj", r"block\1/hidden/gate"),
    (r"model\.layers\.(\d)\.mlp\.up_proj", r"block\1/hidden/value"),
    (r"model\.layers\.(\d)\.mlp\.down_proj", r"block\1/output"),
    (r"model\.norm", "norm"),
    (r"lm_head", "head"),
)


@dataclass(frozen=True)
class Twin:
    """ours, theirs: the same net; batch: inputs and targets; layers: the names of ours by patterns of theirs."""

    ours: Callable[[], FeedForwardNet]
    theirs: Callable[[Any], Any]
    batch: Callable[[np.random.Generator], Batch]
    layers: tuple[tuple[str, str], ...] = ()

    def layer(self, module: str) -> str:
        """Our layer of a module."""
        return next(
            (re.sub(pattern, ours, module) for pattern, ours in self.layers if re.fullmatch(pattern, module)), module
        )

    def copy_base(self, theirs: Any, net: FeedForwardNet) -> None:
        """Give the net the values of the module without adapters."""
        values = {}
        for name, value in theirs.state_dict().items():
            module, _, last = name.rpartition(".")
            values[f"{self.layer(module)}/{last}"] = value.numpy()
        for name, tensor_ in net.parameters().items():
            if "lora" not in name:
                array = values[name if name in values else name.replace("gamma", "weight")]
                tensor_.copy_from_numpy(self.laid(array, name, tensor_.shape))

    def laid(self, array: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """An array of PyTorch's as ours lies."""
        turned = array.T if array.ndim == 2 and not name.startswith("tokens") else array
        return np.ascontiguousarray(turned).reshape(shape)

    def their_adapters(
        self, module: Any, shapes: Mapping[str, tuple[int, ...]], grads: bool = False
    ) -> dict[str, np.ndarray]:
        """The adapters of a module, or their gradients, by our names and in our layout."""
        found = {}
        for name, value in module.named_parameters():
            match = re.fullmatch(r"base_model\.model\.(.+)\.lora_([AB])\.default\.weight", name)
            if match is not None:
                ours = f"{self.layer(match[1])}/lora_{match[2].lower()}"
                array = (value.grad if grads else value.detach()).numpy()
                found[ours] = self.laid(array, ours, shapes[ours])
        return found


def draw_images(rng: np.random.Generator) -> Batch:
    """5 images of 4 classes."""
    return rng.standard_normal((5, 3, 9, 8)).astype("f"), rng.integers(0, CLASSES, 5)


TWINS = {
    "images": Twin(images, _torch_images, draw_images),
    "series": Twin(
        series, _torch_series, lambda rng: (rng.standard_normal((5, 3, TIME)).astype("f"), rng.integers(0, CLASSES, 5))
    ),
    "llama": Twin(
        llama, _torch_llama, lambda rng: (rng.integers(0, IDS, (3, TIME)), rng.integers(0, IDS, (3, TIME))), _LLAMA
    ),
}


def set_adapters(net: FeedForwardNet, seed: int = 1) -> None:
    """Gives the adapters values that are not zero."""
    rng = np.random.default_rng(seed)
    for name, value in net.parameters().items():
        if name.endswith(("lora_a", "lora_b")):
            value.copy_from_numpy((0.3 * rng.standard_normal(value.shape)).astype(value.dtype))


def predicted(net: FeedForwardNet, x: np.ndarray) -> np.ndarray:
    """The net's output."""
    return tensor.to_numpy(net.predict(x))
