"""A small GPT that writes Python, character by character: AdamW, cosine with warm-up, clipping, and a plan beforehand.

    pip install ".[examples,onednn]" && python examples/char_gpt.py

Trains four blocks on the sources of Python's standard library for about two minutes on two cores, and compares bits per
character on modules that were held out with an order-3 model of the same text (examples/python_text.py says which).
Writes char_gpt.png (the loss), char_gpt.html (the plan of the step's memory, with all that lies in it) and
char_gpt.safetensors (the net) into the folder named by --out, the present one by default.
"""

import argparse
import time
from math import log
from pathlib import Path

import matplotlib
import numpy as np
from python_text import CHARACTERS, ids, prepared, text

from singa_lite import FeedForwardNet, device, initializer, layers, loss, optimizer, schedule

matplotlib.use("agg")  # draw into files; no screen is needed
import matplotlib.pyplot as plt

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--steps", type=int, default=2400)
arguments.add_argument("--characters", type=int, help="of the held-out text; default all")
arguments.add_argument("--out", type=Path, default=Path("."))
options = arguments.parse_args()
BATCH, TIME, SEEN, FEATURES = 4, 128, 64, 128

training, x, y, bound = prepared(TIME, SEEN, options.characters)
device.default().set_random_seed(0)
net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1, ignore_index=-1))
wide, narrow, small = (initializer.Normal(std=std) for std in (0.7, 0.04, 0.02))
net.add(layers.Embedding("characters", len(CHARACTERS), FEATURES, weight_init=wide, input_sample_shape=(TIME,)))
for number in range(4):
    net.add(layers.TransformerBlock(f"block{number}", heads=4, causal=True, rotary=True, weight_init=narrow))
net.add(layers.LayerNormalization("norm"))
net.add(layers.Dense("scores", len(CHARACTERS), use_bias=False, weight_init=small))
rate = schedule.CosineWithWarmup(3e-3, total_steps=options.steps, warmup_steps=options.steps // 20, final=1e-4)
net.compile(optimizer.AdamW(lr=rate, beta_2=0.98, weight_decay=0.1), clip_global_norm=1.0)
net.summary()

# What training takes is known before it begins.
options.out.mkdir(parents=True, exist_ok=True)
plan = net.plan_batch(BATCH)
plan.to_html(options.out / "char_gpt.html")
print(f"training takes {plan.total_bytes / 2**20:.1f} MiB in all, as planned")

random, losses, start = np.random.default_rng(0), [], time.perf_counter()
for step in range(1, options.steps + 1):
    begins = random.integers(0, len(training) - TIME, BATCH)
    batch, targets = (training[begins[:, None] + np.arange(TIME) + later] for later in (0, 1))
    losses.append(float(net.train_one_batch(batch, targets)[0]) / log(2))
    if step % max(options.steps // 12, 1) == 0 or step == options.steps:
        seconds = time.perf_counter() - start
        print(f"step {step:5}: {np.mean(losses[-100:]):.3f} bits a character, {seconds:.0f} s")
print(f"the pool gave out {net.device.pool.high_water / 2**20:.1f} MiB at most")

bits = net.evaluate(x, y, 32)[0] / log(2)
print(f"held-out modules: {bits:.3f} bits a character, {bound:.3f} by the order-3 model")
net.save(options.out / "char_gpt.safetensors", weights_only=True)

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.plot(range(1, len(losses) + 1), losses, linewidth=0.4, alpha=0.5, label="training batches")
axes.axhline(bits, color="#009E73", label=f"held-out modules: {bits:.2f}")
axes.axhline(bound, color="#D55E00", linestyle="dotted", label=f"order-3 model on these: {bound:.2f}")
axes.set(xlabel="step", ylabel="bits a character", title="A small GPT on Python's standard library", ylim=(1, 5))
axes.grid(alpha=0.3)
axes.legend()
figure.savefig(options.out / "char_gpt.png", dpi=120)

# What it writes: each character is one of the 20 most likely; keys and values of those before it are kept.
prompts = np.array([ids(f"    def {name}(self, path):\n        ") for name in ("read", "copy", "open")])
for sample in net.generate(prompts, TIME - prompts.shape[1], temperature=0.7, top_k=20, seed=1):
    print(f"--- a sample\n{text(sample)}")
print(f"wrote {', '.join(str(options.out / f'char_gpt.{kind}') for kind in ('png', 'html', 'safetensors'))}")
