"""What each format writes it reads to the bit, as its own library does; what it would not read is not written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import in_process
import skips
from every_row import over_rows
from format_cases import CASES, WHOLE, WRITTEN, small_net, weights_of, write_version_1
from interrupts import Tracer
from keras_nets import net_of
from nets import all_bits, bits, state_of
from singa_lite import FeedForwardNet, Layer, SnapshotError, autograd, layers, optimizer, tensor
from singa_lite.__main__ import main
from singa_lite.snapshots import command, formats, net_tree, output
from singa_lite.snapshots.formats.table import FORMATS, of_path
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.tree import Tree
from snapshot_nets import OPTIMIZERS, batches, dense_net, lazy, make_net, peak_of, train, trained


@pytest.fixture(params=WRITTEN)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of each format that is written."""
    return tmp_path / f"net{request.param}"


@pytest.fixture(params=WHOLE)
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of each format that holds the optimizer too."""
    return tmp_path / f"net{request.param}"


def tree_of(**arrays: np.ndarray) -> Tree:
    """Of these parameters of a layer "x"."""
    made = {f"parameters/x/{name}": lazy(array) for name, array in arrays.items()}
    return Tree(made, {"format": "singa_lite", "version": 2, "entries": len(made)})


def with_weight(array: np.ndarray) -> Tree:
    """The tree of a net whose weight is this array."""
    contents = net_tree.of_net(dense_net("x"))
    contents.arrays["parameters/x/weight"] = lazy(array)
    return contents


def by_library(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file, by the library that the format comes from."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    if path.suffix == ".safetensors":
        return skips.library("safetensors.numpy").load_file(path)
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, one: found.update({name: np.asarray(one[()])} if isinstance(one, h5py.Dataset) else {})
        )
    return found


def refuse_to_write(path: Path, culprit: str, act: Callable[[], Any]) -> None:
    """The error names file and culprit, and the old file stands alone."""
    path.write_bytes(b"old")
    with pytest.raises(SnapshotError) as caught:
        act()
    assert str(path) in str(caught.value) and culprit in str(caught.value)
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


# ---- nets


def test_every_optimizer_is_in_the_table():
    kinds = {kind for kind in vars(optimizer).values() if isinstance(kind, type)}
    public = {kind for kind in kinds if issubclass(kind, optimizer.Optimizer)} - {optimizer.Optimizer}
    assert {type(make()) for make in OPTIMIZERS.values()} == public


@pytest.mark.parametrize(
    ("suffix", "compiled"), [*((".h5", name) for name in OPTIMIZERS), *((suffix, "Adam") for suffix in WHOLE[1:])]
)
def test_training_goes_on_as_if_it_had_not_been_interrupted(tmp_path, suffix, compiled):
    net, other, path = trained(compiled), make_net(compiled, seed=8), tmp_path / f"net{suffix}"
    net.save(path)
    at_save = state_of(net)
    losses, at_end = train(net, batches(2, start=3)), state_of(net)
    for each in (other, net):  # a net of other values, and back over what was trained since
        each.load(path)
        assert state_of(each) == at_save
        assert train(each, batches(2, start=3)) == losses
        assert state_of(each) == at_end


@pytest.mark.parametrize("dtype", ["float64", "longdouble", ">f4"])
def test_a_net_of_another_dtype_is_loaded_again_or_not_saved(path, dtype):
    net, other = (dense_net(seed=seed, dtype=dtype) for seed in (1, 2))
    if dtype == "longdouble":
        refuse_to_write(path, str(np.dtype(dtype)), lambda: net.save(path))
    else:
        net.save(path)
        other.load(path)
        assert state_of(other) == state_of(net)


def test_saving_changes_nothing_and_gives_equal_files_without_waste(whole):
    net, again = trained(), whole.with_stem("again")
    before = state_of(net)
    net.save(whole)
    net.save(again)
    assert state_of(net) == before
    assert again.read_bytes() == whole.read_bytes()
    sizes = [entry.nbytes for entry in net_tree.of_net(net).arrays.values()]
    assert whole.stat().st_size < 1.01 * sum(sizes) + 8192 + 2048 * len(sizes)


def test_an_open_file_is_the_tree_of_its_net(whole):
    wanted = net_tree.of_net(trained())
    trained().save(whole)
    with formats.opened(whole) as source:
        assert source.path == str(whole)
        assert source.attributes == wanted.attributes
        assert source.specs == {path: entry[:2] for path, entry in wanted.arrays.items()}
        assert source.arrays is source.arrays and source.attributes is source.attributes  # else loading is quadratic
        with pytest.raises(SnapshotError, match="parameters/none"):
            source.read("parameters/none")
        formats.write(source, whole.with_stem("again"))
    assert not list(command.differences(str(whole), str(whole.with_stem("again"))))


def test_the_library_of_the_format_sees_the_same(whole):
    net = trained()
    net.save(whole)
    found, wanted = by_library(whole), {path: one.fetch() for path, one in net_tree.of_net(net).arrays.items()}
    if whole.suffix == ".safetensors":  # PyTorch's names and axes
        assert bits(found["dense.weight"]) == bits(np.ascontiguousarray(wanted["parameters/dense/weight"].T))
        assert bits(found["norm.weight"]) == bits(wanted["parameters/norm/gamma"])
        parts = ("weight", "bias")
        names = {f"{layer}.{name}" for layer in ("conv", "norm", "dense", "first") for name in parts}
        assert {name for name in found if "/" not in name} == names | {"norm.running_mean", "norm.running_var"}
        wanted = {
            name: array
            for name, array in wanted.items()
            if not name.startswith("parameters/") and "/norm/r" not in name
        }
    else:
        assert {"manifest"} <= set(found) - set(wanted) <= {"manifest", "manifest_sha256"}
    assert all_bits({name: found[name] for name in wanted}) == all_bits(wanted)


def test_a_wrong_bit_is_an_error_that_names_its_array(path):
    """The first and the last byte of each array; of one array each bit."""
    net, found = trained(), set()
    net.save(path)
    data, other = path.read_bytes(), make_net("Adam", seed=8)
    before = state_of(other)
    for entry, one in net_tree.of_net(net).arrays.items():
        array = one.fetch()
        array = array.T.copy() if path.suffix == ".safetensors" and array.ndim == 2 else array
        start = data.find(array.tobytes())
        if data.count(array.tobytes()) != 1:
            continue  # counts, which are equal, and in Keras's order of axes kernels
        found.add(entry)
        each = range(8 * array.nbytes) if entry == "parameters/norm/beta" else (3, 8 * array.nbytes - 1)
        for bit in each:
            changed = bytearray(data)
            changed[start + bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            with pytest.raises(SnapshotError, match=rf"{entry}.* is damaged"):
                other.load(path)
    assert state_of(other) == before
    assert len(found) > (7 if path.name.endswith(".weights.h5") else 20)


def test_a_file_that_changes_while_it_is_read_is_verified_again(whole):
    trained().save(whole)
    entry, data = "parameters/norm/beta", whole.read_bytes()
    os.utime(whole, (1, 1))  # clocks of file systems may be slower than this test
    with formats.opened(whole) as source:
        beta = source.read(entry)
        assert bits(source.read(entry)) == bits(beta)
        with open(whole, "r+b") as file:
            file.seek(data.index(beta.tobytes()))
            file.write(b"\xff")
        with pytest.raises(SnapshotError, match=entry):
            source.read(entry)
        os.truncate(whole, 3000)
        with pytest.raises(SnapshotError, match=str(whole)):
            for name in source.specs:
                source.read(name)


# ---- weights alone


def test_weights_alone_leave_all_else_of_a_net(path):
    net, other = trained("Adam"), trained("Adam", seed=8, steps=2)
    net.save(path, weights_only=True)
    with formats.opened(path) as source:
        assert set(source.specs) == set(weights_of(net))
    wanted = state_of(other)
    other.load(path)
    assert {name: bits(array) for name, array in weights_of(other).items()} == {
        name: bits(array) for name, array in weights_of(net).items()
    }
    parts = ("drop:", "step", *(f"{name}: " for name in net.param_names()))
    assert {name: state_of(other)[name] for name in wanted if name.startswith(parts)} == {
        name: value for name, value in wanted.items() if name.startswith(parts)
    }
    with pytest.raises(SnapshotError, match="Adam"):
        other.load(path, optimizer=True)


def test_a_file_is_converted_to_weights_alone(path, tmp_path, capsys):
    net, wanted = trained("Adam"), path.with_stem("wanted")
    net.save(tmp_path / "all.h5")
    net.save(wanted, weights_only=True)
    assert main(["snapshot", "convert", str(tmp_path / "all.h5"), str(path), "--weights-only"]) == 0
    assert "left out: " in capsys.readouterr().out
    assert main(["snapshot", "diff", str(path), str(wanted)]) == 0


class Counted(Layer):
    """Counts in whole numbers."""

    def setup(self, *shapes):
        self.add_state("count", (3,), 7, np.int64)
        self.add_state("random", (3,), dtype=np.uint64).copy_from_numpy(self.random_key("random"))
        return shapes[0]

    def forward(self, training, x):
        return autograd.identity(x)


def test_state_of_whole_numbers_belongs_to_the_weights(whole):
    net, other = (net_of(Counted("c", input_sample_shape=(4,)), layers.Dense("d", 2)) for _ in range(2))
    net.states()["c/count"].copy_from_numpy(np.array([5, 6, 2**40]))
    net.states()["c/random"].copy_from_numpy(np.arange(3).astype(np.uint64))
    net.save(whole, weights_only=True)
    other.load(whole)
    assert tensor.to_numpy(other.states()["c/count"]).tolist() == [5, 6, 2**40]
    assert tensor.to_numpy(other.states()["c/random"]).tolist() != [0, 1, 2]
    bare = net_of(layers.Dense("d", 2, input_sample_shape=(4,)))
    bare.save(whole, weights_only=True)
    with pytest.raises(SnapshotError, match="state/c/count"):
        other.load(whole)
    assert other.load(whole, strict=False).missing == ("c/count",)


def test_tables_of_positions_are_in_no_file_and_those_of_earlier_files_are_left(tmp_path):
    def made() -> FeedForwardNet:
        attention = layers.MultiHeadAttention("a", 2, rotary=True, use_bias=False, input_sample_shape=(5, 8))
        return net_of(attention, layers.SinusoidalPositions("p"))

    net, other, path = made(), made(), tmp_path / "net.npz"
    net.save(path)
    with np.load(path) as file:
        held = dict(file)
    assert not [name for name in held if "table" in name]
    for name, shape in (("state/a/table", (2, 5, 2)), ("state/p/table", (5, 8))):
        held[name] = np.full(shape, 9, np.float32)
    with formats.opened(path) as source:
        tree = source.with_more({name: lazy(array) for name, array in held.items() if "table" in name})
        formats.write(tree, tmp_path / "earlier.npz")
    for read in (
        lambda: other.load(tmp_path / "earlier.npz"),
        lambda: other.load(tmp_path / "earlier.npz", strict=False),
    ):
        assert not any(read())
        x = np.random.default_rng(2).standard_normal((3, 5, 8), np.float32)
        np.testing.assert_array_equal(other.predict(x), net.predict(x))


def test_a_file_of_others_may_lack_random_keys_and_no_statistics(tmp_path):
    net, held = small_net(), weights_of(small_net(5))
    np.savez(tmp_path / "x.npz", **{name: array for name, array in held.items() if name != "state/b/running_var"})
    with pytest.raises(SnapshotError, match="state/b/running_var"):
        net.load(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", **held)
    key = bits(net.states()["c/random"])
    net.load(tmp_path / "x.npz")
    assert bits(net.states()["c/random"]) == key
    assert {name: bits(array) for name, array in weights_of(net).items()} == {name: bits(a) for name, a in held.items()}


# ---- arrays

PLAIN = (*(f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)), "bool", "f2", "f4", "f8")
STRANGE = (">f4", ">i8", "complex128", "longdouble", "S3", "O", "U2", "M8[s]", "V4", "complex64", "bfloat16")
CONTENTS = {
    **{
        f"of_{kind}": (np.arange(6) % 2 if kind == "bool" else np.arange(6)).astype(kind).reshape(3, 2)
        for kind in PLAIN
    },
    "of_no_axes": np.array(2.5),
    "of_no_elements": np.empty((0, 3), np.float16),
    "of_four_axes": np.arange(24.0).reshape(2, 1, 3, 4),
    "of_no_numbers": np.array([0x7FC00001, 0x80000000, 0xFF800000, 0x7F800001], np.uint32).view(np.float32),
}


def test_arrays_of_any_dtype_and_shape(whole):
    formats.write(tree_of(**CONTENTS), whole)
    with formats.opened(whole) as source:
        assert source.specs == {f"parameters/x/{name}": (a.shape, a.dtype) for name, a in CONTENTS.items()}
        found = {name: bits(source.read(f"parameters/x/{name}")) for name in CONTENTS}
    prefix = "x." if whole.suffix == ".safetensors" else "parameters/x/"
    theirs = by_library(whole)
    wanted = {name: bits(array) for name, array in CONTENTS.items()}
    assert found == wanted == {name: bits(theirs[f"{prefix}{name}"]) for name in CONTENTS}


def test_an_array_is_read_as_it_was_or_is_not_written(path):
    more = {".safetensors": ("complex64",), ".weights.h5": ("bfloat16",)}
    takes = {*PLAIN, *next((kinds for end, kinds in more.items() if path.name.endswith(end)), ())}
    bfloat16 = skips.library("ml_dtypes").bfloat16

    def check(kind: str) -> None:
        array = np.zeros((3, 2), bfloat16 if kind == "bfloat16" else kind)
        path.unlink(missing_ok=True)
        if kind in takes:
            formats.write(with_weight(array), path)
            with formats.opened(path) as source:
                read = source.read("parameters/x/weight")
            assert bits(read) == bits(array.astype("f4") if kind == "bfloat16" else array)
        else:
            refuse_to_write(path, "'parameters/x/weight'", lambda: formats.write(with_weight(array), path))

    over_rows(check, [(kind, (kind,)) for kind in (*PLAIN, *STRANGE)])


def test_a_damaged_array_is_not_copied(whole):
    trained().save(whole)
    data = whole.read_bytes()
    at = data.index(tensor.to_numpy(trained().parameters()["norm/beta"]).tobytes())
    whole.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with formats.opened(whole) as source, pytest.raises(SnapshotError, match=f"{whole}.*norm/beta"):
        formats.write(source, whole.with_stem("copy"))
    assert list(whole.parent.iterdir()) == [whole]


# ---- names

NAMES = ("é ü", "层", "..", "a.b", " ", "x" * 300, "...", "%2E", "b\\c\n", "C:", '"\\', "__metadata__", "manifest")


def test_names_of_layers(path):
    for called in (
        *((name,) for name in NAMES),
        ("%", "%2E", "%252E", "..", "%2E%2E"),
        ("a", "a.b", "a.b.weight", "optimizer"),
    ):
        net, other = dense_net(*called), dense_net(*called, seed=8)
        net.save(path)
        other.load(path)
        assert state_of(other) == state_of(net), called


@pytest.mark.parametrize(
    ("suffix", "name"),
    [(".h5", "a\0b"), (".h5", "."), (".weights.h5", "x" * 70_000), (".npz", "x" * 70_000), (".safetensors", "\ud800")],
)
def test_a_name_that_a_format_cannot_hold_is_not_written(tmp_path, suffix, name):
    """No layer can have it; a tree that is made by hand can."""
    path, contents = tmp_path / f"net{suffix}", net_tree.of_net(dense_net("ab"))
    contents.arrays = {entry.replace("ab", name): one for entry, one in contents.arrays.items()}
    contents.attributes["layers"] = json.dumps([[name, "Dense"]])
    refuse_to_write(path, "", lambda: formats.write(contents, path))


ODD_PATHS = ["a", "a.b", "/a", "a/", "a//b", "//", "/", "", "%", "a/%/b", "C:", "C:/x", ".:x", "%:x", ".", "./a"]
ODD_PATHS += ["manifest", "manifest_sha256", "manifest/a", "%6Danifest", "a\\b:c", "\0:a"]
ODD_PATHS += [f"parameters/{name}/y" for name in NAMES]


def test_paths_of_another_programs_file(tmp_path):
    """Each apart, and all together: those of an archive are all different."""

    def check(given: tuple[str, ...]) -> None:
        arrays = {name: np.arange(number + 2.0) for number, name in enumerate(given)}
        formats.write(Tree({name: lazy(array) for name, array in arrays.items()}), tmp_path / "x.npz")
        with formats.opened(tmp_path / "x.npz") as source:
            assert {name: bits(source.read(name)) for name in source.specs} == all_bits(arrays)
        theirs = by_library(tmp_path / "x.npz")
        assert {bits(array) for array in arrays.values()} <= {bits(array) for array in theirs.values()}

    over_rows(check, [(repr(given), (given,)) for given in (ODD_PATHS, *((name, "other") for name in ODD_PATHS))])


@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
def test_kinds_of_paths(whole, kind, monkeypatch):
    monkeypatch.chdir(whole.parent)
    net, other = make_net("Adam"), make_net("Adam", seed=8)
    net.save(kind(whole.name))
    other.load(kind(whole.name))
    assert state_of(other) == state_of(net)


@pytest.mark.skipif(sys.platform != "linux", reason="this system wants file names in UTF-8")
def test_a_path_that_is_not_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\xe9.h5"
    net, other = make_net(), make_net(seed=8)
    net.save(path)
    other.load(os.fsdecode(path))
    assert state_of(other) == state_of(net)


# ---- the table of formats


def test_every_format_is_in_the_table_and_found_by_its_suffix(tmp_path):
    assert {one.name for one in FORMATS} == {of_path(f"x{case.suffix}").name for case in CASES.values()}
    for one in FORMATS:
        for suffix in one.suffixes:
            assert of_path(f"folder.npz/x{suffix.upper()}") is one
            with pytest.raises(TypeError, match="strange"):
                formats.write(Tree({}), tmp_path / f"x{suffix}", strange=1)
            if not one.is_written:
                with pytest.raises(SnapshotError, match=suffix):
                    formats.write(Tree({}), tmp_path / f"x{suffix}")
    assert not list(tmp_path.iterdir())


# ---- what no reader would take is not written


def test_what_would_be_refused_when_it_is_read_is_not_written(tmp_path, monkeypatch):
    def plain(**attributes: Any) -> Tree:
        contents = net_tree.of_net(dense_net())
        contents.attributes |= attributes
        return contents

    few = tree_of(**{f"{number}" * 300: np.zeros(1, np.float32) for number in range(3)})
    many = tree_of(**{str(number): np.zeros(1, np.float32) for number in range(15_000)})
    for suffix, room, contents, culprit in (
        (".h5", None, plain(layers="[]" * 500_000), "the manifest"),
        (".h5", None, plain(own=[1]), "'own'"),
        (".npz", 0, few, "the list of members"),
        (".npz", 2_100, few, "the manifest"),
        (".safetensors", None, many, "the header"),
    ):
        with monkeypatch.context() as patch:
            if room is not None:
                patch.setattr(raw, "ROOM", room)
            path = tmp_path / f"x{suffix}"
            refuse_to_write(path, culprit, lambda path=path, contents=contents: formats.write(contents, path))
            path.unlink()


# ---- disks, interrupts and memory: HDF5's are in `test_write_errors`


def test_calls_that_write_less_than_asked():
    class Slow:
        written = b""

        def write(self, data: Any) -> int:
            self.written += bytes(data[:3])
            return len(data[:3])

    slow = Slow()
    output.write_all(slow, np.arange(10, dtype=np.uint8).data)  # type: ignore[arg-type]
    assert slow.written == bytes(range(10))


@pytest.mark.parametrize("function", ["to_read", "_created"])
def test_an_interrupt_drops_no_open_file(tmp_path, monkeypatch, function):
    """Ctrl-C may come between opening a file and its `with` block. Warnings, of unclosed files too, are errors."""
    path, net = tmp_path / "x.npz", small_net()
    formats.save(net, path)
    work = (lambda: formats.load(net, path)) if function == "to_read" else (lambda: formats.save(net, path))
    dropped: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: dropped.append(repr(given.exc_value)))
    tracer = Tracer()
    tracer.run(work)
    events = [numbers for (code, _), numbers in tracer.places.items() if code.co_name == function]
    assert len(events) > 4
    for number in sorted({numbers[-1] for numbers in events}, reverse=True):  # the next run collects what one leaves
        tracer = Tracer(number)
        tracer.run(work)
        assert not dropped, tracer.place
        net.discard_step()


@pytest.mark.parametrize("is_turned", [False, True])
def test_one_array_at_a_time_is_held(path, is_turned):
    """Arrays of 8 MB, and 5 MB for all else. One that lies otherwise in the file is written in pieces."""
    net = FeedForwardNet(seed=1)
    if is_turned:  # rows behind an image, in Keras's order
        net.add(layers.Flatten("flat", input_sample_shape=(5, 10, 20)))
    for number, size in enumerate((2000, 1000, 2000)):
        net.add(layers.Dense(f"{number}", size, input_sample_shape=None if net.layers else (1000,)))
    largest = max(value.nbytes for value in net.param_values())
    net.save(path)
    assert peak_of(lambda: net.save(path)) < largest + (5 << 20)
    assert peak_of(lambda: net.load(path)) < (1 if path.suffix == ".npz" else 2) * largest + (5 << 20)
    assert path.stat().st_size < 1.01 * sum(value.nbytes for value in net.param_values()) + 20_000


RESIDENT = """
import sys
from singa_lite import FeedForwardNet, layers

