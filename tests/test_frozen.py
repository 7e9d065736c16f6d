"""Nets over quantised weights: what they compute and train, what their plans count, and what is refused."""

from __future__ import annotations

import mmap
import pickle
import re
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from singa_lite import FeedForwardNet, autograd, device, layers, loss, optimizer, tensor
from singa_lite.errors import GraphError, ShapeError
from singa_lite.kernels.interface.quantized import FORMATS

#: Ids, features, and units of the net below.
IDS, WIDTH, HIDDEN = 37, 64, 96
QUANTIZED = {"tokens": ("q8_0", IDS, WIDTH), "up": ("q4_1", HIDDEN, WIDTH), "down": ("q4_0", WIDTH, HIDDEN)}


def blocks_of(format: str, rows: int, columns: int) -> np.ndarray:
    """Bytes of which any two are a float16 from 2**-7 to 2**-5 in size."""
    rng = np.random.default_rng(rows)
    made = rng.integers(0, 256, (rows, FORMATS[format].row_bytes(columns)), np.uint8)
    halves = made.reshape(rows, -1, FORMATS[format].nbytes)
    halves[..., 1:4:2] = halves[..., 1:4:2] & 0x83 | 0x20
    return made


BLOCKS = {name: blocks_of(*form) for name, form in QUANTIZED.items()}


def numbers(name: str, dtype: str = "float32") -> np.ndarray:
    """The numbers of a weight."""
    blocks = tensor.frozen(BLOCKS[name], device.cpu(kernels="numpy"))
    return tensor.to_numpy(autograd.dequantize(blocks, format=QUANTIZED[name][0], dtype=dtype))


def made(quantized: bool = True, mapped: object = None, **options: object) -> FeedForwardNet:
    """A net for ids whose large weights are quantised, or frozen parameters with the same numbers."""
    formats = {name: form[0] if quantized else "float" for name, form in QUANTIZED.items()}
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), seed=3, **options)
    tokens = net.add(layers.Embedding("tokens", IDS, WIDTH, weight_format=formats["tokens"], input_sample_shape=(5,)))
    net.add(layers.RMSNormalization("norm"))
    net.add(layers.Dense("up", HIDDEN, activation="silu", weight_format=formats["up"]))
    net.add(layers.Dense("small", HIDDEN))
    net.add(layers.Dense("down", WIDTH, use_bias=False, weight_format=formats["down"]))
    net.add(layers.TiedDense("head", tokens))
    for name in QUANTIZED if not net.device.is_abstract else ():
        if quantized:
            net.layers[name].set_frozen("weight", BLOCKS[name] if mapped is None else mapped[name])
        else:
            weight = net.layers[name].parameters["weight"]
            weight.copy_from_numpy(numbers(name) if name == "tokens" else numbers(name).T)
            weight.stores_grad = False
    return net


def batches(count: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [(rng.integers(0, IDS, (7, 5)), rng.integers(0, IDS, (7, 5))) for _ in range(count)]


def losses(net: FeedForwardNet, **options: object) -> list[float]:
    """Of some steps."""
    net.compile(optimizer.AdamW(lr=1e-2), **options)
    return [float(net.train_one_batch(x, y)[0]) for x, y in batches()]


@pytest.fixture
def mapped(tmp_path):
    """The same bytes in a mapped file each."""
    for name, blocks in BLOCKS.items():
        blocks.tofile(tmp_path / name)
    return {name: np.memmap(tmp_path / name, np.uint8, "r", shape=b.shape) for name, b in BLOCKS.items()}


def test_pages_that_are_let_go_come_back(mapped):
    """Of a mapped file; nothing happens to an array in memory."""
    for name, file in mapped.items():
        for array in (np.asarray(file)[1:], BLOCKS[name][1:]):
            tensor.release_pages(array)
            np.testing.assert_array_equal(array, BLOCKS[name][1:])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="this system has no /proc/self/smaps")
