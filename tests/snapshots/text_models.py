"""GPT-2 and BERT in NumPy, float64, over arrays named and laid out as Hugging Face's transformers has them."""

from __future__ import annotations

from math import erf

import numpy as np

Arrays = dict[str, np.ndarray]

VOCABULARY, POSITIONS, FEATURES, HEADS, BLOCKS, HIDDEN, TYPES = 31, 11, 12, 3, 2, 20, 2


def _drawn(shapes: dict[str, tuple[int, ...]], seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0.5 if "norm" in name.lower() else 0, 0.4, s).astype("f4") for name, s in shapes.items()}


def gpt2_arrays(seed: int = 0) -> Arrays:
    """As `GPT2Model` saves them; the blocks' products are (in, out)."""
    f, shapes = FEATURES, {"wte.weight": (VOCABULARY, FEATURES), "wpe.weight": (POSITIONS, FEATURES)}
    for number in range(BLOCKS):
        for name, shape in {"attn.c_attn": (f, 3 * f), "attn.c_proj": (f, f), "mlp.c_fc": (f, 4 * f)}.items():
            shapes |= {f"h.{number}.{name}.weight": shape, f"h.{number}.{name}.bias": shape[1:]}
        shapes |= {f"h.{number}.mlp.c_proj.weight": (4 * f, f), f"h.{number}.mlp.c_proj.bias": (f,)}
        shapes |= {f"h.{number}.{norm}.{name}": (f,) for norm in ("ln_1", "ln_2") for name in ("weight", "bias")}
    return _drawn(shapes | {"ln_f.weight": (f,), "ln_f.bias": (f,)}, seed)


def bert_arrays(seed: int = 0) -> Arrays:
    """As `BertModel` saves them; all products are (out, in)."""
    f = FEATURES
    sizes = {"word": VOCABULARY, "position": POSITIONS, "token_type": TYPES}
    shapes: dict[str, tuple[int, ...]] = {f"embeddings.{kind}_embeddings.weight": (n, f) for kind, n in sizes.items()}
    norms, linears = ["embeddings.LayerNorm"], {"pooler.dense": (f, f)}
    for number in range(BLOCKS):
        at = f"encoder.layer.{number}"
        linears |= {f"{at}.attention.self.{name}": (f, f) for name in ("query", "key", "value")}
        linears |= {f"{at}.attention.output.dense": (f, f)}
        linears |= {f"{at}.intermediate.dense": (HIDDEN, f), f"{at}.output.dense": (f, HIDDEN)}
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
    shapes |= {f"{norm}.{name}": (f,) for norm in norms for name in ("weight", "bias")}
    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return _drawn(shapes, seed)


def _norm(x: np.ndarray, arrays: Arrays, name: str, epsilon: float) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def _linear(x: np.ndarray, arrays: Arrays, name: str) -> np.ndarray:
    return x @ arrays[f"{name}.weight"].T + arrays[f"{name}.bias"]


def _conv1d(x: np.ndarray, arrays: Arrays, name: str) -> np.ndarray:
    return x @ arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """q, k, v (n, time, features); seen: which keys, (n or 1, time or 1, time)."""
    n, time, features = q.shape
    q, k, v = (x.reshape(n, time, HEADS, -1).transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = np.where(seen[:, None], q @ k.swapaxes(2, 3) / np.sqrt(features / HEADS), -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(n, time, features)


def gpt2_scores(arrays: Arrays, ids: np.ndarray, head: np.ndarray | None = None) -> np.ndarray:
    """ids (n, time) -> (n, time, vocabulary). head: (vocabulary, features), the embedding where None."""
    wide = {name: array.astype(float) for name, array in arrays.items()}
    x = wide["wte.weight"][ids] + wide["wpe.weight"][: ids.shape[1]]
    seen = np.tri(ids.shape[1], dtype=bool)[None]
    for number in range(BLOCKS):
        at = f"h.{number}"
        qkv = _conv1d(_norm(x, wide, f"{at}.ln_1", 1e-5), wide, f"{at}.attn.c_attn")
        x = x + _conv1d(_attended(*np.split(qkv, 3, -1), seen), wide, f"{at}.attn.c_proj")
        y = _conv1d(_norm(x, wide, f"{at}.ln_2", 1e-5), wide, f"{at}.mlp.c_fc")
        y = y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))) / 2
        x = x + _conv1d(y, wide, f"{at}.mlp.c_proj")
    return _norm(x, wide, "ln_f", 1e-5) @ (wide["wte.weight"] if head is None else head.astype(float)).T


def bert_pooled(arrays: Arrays, ids: np.ndarray, types: np.ndarray) -> np.ndarray:
    """ids, types (n, time) -> (n, features); id 0 is padding."""
    wide = {name: array.astype(float) for name, array in arrays.items()}
    word, kind, place = (wide[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type", "position"))
    x = _norm(word[ids] + kind[types] + place[: ids.shape[1]], wide, "embeddings.LayerNorm", 1e-12)
    for number in range(BLOCKS):
        at = f"encoder.layer.{number}"
        q, k, v = (_linear(x, wide, f"{at}.attention.self.{name}") for name in ("query", "key", "value"))
        y = _linear(_attended(q, k, v, (ids != 0)[:, None]), wide, f"{at}.attention.output.dense")
        x = _norm(x + y, wide, f"{at}.attention.output.LayerNorm", 1e-12)
        y = _linear(x, wide, f"{at}.intermediate.dense")
        y = _linear(y * (1 + np.vectorize(erf)(y / np.sqrt(2))) / 2, wide, f"{at}.output.dense")
        x = _norm(x + y, wide, f"{at}.output.LayerNorm", 1e-12)
    return np.tanh(_linear(x[:, 0], wide, "pooler.dense"))
