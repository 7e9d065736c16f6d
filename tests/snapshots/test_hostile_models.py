"""Damaged and hostile files of language models: one error that names the culprit, in bounded memory."""

from __future__ import annotations

import gc
import json
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from damages import damaged, damages
from every_row import over_rows
from language_files import small_weights, write_gguf
from singa_lite import SnapshotError, models
from singa_lite.snapshots import language
from singa_lite.snapshots.readers import gguf
from skips import library
from test_hostile_files import UNCHECKED, bounded

library("gguf")


@pytest.fixture(autouse=True)
def maps_are_dropped() -> Iterator[None]:
    yield
    gc.collect()


@cache
def small_file() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "x.gguf")
        write_gguf(path, small_weights({"attn_q": "q8_0", "ffn_down": "q4_1", "token_embd": "q4_0"}))
        return path.read_bytes()


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(tensors: int = 0, pairs: int = 0, rest: bytes = b"", version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, pairs) + rest + bytes(64)


def info(name: bytes = b"t", shape: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def changed(key: bytes, form: str, value: int, by: int = 0) -> bytes:
    """The small file with another number behind a name."""
    data = bytearray(small_file())
    struct.pack_into(f"<{form}", data, data.index(key) + len(key) + by, value)
    return bytes(data)


HUGE = 1 << 62
#: {attack: (the file, what the error names)}.
ATTACKS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 bytes"),
    "magic": (header(magic=b"GGUX"), "GGUX"),
    "version 1": (header(version=1), "0x1"),
    "big-endian": (header(version=3 << 24), "0x3000000"),
    "many tensors": (header(HUGE), "tensor ''"),
    "many pairs": (header(0, HUGE), "each key once"),
    "a long key": (header(0, 1, struct.pack("<Q", HUGE)), "key 0"),
    "a key beyond the end": (header(0, 1, struct.pack("<Q", 5000)), "key 0"),
    "a key that is no text": (header(0, 1, text(b"\xff\xfe") + struct.pack("<IB", 0, 1)), "UTF-8"),
    "a key twice": (header(0, 2, 2 * (text(b"k") + struct.pack("<IB", 0, 1))), "'k' twice"),
    "a value of no type": (header(0, 1, text(b"k") + struct.pack("<I", 77)), "77"),
    "a flag of 2": (header(0, 1, text(b"k") + struct.pack("<IB", 7, 2)), "k: "),
    "a long text": (header(0, 1, text(b"k") + struct.pack("<IQ", 8, HUGE)), "k: "),
    "a long array": (header(0, 1, text(b"k") + struct.pack("<IIQ", 9, 4, HUGE)), "k: "),
    "many texts": (header(0, 1, text(b"k") + struct.pack("<IIQ", 9, 8, HUGE)), "k: "),
    "texts beyond the end": (header(0, 1, text(b"k") + struct.pack("<IIQQ", 9, 8, 2, 5000)), "k: "),
    "arrays in an array": (header(0, 1, text(b"k") + struct.pack("<IIQ", 9, 9, 1)), "k: "),
    "no axis": (header(1, 0, info(shape=())), "'t'"),
    "many axes": (header(1, 0, info(shape=(1,) * 5)), "'t'"),
    "an extent of 0": (header(1, 0, info(shape=(0, 4))), "'t'"),
    "a large extent": (header(1, 0, info(shape=(HUGE, HUGE))), "'t'"),
    "half a block": (header(1, 0, info(shape=(33,), kind=8)), "'t'"),
    "an offset beyond the end": (header(1, 0, info(offset=1 << 40)), "'t'"),
    "the largest offset": (header(1, 0, info(offset=(1 << 64) - 32)), "'t'"),
    "an offset that is not aligned": (header(1, 0, info(offset=1)), "'t'"),
    "one over another": (header(2, 0, info() + info(b"u")), "'u'|'t'"),
    "a tensor twice": (header(2, 0, info() + info(offset=32)), "'t' twice"),
    "an alignment of 3": (header(0, 1, text(b"general.alignment") + struct.pack("<II", 4, 3)), "alignment"),
    "no architecture": (header(), "general.architecture"),
    "another architecture": (
        header(0, 1, text(b"general.architecture") + struct.pack("<I", 8) + text(b"rwkv")),
        "rwkv",
    ),
}


def test_attacks(tmp_path: Path):
    tables: dict[str, tuple[bytes, str]] = {
        "many blocks": (changed(b"llama.block_count", "I", (1 << 32) - 1, 4), "block_count"),
        "a block too many": (changed(b"llama.block_count", "I", 3, 4), "blk.2"),
        "no heads": (changed(b"llama.attention.head_count", "I", 0, 4), "heads"),
        "many heads": (changed(b"llama.attention.head_count", "I", 1 << 31, 4), "head"),
        "another width": (changed(b"llama.embedding_length", "I", 1 << 31, 4), "shape"),
        "another type": (changed(b"llama.embedding_length", "I", 6, 0), "embedding_length"),
        "cut": (small_file()[:-40], "tensor"),
    }
    over_rows(refused, ((name, (tmp_path / "x.gguf", *row)) for name, row in {**ATTACKS, **tables}.items()))


def refused(path: Path, data: bytes, culprit: str) -> None:
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match=rf"x\.gguf: .*({culprit})"), bounded(path):
        language.opened(path)


