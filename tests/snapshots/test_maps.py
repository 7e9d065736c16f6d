"""Maps of names: GPT-2's and BERT's files, against forward passes in NumPy and against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skips
import text_models as text
from nets import bits, state_of
from singa_lite import FeedForwardNet, SnapshotError, layers, models, optimizer, snapshots, tensor

library = skips.library("safetensors.numpy")
maps = snapshots.maps

IDS = np.random.default_rng(0).integers(1, text.VOCABULARY, (4, 7))
TYPES = np.random.default_rng(1).integers(0, text.TYPES, (4, 7))
GPT2 = (text.VOCABULARY, text.POSITIONS, text.FEATURES, text.HEADS, text.BLOCKS)


def gpt2(seed: int = 1, time: int = 7, **options: Any) -> FeedForwardNet:
    return models.gpt2(*GPT2, time=time, seed=seed, **options)


def bert(seed: int = 1, time: int = 7, **options: Any) -> FeedForwardNet:
    return models.bert(*GPT2, types=text.TYPES, hidden_size=text.HIDDEN, time=time, seed=seed, **options)


def padded() -> np.ndarray:
    """Texts of 7, 5, 1 and 6 words."""
    ids = IDS.copy()
    for row, length in enumerate([7, 5, 1, 6]):
        ids[row, length:] = 0
    return ids


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def prefixed(arrays: text.Arrays, prefix: str) -> text.Arrays:
    return {f"{prefix}{name}": array for name, array in arrays.items()}


# ---- against NumPy


@pytest.mark.parametrize("prefix", ["", "transformer."])
@pytest.mark.parametrize("tied", [True, False])
def test_a_gpt2_is_loaded(path, prefix, tied):
    arrays, net = text.gpt2_arrays(), gpt2(tied=tied)
    masks = {"h.0.attn.bias": np.ones((1, 1, 11, 11), bool), "h.1.attn.masked_bias": np.array(-1e4, "f4")}
    library.save_file(prefixed(arrays | masks, prefix), path)
    net.load(path, names=maps.gpt2(net))
    wanted = text.gpt2_scores(arrays, IDS)
    np.testing.assert_allclose(net.predict(IDS), wanted, 1e-5, 1e-5)
    assert wanted.std() > 0.5


def test_a_head_of_its_own(path):
    arrays, head, net = text.gpt2_arrays(), text.gpt2_arrays(5)["wte.weight"], gpt2(tied=False)
    library.save_file(prefixed(arrays, "transformer.") | {"lm_head.weight": head}, path)
    net.load(path, names=maps.gpt2(net))
    np.testing.assert_allclose(net.predict(IDS), text.gpt2_scores(arrays, IDS, head), 1e-5, 1e-5)
    net.save(path, weights_only=True, names=maps.gpt2(net))
    assert bits(library.load_file(path)["lm_head.weight"]) == bits(head)


def test_a_copy_of_the_table_must_be_equal(path):
    arrays, net = text.gpt2_arrays(), gpt2(tied=True)
    library.save_file(arrays | {"lm_head.weight": arrays["wte.weight"]}, path)
    net.load(path, names=maps.gpt2(net))
    before = state_of(net)
    for head in (arrays["wte.weight"] + 1, arrays["wte.weight"][1:]):
        library.save_file(arrays | {"lm_head.weight": head}, path)
        with pytest.raises(SnapshotError, match=r"'wte.weight'"):
            net.load(path, names=maps.gpt2(net))
    assert state_of(net) == before


def test_a_bert_is_loaded(path):
    arrays, net, ids = text.bert_arrays(), bert(), padded()
    library.save_file(arrays | {"embeddings.position_ids": np.arange(11)[None]}, path)
    net.load(path, names=maps.bert(net))
    wanted = text.bert_pooled(arrays, ids, TYPES)
    np.testing.assert_allclose(net.predict({"ids": ids, "types": TYPES}), wanted, 1e-5, 1e-5)
    assert wanted.std() > 0.5


def test_a_bert_of_the_pretraining_with_old_names(path):
    arrays, net, ids = text.bert_arrays(), bert(), padded()
    for name in [name for name in arrays if "LayerNorm" in name]:
        arrays[name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")] = arrays.pop(name)
    heads = {"cls.predictions.bias": np.ones(31, "f4"), "cls.seq_relationship.weight": np.ones((2, 12), "f4")}
    library.save_file(prefixed(arrays, "bert.") | heads, path)
    with pytest.raises(SnapshotError, match=r"'cls\.[a-z_.]+'"):
        net.load(path, names=maps.bert(net))
    net.load(path, names=maps.bert(net, leave_out=["cls"]))
    wanted = text.bert_pooled(text.bert_arrays(), ids, TYPES)
    np.testing.assert_allclose(net.predict({"ids": ids, "types": TYPES}), wanted, 1e-5, 1e-5)


# ---- there and back


@pytest.mark.parametrize(
    ("make", "named", "arrays", "prefix"),
    [(gpt2, maps.gpt2, text.gpt2_arrays, "transformer."), (bert, maps.bert, text.bert_arrays, "")],
)
def test_what_is_written_is_what_was_read(make, named, arrays, prefix, path):
    net, other, third, wanted = make(1), make(2), make(3), prefixed(arrays(), prefix)
    library.save_file(wanted, path)
    net.load(path, names=named(net))
    net.save(path, names=named(net), weights_only=True)
    found = library.load_file(path)
    assert {name: bits(array) for name, array in found.items()} == {name: bits(a) for name, a in wanted.items()}
    other.load(path, names=named(other))
    third.load(path)  # a file of ours knows its own names
    assert state_of(other) == state_of(net) == state_of(third)


def test_all_of_a_training_goes_through_a_map(path):
    """State of the optimizer and random state keep their paths; layers of other names are found by their order."""
    net, other = gpt2(dropout=0.1), FeedForwardNet(seed=2)
    other.add(layers.Embedding("e", 31, 12, input_sample_shape=(7,)))
    other.add(layers.LearnedPositions("p", 11))
    for name in ("first", "second"):
        other.add(layers.TransformerBlock(name, 3, causal=True, activation="gelu_tanh"))
    other.add(layers.LayerNormalization("n"))
    other.add(layers.TiedDense("scores", other.layers["e"]))
    net.compile(optimizer.AdamW(0.01))
    net.train_one_batch(IDS, IDS)
    net.save(path, names=maps.gpt2(net))
    same = gpt2(3, dropout=0.1)
    same.compile(optimizer.AdamW(0.01))
    same.load(path, names=maps.gpt2(same))
    assert state_of(same) == state_of(net)
    net.save(path, names=maps.gpt2(net), weights_only=True)
    other.load(path, names=maps.gpt2(other))
    np.testing.assert_array_equal(other.predict(IDS), net.predict(IDS))


def test_a_wrong_bit_of_a_joined_array_is_told(path):
    net = gpt2()
    net.save(path, names=maps.gpt2(net))
    data = bytearray(path.read_bytes())
    value = tensor.to_numpy(net.parameters()["block1/attention/value/weight"])
    data[data.index(value[3].tobytes()) + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match="'parameters/block1/attention/value/weight'"):
        net.load(path)


@pytest.mark.parametrize(
    "part", ["[1,0,13,36]", "[2,0,12,36]", "[1,-12,0,36]", "[1,12,12,36]", "[1,0,12,37]", "[1,0,12]"]
)
def test_parts_that_the_array_does_not_have(part, path):
    net = gpt2()
    net.save(path, names=maps.gpt2(net))
    data = path.read_bytes()
    old, new = (f'c_attn.weight\\",null,{text}]'.encode() for text in ("[1,0,12,36]", part))
    end = 8 + int.from_bytes(data[:8], "little")
    assert old in data[:end]
    header = data[8:end].replace(old, new, 1).strip()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])
    before = state_of(net)
    with pytest.raises(SnapshotError, match="wanted"):
        net.load(path)
    assert state_of(net) == before


# ---- the models


def test_a_first_step_of_gpt2_is_as_good_as_chance():
    net = gpt2(dropout=0.1)
    net.compile(optimizer.AdamW(0.01))
    assert float(net.train_one_batch(IDS, IDS)[0]) == pytest.approx(np.log(31), abs=0.2)


@pytest.mark.parametrize(
    ("make", "options", "culprit"),
    [
        *((gpt2, {"time": 12}, "12"), (gpt2, {"time": 0}, "time"), (gpt2, {"tied": "no"}, "tied")),
        *((gpt2, {"dropout": 1.0}, "dropout"), (bert, {"time": 2.5}, "time"), (bert, {"pooler": 1}, "pooler")),
        *((bert, {"dropout": -0.1}, "dropout"), (lambda: models.gpt2(31, 11, 12, 5, 1), {}, "heads")),
        (lambda: models.bert(31, 11, 12, 3, 0), {}, "blocks"),
    ],
)
def test_models_that_cannot_be(make, options, culprit):
    with pytest.raises((TypeError, ValueError), match=culprit):
        make(**options)


# ---- other files and other nets


@pytest.mark.parametrize(
    ("name", "array", "culprit"),
    [
        ("h.1.ln_2.bias", None, "'h.1.ln_2.bias'"),
        ("h.2.ln_1.bias", np.ones(12, "f4"), "'h.2.ln_1.bias'"),
        ("h.0.mlp.c_fc.bias", np.ones(9, "f4"), "block0/hidden/bias"),
        ("h.0.attn.c_attn.bias", np.ones(39, "f4"), "'h.0.attn.c_attn.bias'"),
        ("h.0.attn.c_attn.weight", np.ones((9, 36), "f4"), "block0/attention/.*weight"),
        ("wpe.weight", np.ones((11, 12), "i4"), "int32"),
    ],
)
def test_files_that_do_not_fit_change_nothing(name, array, culprit, path):
    arrays, net = text.gpt2_arrays() | {name: array}, gpt2()
    library.save_file({name: array for name, array in arrays.items() if array is not None}, path)
    before = state_of(net)
    with pytest.raises(SnapshotError, match=culprit):
        net.load(path, names=maps.gpt2(net))
    assert state_of(net) == before


def test_what_fits_of_a_file(path):
    arrays, net = text.gpt2_arrays(), gpt2()
    for name in ("h.1.ln_2.bias", "h.0.attn.c_attn.weight"):
        arrays.pop(name)
    library.save_file(arrays | {"h.2.ln_1.bias": np.ones(12, "f4")}, path)
    left = net.load(path, names=maps.gpt2(net), strict=False)
    assert len(left.missing) == 4 and sum("block0/attention/" in name for name in left.missing) == 3
    assert left.unused == ("h.2.ln_1.bias",) and left.differing == ()


def changed(*added: Any, **options: Any) -> FeedForwardNet:
    net = FeedForwardNet(seed=1)
    net.add(layers.Embedding("e", 31, 12, input_sample_shape=(7,)))
    net.add(layers.LearnedPositions("p", 11))
    net.add(layers.TransformerBlock("b", 3, **options))
    for layer in added:
        net.add(layer)
    return net


@pytest.mark.parametrize(
    ("added", "options"),
    [
        *(([], {}), ([layers.RMSNormalization], {}), ([layers.LayerNormalization], {"normalize_first": False})),
        *(([layers.LayerNormalization], {"use_bias": False}), ([layers.LayerNormalization], {"kv_heads": 1})),
    ],
)
def test_nets_of_another_form(added, options):
    with pytest.raises(SnapshotError, match=r"maps\.gpt2"):
        maps.gpt2(changed(*(make("x") for make in added), **options))


def test_what_is_no_net_and_no_module():
    with pytest.raises(TypeError, match="FeedForwardNet"):
        maps.gpt2("gpt2")
    for given in ("cls", [3], [""]):
        with pytest.raises(TypeError, match="leave_out"):
            maps.bert(bert(), leave_out=given)
    with pytest.raises(SnapshotError, match=r"maps\.bert"):
        maps.bert(gpt2())


# ---- against transformers


def theirs(kind: str) -> Any:
    """A model of random numbers that are large enough to tell."""
    transformers, torch = skips.library("transformers"), skips.library("torch")
    torch.manual_seed(3)
    sizes = {"vocab_size": text.VOCABULARY, "initializer_range": 0.3}
    if kind == "GPT2LMHeadModel":
        shape = {"n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 3, "bos_token_id": 0, "eos_token_id": 0}
        config = transformers.GPT2Config(**sizes, **shape)
    else:
        shape = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": text.HIDDEN}
        config = transformers.BertConfig(**sizes, **shape, max_position_embeddings=11)
    return getattr(transformers, kind)(config).eval()


def outputs(model: Any) -> np.ndarray:
    torch = skips.library("torch")
    if hasattr(model, "transformer"):
        return model(torch.from_numpy(IDS))[0].detach().numpy()
    ids = torch.from_numpy(padded())
    found = model(input_ids=ids, token_type_ids=torch.from_numpy(TYPES), attention_mask=(ids != 0).long())
    return found["pooler_output"].detach().numpy()


@pytest.mark.peer
@pytest.mark.parametrize(
    ("kind", "make", "named", "given"),
    [
        ("GPT2LMHeadModel", lambda: gpt2(tied=True), maps.gpt2, IDS),
        ("BertModel", bert, maps.bert, {"ids": padded(), "types": TYPES}),
    ],
)
def test_transformers_there_and_back(kind, make, named, given, tmp_path):
    model, net, other, path = theirs(kind), make(), make(), tmp_path / "model.safetensors"
    model.save_pretrained(tmp_path)
    net.load(path, names=named(net))
    np.testing.assert_allclose(net.predict(given), outputs(model), 1e-5, 1e-5)

    other.save(path, names=named(other), weights_only=True)
    read, fresh = type(model).from_pretrained(tmp_path).eval(), theirs(kind)
    np.testing.assert_allclose(other.predict(given), outputs(read), 1e-5, 1e-5)
    skips.library("safetensors.torch").load_model(fresh, path, strict=True)
    np.testing.assert_array_equal(outputs(fresh), outputs(read))