def test_pages_set_apart_are_not_read_with_their_neighbours(tmp_path):
    """The system maps 16 pages at a time."""
    size, path, resident = mmap.PAGESIZE, tmp_path / "file", []
    np.arange(64, dtype=np.uint8).repeat(size).tofile(path)
    file = np.asarray(np.memmap(path, np.uint8, "r"))
    for apart in (False, True):
        if apart:
            tensor.set_pages_apart(file[20 * size - 100 : 40 * size + 100])
        tensor.release_pages(file)
        np.testing.assert_array_equal(file[: 20 * size : size], range(20))
        np.testing.assert_array_equal(file[40 * size :: size], range(40, 64))
        spans = re.findall(rf"{path}\nSize:.*\n(?:\w+PageSize:.*\n)*Rss: +(\d+)", Path("/proc/self/smaps").read_text())
        resident.append(sum(map(int, spans)) * 1024)
    assert resident[0] > resident[1] == 44 * size
    np.testing.assert_array_equal(file[::size], range(64))
    tensor.set_pages_apart(BLOCKS["up"])  # in memory


def test_it_trains_as_the_net_with_the_same_numbers():
    """All others train, and what is quantised has no parameter."""
    quantized, plain = made(), made(quantized=False)
    assert sorted(quantized.parameters()) == ["norm/gamma", "small/bias", "small/weight", "up/bias"]
    np.testing.assert_allclose(losses(quantized), losses(plain), rtol=2e-5)
    for name, value in quantized.parameters().items():
        wanted = tensor.to_numpy(plain.parameters()[name])
        np.testing.assert_allclose(tensor.to_numpy(value), wanted, rtol=0, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("kernels", ["numpy", "auto"])
def test_recorded_and_eager_steps_have_equal_bits(kernels, monkeypatch, mapped):
    on = device.new_cpu(kernels=kernels)
    wanted = losses(made(device=on), graph=False)
    assert losses(made(device=on)) == wanted
    assert losses(made(device=on, mapped=mapped)) == wanted
    monkeypatch.setenv("SINGA_LITE_PLAN", "off")
    assert losses(made(device=on)) == wanted


def test_a_budget_counts_frozen_bytes_and_gives_equal_bits(mapped):
    net = made(mapped=mapped)
    wanted = losses(net)
    plan = net.memory_plan
    nbytes = sum(blocks.nbytes for blocks in BLOCKS.values())
    assert plan.by_role["frozen, mapped"] == plan.by_class["frozen, mapped"] == nbytes
    assert not plan.by_role["frozen"]
    assert "frozen, mapped" in plan.summary()
    assert plan.total_bytes > nbytes + plan.arena_bytes
    budget = plan.total_bytes - 4000
    tight = made(mapped=mapped)
    assert losses(tight, memory_budget=budget) == wanted
    assert tight.memory_plan.total_bytes <= budget


def test_a_copy_of_mapped_bytes_is_in_memory(mapped):
    net = made(mapped={**mapped, "up": mapped["up"].copy()})
    net.compile(optimizer.SGD(lr=0.1))
    roles = net.plan_batch(7).by_role
    assert roles["frozen"] == BLOCKS["up"].nbytes
    assert roles["frozen, mapped"] == BLOCKS["tokens"].nbytes + BLOCKS["down"].nbytes


def test_a_plan_wants_no_bytes():
    real, abstract = made(), made(device=device.abstract())
    plans = []
    for net in (real, abstract):
        net.compile(optimizer.AdamW(lr=1e-2))
        plans.append(net.plan_batch(7))
    assert plans[0].total_bytes == plans[1].total_bytes
    assert plans[1].by_role["frozen"] == sum(blocks.nbytes for blocks in BLOCKS.values())


def test_bfloat16_gives_nearly_the_same():
    wanted = losses(made())
    np.testing.assert_allclose(losses(made(), precision="bfloat16"), wanted, rtol=0.03)


def test_other_bytes_are_taken_by_the_next_step():
    """A step that was recorded with the first ones is recorded again."""
    (x, y), found = batches(1)[0], []
    for early in (False, True):
        net = made()
        net.compile(optimizer.SGD(lr=0.0))
        found += [] if early else [float(net.train_one_batch(x, y)[0])]
        net.layers["up"].set_frozen("weight", BLOCKS["up"][::-1].copy())
        found += [float(net.train_one_batch(x, y)[0])]
    assert found[0] != found[1] == found[2]


def test_layers_that_share_and_copies_have_the_same_bytes():
    net = made()
    assert net.layers["head"].frozen["weight"] is net.layers["tokens"].frozen["weight"]
    assert list(net.frozen()) == ["tokens/weight", "up/weight", "down/weight"]
    copied = deepcopy(net.layers["up"].frozen["weight"])
    assert np.shares_memory(copied.array, BLOCKS["up"])
    moved = made()
    moved.to_device(device.new_cpu(kernels="numpy"))
    assert np.shares_memory(moved.layers["head"].frozen["weight"].array, BLOCKS["tokens"])
    x, _ = batches(1)[0]
    np.testing.assert_allclose(moved.predict(x), net.predict(x), rtol=1e-4, atol=1e-5)


def test_a_block_of_layers_takes_formats_by_name():
    formats = {"attention": {"query": "q4_1", "value": "q8_0"}, "hidden": "q4_1", "output": "q4_0"}
    block = layers.TransformerBlock(
        "b", 2, norm="rms", activation="swiglu", weight_format=formats, input_sample_shape=(3, 32)
    )
    net = FeedForwardNet(device=device.abstract())
    net.add(block)
    assert {name: t.shape for name, t in net.frozen().items()} == {
        "b/attention/query/weight": (32, 20),
        "b/attention/value/weight": (32, 34),
        "b/hidden/gate/weight": (128, 20),
        "b/hidden/value/weight": (128, 20),
        "b/output/weight": (32, 4 * 18),
    }
    assert "b/attention/key/weight" in net.parameters()


def test_a_summary_shows_formats_and_bytes():
    text = made().summary()
    assert "tokens (Embedding, q8_0)" in text
    assert "up (Dense, q4_1, silu)" in text
    assert f"frozen: {sum(blocks.nbytes for blocks in BLOCKS.values()):,} bytes" in text


def test_bytes_that_are_missing_are_named():
    net = FeedForwardNet(loss.SquaredError())
    net.add(layers.Dense("d", 3, weight_format="q4_1", input_sample_shape=(32,)))
    net.compile(optimizer.SGD())
    with pytest.raises(GraphError, match=r"'d'.*'weight'.*set_frozen"):
        net.train_one_batch(np.ones((2, 32), "f"), np.ones((2, 3), "f"))
    with pytest.raises(GraphError, match=r"'d'.*'weight'"):
        net.predict(np.ones((2, 32), "f"))


ROWS = {
    "another format": (lambda net: layers.Dense("d", 3, weight_format="q3_k"), ValueError, "'q3_k'"),
    "an unknown part": (
        lambda net: layers.SwiGLU("g", 3, weight_format={"gates": "q4_1"}),
        ValueError,
        "gate, value.*'gates'",
    ),
    "a format in a part": (
        lambda net: layers.SwiGLU("g", 3, weight_format={"gate": {"x": "q4_1"}}),
        ValueError,
        "weight_format",
    ),
    "columns of no blocks": (
        lambda net: FeedForwardNet().add(layers.Dense("d", 3, weight_format="q4_1", input_sample_shape=(33,))),
        ShapeError,
        "'d'.*'q4_1'.*32.*33",
    ),
    "another shape": (
        lambda net: net.layers["up"].set_frozen("weight", BLOCKS["down"]),
        ShapeError,
        r"'up'.*\(96, 40\).*\(64, 54\)",
    ),
    "floats": (
        lambda net: net.layers["up"].set_frozen("weight", np.ones((96, 40), "f")),
        TypeError,
        "'up'.*uint8.*float32",
    ),
    "no array": (lambda net: net.layers["up"].set_frozen("weight", [1, 2]), TypeError, "uint8.*list"),
    "gaps": (
        lambda net: net.layers["up"].set_frozen("weight", np.ones((96, 80), "u1")[:, ::2]),
        ShapeError,
        "'up'.*strides",
    ),
    "an unknown name": (lambda net: net.layers["up"].set_frozen("bias", BLOCKS["up"]), KeyError, "'bias'"),
    "new values": (
        lambda net: net.layers["up"].frozen["weight"].copy_from_numpy(BLOCKS["up"]),
        GraphError,
        "up/weight.*frozen",
    ),
    "x of other features": (
        lambda net: autograd.quantized_linear(tensor.ones((2, 32)), net.layers["up"].frozen["weight"], format="q4_1"),
        ShapeError,
        r"64.*\(2, 32\)",
    ),
    "another number of bytes": (
        lambda net: autograd.dequantize(net.layers["up"].frozen["weight"], format="q8_0"),
        ShapeError,
        r"34.*'q8_0'.*\(96, 40\)",
    ),
    "numbers for blocks": (lambda net: autograd.dequantize(tensor.ones((2, 40)), format="q4_1"), TypeError, "float32"),
    "no format": (lambda net: autograd.dequantize(tensor.ones((2, 40)), format="q9"), ValueError, "'q9'"),
    "ids that are no integers": (
        lambda net: autograd.quantized_embedding(tensor.ones((2,)), net.layers["up"].frozen["weight"], format="q4_1"),
        TypeError,
        "float32",
    ),
    "an id that names no row": (
        lambda net: autograd.quantized_embedding(
            tensor.as_tensor([3, 96]), net.layers["up"].frozen["weight"], format="q4_1"
        ),
        IndexError,
        "96",
    ),
}


@pytest.mark.parametrize("call, error, match", ROWS.values(), ids=ROWS)
def test_what_does_not_fit_is_refused(call, error, match):
    net = made()
    with pytest.raises(error, match=match):
        call(net)
    np.testing.assert_array_equal(net.layers["up"].frozen["weight"].array, BLOCKS["up"])


def test_a_head_over_quantised_ids_is_cut_into_tiles(monkeypatch):
    """Scores of some rows exist at a time. The derivative is rounded otherwise, as products have fewer rows."""
    ids, time, found = 9001, 128, {}
    rng = np.random.default_rng(7)
    x, y = rng.integers(0, ids, (2, 3, time))
    for fuse in ("on", "off"):
        monkeypatch.setenv("SINGA_LITE_FUSE", fuse)
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), seed=2)
        table = net.add(layers.Embedding("t", ids, 32, weight_format="q8_0", input_sample_shape=(time,)))
        net.add(layers.RMSNormalization("norm"))
        net.add(layers.TiedDense("head", table))
        table.set_frozen("weight", blocks_of("q8_0", ids, 32))
        net.compile(optimizer.SGD(lr=0.1))
        found[fuse] = [float(net.train_one_batch(x, y)[0]) for _ in range(3)]
        assert (net.memory_plan.arena_bytes < 3 * time * ids * 4) == (fuse == "on")
    np.testing.assert_allclose(found["on"], found["off"], rtol=1e-6)


