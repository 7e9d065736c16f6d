"""Adapters of low rank: what trains, copies and files of nets with them, checkpoints over their base, memory."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_lite
from adapter_nets import TIME, draw_images, images, llama, predicted, series, set_adapters
from misuse import assert_all_refused, row
from nets import all_bits, state_of
from resume_run import Kill, Killed
from singa_lite import (
    FeedForwardNet,
    GraphError,
    SnapshotError,
    autograd,
    device,
    layers,
    loss,
    models,
    optimizer,
    tensor,
)
from singa_lite.snapshots import Checkpoint, latest

X, Y = draw_images(np.random.default_rng(4))


def adapted(targets: Any = "all", dropout: float = 0.0, **options: Any) -> FeedForwardNet:
    """Images, with adapters that are not zero."""
    net = images(**options)
    net.add_lora(3, 5.0, targets, dropout)
    set_adapters(net)
    return net


def trained(steps: int = 3, **options: Any) -> FeedForwardNet:
    net = adapted(**options)
    net.compile(optimizer.Adam(0.01))
    for _ in range(steps):
        net.train_one_batch(X, Y)
    return net


# --- what trains ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [True, False])
def test_adapters_alone_train(graph):
    net = images()
    wanted = predicted(net, X)
    before = all_bits(net.parameters())
    net.add_lora(3, targets="all")
    np.testing.assert_array_equal(predicted(net, X), wanted)
    net.compile(optimizer.Adam(0.01), graph=graph)
    for _ in range(3):
        net.train_one_batch(X, Y)
    after = all_bits(net.parameters())
    assert {name: after[name] for name in before} == before
    moved = {name for name in after.keys() - before.keys() if np.any(tensor.to_numpy(net.parameters()[name]))}
    assert moved == {f"{name}/lora_{which}" for name in ("first", "point", "hidden", "scores") for which in "ab"}
    assert net.optimizer.state.keys() == moved


def test_first_values_are_those_of_peft():
    """lora_a uniform within 1 / sqrt(inputs), lora_b zero."""
    net = FeedForwardNet(seed=1)
    net.add(layers.Conv2D("conv", 40, 3, input_sample_shape=(30, 8, 8)))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 50))
    net.add_lora(20, targets="all")
    for name, inputs in {"conv": 270, "dense": 2560}.items():
        drawn = tensor.to_numpy(net.parameters()[f"{name}/lora_a"])
        bound = inputs**-0.5
        assert np.abs(drawn).max() == pytest.approx(bound, rel=0.01) and np.abs(drawn).max() <= bound
        assert drawn.std() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert not np.any(tensor.to_numpy(net.parameters()[f"{name}/lora_b"]))


TARGETS: dict[str, tuple[Callable[[], FeedForwardNet], Any, list[str]]] = {
    "matrices": (images, "all-linear", ["hidden", "scores"]),
    "a convolution": (images, "first", ["first"]),
    "names and layers": (images, ["hidden", "point"], ["point", "hidden"]),
    "ends of paths": (llama, ["query", "output"], [
        "block0/attention/query", "block0/attention/output", "block0/output",
        "block1/attention/query", "block1/attention/output", "block1/output",
    ]),
    "a path": (llama, "block1/hidden/gate", ["block1/hidden/gate"]),
    "no head of ids": (llama, "all-linear", [
        f"block{n}/{name}" for n in range(2)
        for name in ("attention/query", "attention/key", "attention/value", "attention/output",
                     "hidden/gate", "hidden/value", "output")
    ]),
    "a head of ids": (llama, ["head"], ["head"]),
}  # fmt: skip


@pytest.mark.parametrize(("make", "targets", "wanted"), TARGETS.values(), ids=TARGETS)
def test_targets(make, targets, wanted):
    net = make()
    assert net.add_lora(2, targets=targets) == wanted
    trains = [name for name, value in net.parameters().items() if value.stores_grad]
    assert trains == [f"{path}/lora_{which}" for path in wanted for which in "ab"]


def test_a_layer_may_train_beside_adapters(tmp_path):
    net = adapted(["hidden"])
    net.layers["scores"].trainable = True
    net.compile(optimizer.Adam(0.01))
    net.train_one_batch(X, Y)
    assert set(net.optimizer.state) == {"hidden/lora_a", "hidden/lora_b", "scores/weight", "scores/bias"}
    Checkpointed(tmp_path).fit(net)
    names = set(json_of(latest(tmp_path)))
    assert {"parameters/scores/weight", "parameters/hidden/lora_a"} <= names
    assert "parameters/hidden/weight" not in names


def test_layers_that_share_parameters_share_the_adapter():
    net = FeedForwardNet("mse", seed=1)
    net.add(layers.Dense("one", 5, input_sample_shape=(5,)))
    net.add(layers.Dense("two", 5).share_parameters(net.layers["one"]))
    assert net.add_lora(2) == ["one", "two"]
    set_adapters(net)
    x = np.random.default_rng(0).standard_normal((3, 5)).astype("f")
    weight, a, b = (tensor.to_numpy(net.parameters()[f"one/{name}"]) for name in ("weight", "lora_a", "lora_b"))
    whole = weight + 8 * a @ b
    np.testing.assert_allclose(predicted(net, x), x @ whole @ whole, rtol=2e-5, atol=2e-4)
    net.merge_lora()
    np.testing.assert_allclose(predicted(net, x), x @ whole @ whole, rtol=2e-5, atol=2e-4)
    assert list(net.parameters()) == ["one/weight", "one/bias"]


def test_dropout_is_of_training_alone():
    net = adapted(dropout=0.5)
    np.testing.assert_array_equal(predicted(net, X), predicted(adapted(), X))
    first, second = (tensor.to_numpy(net.forward(True, X)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3


def test_merged_nets_compute_the_same():
    net = trained()
    wanted, before = predicted(net, X), all_bits(images().parameters())
    assert net.merge_lora() == ["first", "point", "hidden", "scores"]
    np.testing.assert_allclose(predicted(net, X), wanted, rtol=0, atol=2e-6)
    assert list(net.parameters()) == list(before) and not net.optimizer.state
    for layer in net.layers.values():
        layer.trainable = True
    net.train_one_batch(X, Y)
    assert all_bits(net.parameters()).keys() == before.keys()


def test_a_part_of_a_net_is_merged_with_the_whole(tmp_path):
    """No optimizer has state of an adapter that is gone."""
    net = trained()
    part = net.submodel("hidden")
    assert part.merge_lora() == ["first", "point", "hidden"]
    assert net.optimizer.state.keys() == {"scores/lora_a", "scores/lora_b"}
    wanted = predicted(net, X)
    np.testing.assert_array_equal(predicted(saved_and_loaded(net, tmp_path), X), wanted)


def test_state_of_what_does_not_train_any_more_is_dropped(tmp_path):
    """Of a frozen base and of adapters that are gone, whether all or one, a run goes on and a file is written."""
    net = images()
    net.compile(optimizer.Adam(0.01), graph=False)
    net.train_one_batch(X, Y)
    assert "hidden/weight" in net.optimizer.state
    net.add_lora(3, targets=["hidden", "scores"])
    assert not net.optimizer.state
    net.train_one_batch(X, Y)
    net.layers["hidden"].lora = None
    again = saved_and_loaded(net, tmp_path)
    assert set(again.optimizer.state) == {"scores/lora_a", "scores/lora_b"}
    for each in (net, again):
        each.train_one_batch(X, Y)
    assert all_bits(net.parameters()) == all_bits(again.parameters())
    net.merge_lora()
    assert not net.optimizer.state


def test_a_file_of_the_base_says_what_to_do(tmp_path):
    images().save(tmp_path / "base.h5")
    adapted().save(tmp_path / "adapted.h5")
    with pytest.raises(SnapshotError, match=r"'parameters/first/lora_a'.*before add_lora\(\), or takes strict=False"):
        adapted().load(tmp_path / "base.h5")
    with pytest.raises(SnapshotError, match=r"'parameters/first/lora_a'.*no place; add_lora\(\)"):
        images().load(tmp_path / "adapted.h5")
    net = adapted()
    assert len(net.load(tmp_path / "base.h5", strict=False).missing) == 8
    with pytest.raises(SnapshotError, match=r"\.safetensors; of a language model .*\.gguf"):
        net.save(tmp_path / "x.ggml")


def test_fit_warns_where_nothing_trains():
    net = trained()
    net.merge_lora()
    with pytest.warns(UserWarning, match="all frozen"):
        net.fit(X, Y, verbose=False)


# --- over quantised weights ----------------------------------------------------------------------------------


def quantised(format: str = "q8_0") -> FeedForwardNet:
    """A block whose weights are in blocks, from drawn numbers; adapters that are not zero."""
    net = FeedForwardNet("softmax_cross_entropy", device=device.new_cpu(), seed=3)
    net.add(layers.Input((TIME,), name="ids"))
    net.add(layers.Embedding("tokens", 31, 32))
    options = {"hidden_size": 64, "activation": "swiglu", "norm": "rms", "weight_format": format, "use_bias": False}
    net.add(layers.TransformerBlock("block0", 2, True, **options))
    net.add(layers.Dense("head", 31, weight_format=format))
    rng = np.random.default_rng(2)
    for name, value in net.frozen().items():
        layer, _, key = name.rpartition("/")
        blocks = rng.integers(-40, 40, value.shape, dtype=np.int8).view(np.uint8)
        blocks[:, ::34], blocks[:, 1::34] = 0, 0x1C  # scales of 2^-8 in float16
        net.all_layers()[layer].set_frozen(key, blocks)
    net.add_lora(3, 5.0, ["query", "gate", "output", "head"])
    set_adapters(net)
    return net


def test_missing_bytes_of_quantised_weights_are_named(tmp_path):
    quantised().save_adapter(tmp_path / "a")
    calls = [
        lambda net: net.merge_lora(),
        lambda net: net.save_adapter(tmp_path / "b"),
        lambda net: net.load_adapter(tmp_path / "a"),
    ]
    made = lambda: FeedForwardNet.from_config(quantised().config(), device.new_cpu())  # noqa: E731
    assert_all_refused([row(call, GraphError, "'block0'", "set_frozen", net=made) for call in calls])


def test_adapters_over_quantised_weights(tmp_path):
    """Gradients and outputs are those over the same weights as numbers; merged ones become parameters."""
    ids = np.random.default_rng(5).integers(0, 31, (3, TIME))
    net, merged = quantised(), quantised()
    wanted = predicted(net, ids)
    assert merged.merge_lora() == [layer.path for layer in net.adapted_layers()]
    np.testing.assert_allclose(predicted(merged, ids), wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    assert set(merged.frozen()) == {
        f"block0/{name}/weight" for name in ("attention/key", "attention/value", "hidden/value")
    }
    assert not merged.parameters()["block0/output/weight"].stores_grad
    again = FeedForwardNet.from_config(merged.config())
    assert {n: t.shape for n, t in again.parameters().items()} == {n: t.shape for n, t in merged.parameters().items()}
    assert again.frozen().keys() == merged.frozen().keys()
    plain = quantised()
    for path in [layer.path for layer in plain.adapted_layers()]:
        plain.all_layers()[path].lora = None
    floats = FeedForwardNet.from_config(
        json.loads(json.dumps(plain.config()).replace('"q8_0"', '"float"')), device.new_cpu()
    )
    for name, value in floats.parameters().items():
        frozen = plain.frozen().get(name)
        array = tensor.to_numpy(
            plain.parameters()[name] if frozen is None else autograd.dequantize(frozen, format="q8_0")
        )
        value.copy_from_numpy(array if frozen is None else np.ascontiguousarray(array.T))
    net.save_adapter(tmp_path)
    with pytest.warns(UserWarning, match="another base"):
        floats.load_adapter(tmp_path)
    found = []
    for one in (net, floats):
        one.compile(optimizer.Adam(0.01))
        found.append({name: tensor.to_numpy(value) for name, value in one.gradients(ids, ids).items()})
    assert found[0].keys() == found[1].keys() and len(found[0]) == 10
    for name, value in found[0].items():
        np.testing.assert_allclose(value, found[1][name], rtol=0, atol=1e-6 + 1e-5 * np.abs(value).max(), err_msg=name)


# --- copies and files of whole nets --------------------------------------------------------------------------


def saved_and_loaded(net: FeedForwardNet, folder: Path) -> FeedForwardNet:
    net.save(folder / "net.h5")
    return singa_lite.load(folder / "net.h5", device=device.new_cpu())


def on_another_device(net: FeedForwardNet, folder: Path) -> FeedForwardNet:
    net.to_device(device.new_cpu())
    return net


COPIES: dict[str, Callable[[FeedForwardNet, Path], FeedForwardNet]] = {
    "deepcopy": lambda net, folder: deepcopy(net),
    "pickle": lambda net, folder: pickle.loads(pickle.dumps(net)),
    "file": saved_and_loaded,
    "device": on_another_device,
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("make", [images, series, llama])
def test_copies_go_on_alike(make, copy, tmp_path):
    def one() -> FeedForwardNet:
        net = make()
        net.add_lora(2, 3.0, "all", 0.3)
        set_adapters(net)
        net.compile(optimizer.Adam(0.01))
        train(net)
        return net

    def train(net: FeedForwardNet) -> None:
        x = np.random.default_rng(3)
        shape = {"images": (5, 3, 9, 8), "series": (5, 3, TIME)}.get(make.__name__)
        given = x.integers(0, 31, (5, TIME)) if shape is None else x.standard_normal(shape).astype("f")
        net.train_one_batch(given, x.integers(0, 4, (5, TIME) if shape is None else 5))

    net = one()
    other = copy(one(), tmp_path)
    assert state_of(other) == state_of(net)
    for each in (net, other):
        train(each)
    assert state_of(other) == state_of(net)
    assert {n for n, p in other.parameters().items() if p.stores_grad} == set(other.optimizer.state)


def test_a_net_without_memory_gets_them_too():
    net = llama_on(device.abstract("numpy"))
    net.add_lora(2)
    trains = [name for name, value in net.parameters().items() if value.stores_grad]
    net.to_device(device.new_cpu())
    assert [name for name, value in net.parameters().items() if value.stores_grad] == trains
    assert all(layer.lora == (2, 16.0, 0.0) for layer in net.adapted_layers()) and len(trains) == 10
    assert np.any(tensor.to_numpy(net.parameters()[trains[0]]))


def llama_on(where: Any) -> FeedForwardNet:
    """A net whose inner layers are made in setup."""
    net = FeedForwardNet(device=where, seed=3)
    net.add(layers.MultiHeadAttention("attention", 2, use_bias=False, input_sample_shape=(6, 8)))
    net.add(layers.Dense("scores", 3))
    return net


# --- checkpoints ---------------------------------------------------------------------------------------------


class Checkpointed:
    """Runs of a net with checkpoints in a folder."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.options = folder, options

    def fit(self, net: FeedForwardNet, *callbacks: Any, **options: Any) -> Any:
        x = np.concatenate([X, X[::-1], X + 1])
        y = np.concatenate([Y, Y[::-1], Y])
        every = Checkpoint(self.folder, every_steps=2, **self.options)
        return net.fit(x, y, batch_size=4, epochs=3, verbose=False, callbacks=[every, *callbacks], **options)