def net_of(*names, size):
    net = FeedForwardNet(seed=1)
    for name in names:
        net.add(layers.Dense(name, size, use_bias=False, input_sample_shape=None if net.layers else (size,)))
    return net

net, small = net_of(*"abcd", size=2000), net_of("a", size=600)
for act, of_small in ((net.save, small.save), (net.load, small.load)):
    of_small(sys.argv[1] + "/small.h5")  # what is loaded or allocated at first use
    open("/proc/self/clear_refs", "w").write("5")
    marks = []
    for _ in range(2):
        marks += [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
        act(sys.argv[1] + "/net.h5")
    print((marks[1] - marks[0]) / 16e6)
"""


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="this system resets no high water mark")
def test_at_most_one_array_more_is_resident(tmp_path):
    """By the system, which sees HDF5's own memory too: arrays of 16 MB, and 4 MB for all else."""
    saving, loading = map(float, in_process.output(RESIDENT, str(tmp_path)).split())
    assert 0.9 < saving < 1.25
    assert loading < 1.25  # it may use what saving left


# ---- the native format of version 1


def test_version_1_is_read_and_written_as_version_2(tmp_path):
    net, path = make_net("Adam", seed=8), tmp_path / "old.h5"
    write_version_1(trained(), path)
    net.load(path)
    assert state_of(net) == state_of(trained())
    with formats.opened(path) as source:
        assert set(source.attributes) == {"format", "version", "entries", "optimizer", "step"}
    net.save(path)
    with h5py.File(path, "r+") as file:
        assert file.attrs["version"] == 2
        file.attrs["version"] = 1
    with pytest.raises(SnapshotError, match="version 1"):
        net.load(path)