def test_a_file_that_wants_more_than_there_is_here_lists_it(tmp_path: Path):
    """Unknown formats, tensors and splitting of texts: all in one error."""
    small = small_weights({"attn_q": "q5_0"})
    small["blk.0.attn_sinks.weight"] = small["output_norm.weight"]
    write_gguf(tmp_path / "x.gguf", small, pre="strange")
    with pytest.raises(SnapshotError) as caught:
        models.load(tmp_path / "x.gguf")
    for culprit in ("'strange'", "blk.0.attn_sinks.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight", "q5_0"):
        assert culprit in str(caught.value)
    for options, culprit in (
        ({"llama__expert_count": 8}, "experts"),
        ({"llama__rope__scaling__type": "yarn"}, "yarn"),
        ({"llama__rope__dimension_count": 8}, "dimension_count"),
        ({"tokenizer_model": "rwkv"}, "rwkv"),
    ):
        write_gguf(tmp_path / "y.gguf", small_weights({}), **options)
        with pytest.raises(SnapshotError, match=culprit):
            models.load(tmp_path / "y.gguf")


@settings(max_examples=150, deadline=None, suppress_health_check=UNCHECKED)
@given(damages(small_file()))
def test_damaged_files(tmp_path: Path, some: list[Any]):
    """Read as if it were whole, or refused in our words."""
    path = tmp_path / "x.gguf"
    path.write_bytes(damaged(small_file(), some))
    try:
        with bounded(path):
            stored = language.opened(path)
            for weight in stored.weights.values():
                assert weight.numbers().shape == weight.shape
    except SnapshotError as error:
        assert "x.gguf" in str(error)


# ---- folders


def folder(path: Path, changes: dict[str, Any], files: dict[str, bytes]) -> None:
    sizes: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2, "hidden_size": 12, "vocabulary": 20}
    net = models.language_model(models.LanguageConfig(architecture="llama", **sizes, tied=True), length=4)
    net.save(f"{path}/")
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))
    for name, data in files.items():
        (path / name).write_bytes(data)


FOLDERS: dict[str, tuple[dict[str, Any], dict[str, bytes], str]] = {
    "another model": ({"model_type": "mamba"}, {}, "mamba"),
    "no width": ({"hidden_size": "absent"}, {}, "hidden_size"),
    "a width of text": ({"hidden_size": "8"}, {}, "hidden_size"),
    "another width": ({"hidden_size": 16}, {}, "shape"),
    "many layers": ({"num_hidden_layers": 1 << 40}, {}, "layers.1"),
    "another activation": ({"hidden_act": "relu"}, {}, "relu"),
    "biases": ({"attention_bias": True}, {}, "attention_bias"),
    "yarn": ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, {}, "yarn"),
    "no object": ({"rope_parameters": 3}, {}, "rope_parameters"),
    "a head is missing": ({"tie_word_embeddings": False}, {}, "lm_head"),
    "no JSON": ({}, {"config.json": b"{"}, "config.json"),
    "a list": ({}, {"config.json": b"[]"}, "config.json"),
    "a file elsewhere": ({}, {"model.safetensors.index.json": b'{"weight_map": {"a": "../x.safetensors"}}'}, "\\.\\./"),
    "an index of nothing": ({}, {"model.safetensors.index.json": b'{"weight_map": 3}'}, "weight_map"),
    "cut weights": ({}, {"model.safetensors": b"\x10\0\0\0\0\0\0\0{}"}, "model.safetensors"),
}


def test_hostile_folders(tmp_path: Path):
    def refuse(number: int, changes: dict[str, Any], files: dict[str, bytes], culprit: str) -> None:
        path = tmp_path / str(number)
        folder(path, changes, files)
        with pytest.raises(SnapshotError, match=culprit):
            models.load(path)

    over_rows(refuse, ((name, (number, *row)) for number, (name, row) in enumerate(FOLDERS.items())))


def test_a_broken_tokenizer_of_a_folder(tmp_path: Path):
    folder(tmp_path / "a", {}, {"tokenizer.json": b'{"model": 3}'})
    with pytest.raises(SnapshotError, match=r"tokenizer\.json"):
        models.load(tmp_path / "a").tokenizer.encode("a")


def test_blocks_are_views_of_the_mapped_file(tmp_path: Path):
    """Nothing is copied but what lies in another order; nobody writes into the file."""
    path = tmp_path / "x.gguf"
    path.write_bytes(small_file())
    file = gguf.read(path)
    blocks = language.opened(path).weights["block0/output/weight"].blocks
    assert not blocks.flags.writeable and not blocks.flags.owndata
    assert np.array_equal(blocks, file.blocks("blk.0.ffn_down.weight"))


def test_what_cannot_be_written_or_is_no_model_is_one_error(tmp_path: Path):
    folder(tmp_path / "model", {}, {})
    net = models.load(tmp_path / "model", length=4)
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotError, match="wanted a folder to write into"):
        net.save(f"{tmp_path / 'file'}/")
    with pytest.raises(TypeError, match=r"x\.gguf: .*'quantization'.*received \['quality'\]"):
        net.save(tmp_path / "x.gguf", quality=3)
    for name in ("config.json", "model.safetensors"):
        with pytest.raises(SnapshotError, match=rf"{name}: the header: wanted a GGUF file.*config\.json"):
            models.load(tmp_path / "model" / name)
    assert not (tmp_path / "x.gguf").exists()