def json_of(file: Path) -> dict[str, Any]:
    from singa_lite.snapshots import formats

    with formats.opened(file) as found:
        return dict(found.specs) | {"attributes": found.attributes}


@pytest.mark.parametrize("background", [False, True])
def test_a_run_goes_on_to_equal_bits_over_its_base(tmp_path, background):
    def made() -> FeedForwardNet:
        net = adapted(dropout=0.2)
        net.compile(optimizer.Adam(0.01))
        return net

    whole = made()
    history = Checkpointed(tmp_path / "whole").fit(whole)
    runs, net = Checkpointed(tmp_path / "killed", background=background), made()
    with pytest.raises(Killed):
        runs.fit(net, Kill(7))
    held = json_of(latest(tmp_path / "killed"))
    parameters = {name for name in held if name.startswith("parameters/")}
    assert parameters == {f"parameters/{name}" for name in net.optimizer.state}
    assert len(str(held["attributes"]["base"])) == 64
    again = made()
    found = runs.fit(again, resume="auto")
    assert state_of(again) == state_of(whole) and found["loss"] == history["loss"]
    last = latest(tmp_path / "killed")
    other = made()
    other.load(last)
    assert state_of(other) == state_of(whole)


def test_a_checkpoint_over_another_base_is_refused(tmp_path):
    net, other = adapted(), trained()
    value = net.parameters()["point/weight"]
    value.copy_from_numpy(np.nextafter(tensor.to_numpy(value), np.float32(9)))
    net.compile(optimizer.Adam(0.01))
    Checkpointed(tmp_path).fit(net)
    before = state_of(other)
    with pytest.raises(SnapshotError, match="base"):
        other.load(latest(tmp_path))
    with pytest.raises(SnapshotError, match="base"):
        Checkpointed(tmp_path).fit(other, resume="auto")
    assert state_of(other) == before
    scaled = images()
    scaled.add_lora(3, 4.0, "all")
    for one in (images(), scaled):
        one.compile(optimizer.Adam(0.01))
        with pytest.raises(SnapshotError, match=r"5\.0.*add_lora"):
            one.load(latest(tmp_path))
    with pytest.raises(SnapshotError, match="base"):
        singa_lite.load(latest(tmp_path))


