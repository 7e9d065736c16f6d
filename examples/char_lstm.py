"""An LSTM that writes Python, character by character: streams of text, truncated backpropagation, samples.

    pip install ".[examples,onednn]" && python examples/char_lstm.py

Trains on the sources of Python's standard library for about two minutes on two cores, and compares bits per character
on modules that were held out with an order-3 model of the same text (examples/python_text.py says which). Writes
char_lstm.npz (the trained net) into the folder named by --out, the present one by default.
"""

import argparse
import time
from math import log
from pathlib import Path

from python_text import CHARACTERS, ids, prepared, text

from singa_lite import FeedForwardNet, device, layers, loss, optimizer, schedule

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--steps", type=int, default=1200)
arguments.add_argument("--hidden", type=int, default=256)
arguments.add_argument("--characters", type=int, help="of the held-out text; default all")
arguments.add_argument("--out", type=Path, default=Path("."))
options = arguments.parse_args()
STREAMS, TIME, LONGEST, SEEN = 32, 64, 256, 128

# The text is cut into STREAMS pieces that are read side by side, TIME characters a step. The LSTM keeps its state from
# step to step (stateful), so each stream is one long text to it; derivatives go back through one step alone.
training, x, y, bound = prepared(LONGEST, SEEN, options.characters)
length = (len(training) - 1) // STREAMS
streams = [training[later : later + STREAMS * length].reshape(STREAMS, length) for later in (0, 1)]

# Batches are of TIME steps; held-out windows are longer, and input_sample_shape is the longest that the net takes.
device.default().set_random_seed(0)
net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1, ignore_index=-1))
net.add(layers.Embedding("characters", len(CHARACTERS), 64, input_sample_shape=(LONGEST,)))
lstm = net.add(layers.LSTM("lstm", options.hidden, return_sequences=True, stateful=True, batch_size=STREAMS))
net.add(layers.Dense("scores", len(CHARACTERS)))
net.summary()
rate = schedule.CosineWithWarmup(6e-3, total_steps=options.steps, warmup_steps=options.steps // 20, final=2e-4)
net.compile(optimizer.Adam(lr=rate), clip_global_norm=1.0)

start, place, mean = time.perf_counter(), 0, 0.0
for step in range(1, options.steps + 1):
    if place + TIME > length:  # the streams are read again from their beginnings
        place = 0
        lstm.reset_states()
    piece = slice(place, place + TIME)
    value, _ = net.train_one_batch(streams[0][:, piece], streams[1][:, piece])
    place += TIME
    mean += (float(value) / log(2) - mean) * max(0.02, 1 / step)
    if step % max(options.steps // 12, 1) == 0 or step == options.steps:
        print(f"step {step:5}: {mean:.3f} bits a character, {time.perf_counter() - start:.0f} s")

# Evaluation begins each window with a state of 0, and leaves that of the streams alone.
bits = net.evaluate(x, y, 64)[0] / log(2)
print(f"held-out modules: {bits:.3f} bits a character, {bound:.3f} by the order-3 model")
print(f"training takes {net.memory_plan.total_bytes / 2**20:.1f} MiB in all, as planned")
options.out.mkdir(parents=True, exist_ok=True)
net.save(options.out / "char_lstm.npz")

# What it writes: each character is drawn by its probability, a little sharpened, and read as the next input.
sample = net.generate(ids("def read_lines(path):\n"), 300, temperature=0.7, seed=1)
print(f"--- a sample\n{text(sample)}\n---")
print(f"wrote {options.out / 'char_lstm.npz'}")
