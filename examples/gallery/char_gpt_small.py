"""A character-level GPT in a few seconds, on the manual in docs/; examples/char_gpt.py is a longer one.

    pip install ".[examples,onednn]" && python examples/gallery/char_gpt_small.py

400 steps bring the held-out end of the text below 3.1 bits a character; single characters' counts give 4.6.

Porting: TransformerBlock(causal=True) is attention, hidden layer, norms and residual connections; no mask is passed.
Scores are (n, time, ids), so the loss takes axis=-1. generate() keeps keys and values, and takes a prompt of ids.
"""

from math import log
from pathlib import Path

import numpy as np
from bundled import planned_kib, show

from singa_lite import FeedForwardNet, layers, loss, optimizer, schedule

TIME, FEATURES, BATCH = 64, 64, 16


def read() -> tuple[np.ndarray, list[str]]:
    """(ids of the manual's characters, the characters)."""
    folder = Path(__file__).resolve().parents[2] / "docs"
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md")))
    characters, ids = np.unique(list(text), return_inverse=True)
    return ids, characters.tolist()


def build(characters: int, steps: int) -> FeedForwardNet:
    """Two blocks."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), seed=0)
    net.add(layers.Embedding(None, characters, FEATURES, input_sample_shape=(TIME,)))
    for _ in range(2):
        net.add(layers.TransformerBlock(heads=4, causal=True, rotary=True))
    net.add(layers.LayerNormalization())
    net.add(layers.Dense(characters))
    rate = schedule.CosineWithWarmup(4e-3, total_steps=steps, warmup_steps=steps // 10)
    net.compile(optimizer.AdamW(lr=rate), clip_global_norm=1.0)
    return net


def main(steps: int = 400, write: int = 50) -> dict[str, float]:
    """Train, measure, and write on."""
    ids, characters = read()
    held = len(ids) // 20
    counts = np.bincount(ids[:-held], minlength=len(characters)) + 1
    starts = np.random.default_rng(0).integers(0, len(ids) - held - TIME, BATCH * steps)
    x, y = (ids[starts[:, None] + np.arange(TIME) + later] for later in (0, 1))
    net = build(len(characters), steps)
    net.fit(x, y, batch_size=BATCH, verbose=False)
    ends = np.arange(len(ids) - held, len(ids) - TIME, TIME)
    x, y = (ids[ends[:, None] + np.arange(TIME) + later] for later in (0, 1))
    prompt = np.array([characters.index(character) for character in "The net "])
    written = net.generate(prompt, write, temperature=0.7, top_k=10)
    print("".join(characters[number] for number in written))
    return {
        "bits a character": net.evaluate(x, y)[0] / log(2),
        "by counts": -np.log2(counts / counts.sum())[y].mean(),
        "characters written": len(written) - len(prompt),
        "planned KiB": planned_kib(net, BATCH),
    }


if __name__ == "__main__":
    show(main())