# --- files of adapters ---------------------------------------------------------------------------------------


def test_adapter_files_alone(tmp_path):
    """A net without adapters gets those of the file, by the names that a user gives; weights stay frozen."""
    net, names = adapted(), {"first": "encoder.conv", "hidden": "body.0"}
    net.save_adapter(tmp_path / "a", names=names)
    config = json.loads((tmp_path / "a/adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (3, 5.0, "LORA")
    assert sorted(config["target_modules"]) == ["0", "conv", "point", "scores"]
    other = images()
    other.load_adapter(tmp_path / "a", names=names)
    assert all_bits(other.parameters()) == all_bits(net.parameters())
    assert [n for n, p in other.parameters().items() if p.stores_grad] == [
        n for n, p in net.parameters().items() if p.stores_grad
    ]
    other.parameters()["point/weight"].copy_from_numpy(np.ones((5, 6, 1, 1), "f"))
    with pytest.warns(UserWarning, match="another base"):
        other.load_adapter(tmp_path / "a", names=names)
    part = adapted(["point", "hidden"])
    part.save_adapter(tmp_path / "b")
    assert json.loads((tmp_path / "b/adapter_config.json").read_text())["target_modules"] == ["hidden", "point"]


def test_names_of_a_language_model(tmp_path):
    net = llama()
    net.add_lora(2, targets=["query", "block1/output"])
    net.save_adapter(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["task_type"] == "CAUSAL_LM"
    assert config["target_modules"] == [  # all of them, as the other block's "down_proj" has none
        "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj", "model.layers.1.self_attn.q_proj",
    ]  # fmt: skip


def damaged(folder: Path, net: FeedForwardNet, **config: Any) -> Path:
    """A folder whose configuration has other values."""
    net.save_adapter(folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return folder


def test_folders_that_do_not_fit(tmp_path):
    hidden, wide = adapted(["hidden"]), images()
    wide.add_lora(4, 5.0, ["hidden"])
    configs: list[tuple[dict[str, Any], str]] = [
        ({"peft_type": "IA3"}, "IA3"),
        ({"use_dora": True}, "use_dora"),
        ({"r": 4}, "hidden"),
        ({"r": "3"}, "hidden"),
        ({"r": 10**30}, "hidden"),
        ({"lora_alpha": -1}, "alpha"),
        ({"lora_alpha": None}, "alpha"),
        ({"lora_dropout": 1}, "dropout"),
        ({"rank_pattern": {"hidden": 5}}, "hidden"),
        ({"rank_pattern": [1]}, "rank_pattern"),
        ({"alpha_pattern": {"hidden": "x"}}, "alpha"),
    ]
    rows = []
    for number, (config, word) in enumerate(configs):
        folder = damaged(tmp_path / str(number), hidden, **config)
        rows.append(row(lambda net, folder=folder: net.load_adapter(folder), SnapshotError, word, net=images))
    texts: dict[str, bytes] = {
        "list": b"[]",
        "cut": b'{"peft_type": "LORA"',
        "long": b" " * (1 << 21),
        "nan": b'{"r": NaN}',
    }
    for name, text in texts.items():
        folder = damaged(tmp_path / name, hidden)
        (folder / "adapter_config.json").write_bytes(text)
        rows.append(
            row(lambda net, folder=folder: net.load_adapter(folder), SnapshotError, "adapter_config", net=images)
        )
    good, others = damaged(tmp_path / "good", hidden), damaged(tmp_path / "wide", wide)
    (tmp_path / "cut weights").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        content = (good / name).read_bytes()
        (tmp_path / "cut weights" / name).write_bytes(content[:300] if name.endswith("s") else content)
    hidden.save(tmp_path / "strange.safetensors", weights_only=True)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange/adapter_config.json").write_bytes((good / "adapter_config.json").read_bytes())
    (tmp_path / "strange.safetensors").rename(tmp_path / "strange/adapter_model.safetensors")
    rows += [
        row(lambda net: net.load_adapter(good), SnapshotError, "'hidden'", net=series),
        row(lambda net: net.load_adapter(good), SnapshotError, "'first'", net=adapted),
        row(lambda net: net.load_adapter(others), SnapshotError, "'hidden'", "rank=4", net=lambda: adapted(["hidden"])),
        row(lambda net: net.load_adapter(tmp_path / "cut weights"), SnapshotError, "cut weights", net=images),
        row(lambda net: net.load_adapter(tmp_path / "strange"), SnapshotError, "lora_A", net=images),
        row(lambda net: net.load_adapter(tmp_path / "none"), FileNotFoundError, "none", net=images),
        row(lambda net: net.load_adapter(good, names={"hiden": "x"}), SnapshotError, "'hiden'", net=images),
        row(lambda net: net.load_adapter(good, names={"first": "hidden"}), SnapshotError, "'hidden'", net=images),
        row(lambda net: net.load_adapter(good, names=3), TypeError, "names", net=images),
        row(lambda net: net.load_adapter(good), SnapshotError, "float64", net=lambda: images(dtype="float64")),
        row(lambda net: net.save_adapter(good), GraphError, "adapters", net=images),
        row(lambda net: net.save_adapter(3), TypeError, "save_adapter", "3", net=adapted),
        row(lambda net: net.save_adapter(tmp_path / "no", base=3), TypeError, "base", "3", net=adapted),
        row(lambda net: net.save_adapter(tmp_path / "no", names={"first": ""}), TypeError, "names", net=adapted),
        row(lambda net: net.save_adapter(good / "adapter_config.json"), SnapshotError, "adapter_config", net=adapted),
    ]
    assert_all_refused(rows)


MISUSES = [
    *(
        row(lambda net, rank=rank: net.add_lora(rank), ValueError, "rank", net=images)
        for rank in (0, -1, 2.5, True, "8")
    ),
    *(
        row(lambda net, alpha=alpha: net.add_lora(2, alpha), ValueError, "alpha", net=images)
        for alpha in (0, -1, float("nan"), float("inf"), "x", None)
    ),
    *(
        row(lambda net, p=p: net.add_lora(2, dropout=p), ValueError, "dropout", net=images)
        for p in (1, -0.1, float("nan"), "x", None)
    ),
    row(lambda net: net.add_lora(10**9), ValueError, "rank", "'hidden'", "at most 7", "1000000000", net=images),
    row(lambda net: net.add_lora(6, targets="point"), ValueError, "'point'", "at most 5", "6", net=images),
    row(lambda net: net.add_lora(2, targets="hiden"), GraphError, "'hiden'", net=images),
    row(lambda net: net.add_lora(2, targets=["hidden", "flat"]), GraphError, "'flat'", "adapter", net=images),
    row(lambda net: net.add_lora(2, targets=[]), TypeError, "targets", net=images),
    row(lambda net: net.add_lora(2, targets=7), TypeError, "targets", "7", net=images),
    row(lambda net: net.add_lora(2, targets=[3]), TypeError, "targets", "3", net=images),
    row(lambda net: net.add_lora(2, targets=images().layers["hidden"]), GraphError, "another", net=images),
    row(lambda net: net.add_lora(2), GraphError, "'hidden'", net=adapted),
    row(lambda net: net.merge_lora(), GraphError, "adapters", net=images),
    row(lambda net: setattr(net.layers["flat"], "lora", (1, 1.0, 0.0)), GraphError, "'flat'", net=images),
    row(lambda net: setattr(net.layers["hidden"], "lora", 3), ValueError, "'hidden'", "3", net=images),
    row(lambda net: setattr(net.layers["hidden"], "lora", (1, 1.0, 0.0)), GraphError, "'hidden'", net=adapted),
]


def test_misuse():
    assert_all_refused(MISUSES)


# --- memory --------------------------------------------------------------------------------------------------


def total(net: FeedForwardNet, batch: int) -> int:
    net.compile(optimizer.Adam(), loss.SoftmaxCrossEntropy())
    return net.plan_batch(batch).total_bytes


def resnet() -> FeedForwardNet:
    return models.resnet50(10, shape=(3, 224, 224), device=device.abstract("onednn"))


def gpt() -> FeedForwardNet:
    sizes = {"vocabulary": 3000, "positions": 256, "features": 256, "heads": 4, "blocks": 4}
    return models.gpt2(**sizes, device=device.abstract("onednn"))


@pytest.mark.parametrize(("make", "batch", "targets"), [(resnet, 8, "all"), (gpt, 4, "all-linear")])
def test_adapters_take_less_memory_than_full_training(make, batch, targets):
    full, net = total(make(), batch), make()
    net.add_lora(8, targets=targets)
    saved = sum(p.nbytes for p in net.parameters().values() if not p.stores_grad)
    assert total(net, batch) < full - saved  # two values of state are gone, and little came