@pytest.mark.parametrize("frozen", [True, False])
def test_tiles_of_very_many_ids_have_half_of_the_rows_where_no_weight_trains(frozen):
    """128 rows of 70,000 ids are 34 MiB. A weight that trains would have its gradient added up twice as often."""
    ids, time = 70_000, 256
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), device=device.abstract("onednn"))
    table = net.add(layers.Embedding("t", ids, 32, input_sample_shape=(time,)))
    net.add(layers.RMSNormalization("norm"))
    net.add(layers.TiedDense("head", table))
    table.trainable = not frozen
    net.compile(optimizer.SGD(lr=0.1))
    scores = [row.nbytes for row in net.plan_batch(1).rows if "softmax_cross_entropy" in row.name]
    assert max(scores) == (64 if frozen else 128) * ids * 4


@pytest.mark.parametrize("move", [lambda net: net, deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_float_weights_that_do_not_train_are_frozen_in_plans(move):
    """Also those of a net's copy; a prediction writes none, and those that would train stay parameters."""
    net = FeedForwardNet(loss.MeanSquaredError(), device=device.new_cpu())
    net.add(layers.Dense("hidden", 3, input_sample_shape=(5,)))
    net.add(layers.Dense("scores", 2))
    net.layers["hidden"].trainable = False
    net = move(net)
    net.compile(optimizer.SGD(0.1))
    hidden, scores = 4 * (5 * 3 + 3), 4 * (3 * 2 + 2)
    for training in (True, False):
        roles = net.plan_batch(4, training).by_role
        assert (roles["frozen"], roles["parameter"]) == (hidden, scores)
    assert net.plan_batch(4).by_class["inputs"] == 4 * (4 * 5 + 4 * 2) + 8  # the batch and the rate
    assert "of weights that do not train" in net.plan_batch(4).summary()
    net.layers["hidden"].trainable = True
    assert net.plan_batch(4).by_role["frozen"] == 0
