"""An expression that is buffered, planned and run a thousand times: no net, no layers, only tensors and operations.

    pip install . && python examples/recorded_expression.py

While a device records, nothing runs and nothing is allocated: the operations are noted, those of the backward pass and
the updates too. The first run plans the memory of all that is made in between, proves the plan and binds it; each run
after that is a loop over kernel calls whose arguments are known.
"""

import time

import numpy as np

from singa_lite import autograd, device, optimizer, tensor

random = np.random.default_rng(0)
turn, radius = random.uniform(0, 3, 400), random.uniform(0, 1, 400)
angle = 2 * np.pi / 3 * turn + 3 * radius
points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype("f")
classes = turn.astype(int)  # the three arms of a spiral

cpu = device.cpu()
x, target = tensor.from_numpy(points, cpu), tensor.from_numpy(classes, cpu)
w0, b0, w1, b1 = (
    tensor.from_numpy(random.normal(0, 0.5, shape).astype("f"), cpu) for shape in ((5, 64), 64, (64, 3), 3)
)
for parameter in (w0, b0, w1, b1):
    parameter.stores_grad = True
sgd = optimizer.SGD(lr=0.3, momentum=0.9)


def expression():
    """The mean loss of all points, and how many are right; x, y, their squares and their product are what is seen."""
    seen = autograd.concat([x, x * x, x[:, 0:1] * x[:, 1:2]], axis=1)
    hidden = autograd.maximum(seen @ w0 + b0, 0.0)
    scores = hidden @ w1 + b1
    loss = autograd.reduce_mean(autograd.softmax_cross_entropy_values(scores, target))
    one_hot = np.eye(3, dtype="f")[classes]
    right = autograd.equal(autograd.reduce_sum(scores * one_hot, 1), scores.max(1))
    for parameter, gradient in autograd.backward(loss):
        sgd.update(None, parameter, gradient)
    return loss.detach(), autograd.reduce_mean(autograd.cast(right, "float32"))


with cpu.recording() as graph:
    loss, right = expression()
print(f"recorded: {len(graph.instructions)} operations, nothing has run")

start = time.perf_counter()
for run in range(1000):
    graph.run()
    if run in (0, 999):
        print(f"run {run + 1}: loss {float(loss):.4f}, {float(right):.1%} right")
recorded = time.perf_counter() - start

start = time.perf_counter()
for _ in range(100):
    expression()
eager = 10 * (time.perf_counter() - start)
plan = graph.memory_plan
print(f"a thousand runs: {recorded:.2f} s, as planned; {eager:.2f} s, each operation as it comes")
print(f"memory of all that is made in between: {plan.arena_bytes} bytes in one arena, {plan.unshared_bytes} unshared")
