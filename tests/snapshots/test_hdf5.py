"""Snapshots in HDF5 files, through `net.save` and `net.load`: bits, bad files, full disks, and kills."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, SnapshotError, layers, loss, optimizer, tensor
from singa_lite.snapshots import hdf5
from snapshot_nets import OPTIMIZERS, batches, make_net, number_in, set_all, train, trained

#: How many savers are killed.
KILLS = int(os.environ.get("SINGA_LITE_TEST_KILLS", "40"))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A snapshot of `trained()`, Adam after three steps."""
    path = tmp_path / "net.h5"
    trained().save(path)
    return path


# ---- round trips, bit for bit


def test_every_optimizer_is_in_the_table():
    public = {kind for kind in vars(optimizer).values() if isinstance(kind, type)} - {optimizer.Optimizer}
    assert {type(make()) for make in OPTIMIZERS.values()} == public


@pytest.mark.parametrize("compiled", OPTIMIZERS)
def test_training_goes_on_as_if_it_had_not_been_interrupted(tmp_path, compiled):
    net = trained(compiled)
    net.save(tmp_path / "net.h5")
    at_save = state_of(net)
    losses = train(net, batches(4, start=3))
    at_end = state_of(net)

    other = make_net(compiled, seed=8)
    assert state_of(other) != at_save
    other.load(tmp_path / "net.h5")
    assert state_of(other) == at_save
    assert train(other, batches(4, start=3)) == losses
    assert state_of(other) == at_end

    net.load(tmp_path / "net.h5")  # back over what was trained since
    assert state_of(net) == at_save
    assert train(net, batches(4, start=3)) == losses
    assert state_of(net) == at_end


def test_float64(tmp_path):
    net, other = trained(dtype="float64"), make_net("Adam", seed=8, dtype="float64")
    net.save(tmp_path / "net.h5")
    other.load(tmp_path / "net.h5")
    assert state_of(other) == state_of(net)


def test_values_that_are_no_numbers_keep_their_bits(tmp_path):
    net, other = make_net(), make_net(seed=8)
    odd = np.array([0x7FC00001, 0x80000000, 0xFF800000], np.uint32).view(np.float32)  # NaN with a payload, -0, -inf
    net.parameters()["norm/beta"].copy_from_numpy(odd)
    net.save(tmp_path / "net.h5")
    other.load(tmp_path / "net.h5")
    assert tensor.to_numpy(other.parameters()["norm/beta"]).tobytes() == odd.tobytes()


def test_saving_changes_nothing_and_gives_equal_files(saved):
    net = trained()
    before = state_of(net)
    net.save(saved.parent / "again.h5")
    assert state_of(net) == before
    assert (saved.parent / "again.h5").read_bytes() == saved.read_bytes()


def test_the_file_by_h5py(saved):
    """The format, as other programs read it."""
    net = trained()
    with h5py.File(saved) as file:
        assert dict(file.attrs) == {
            "format": "singa_lite",
            "version": 1,
            "entries": 35,
            "optimizer": "Adam",
            "step": 3,
        }
        wanted = tensor.to_numpy(net.parameters()["conv/weight"])
        assert np.array_equal(file["parameters/conv/weight"][()], wanted)
        assert file["optimizer/conv/weight/count"][()] == 3
        assert file["state/drop/random"].dtype == np.uint64


@pytest.mark.parametrize("name", ["é ü", "层", "..", "a.b", " ", "x" * 300])
def test_names_of_layers(tmp_path, name):
    def named() -> FeedForwardNet:
        net = FeedForwardNet()
        net.add(layers.Dense(name, 2, input_sample_shape=(3,)))
        return net

    net, other = named(), named()
    net.save(tmp_path / "net.h5")
    other.load(tmp_path / "net.h5")
    assert state_of(other) == state_of(net)


@pytest.mark.parametrize("name", [".", "a\0b"])
def test_a_name_that_hdf5_cannot_store(saved, name):
    net, before = FeedForwardNet(), saved.read_bytes()
    net.add(layers.Dense(name, 2, input_sample_shape=(3,)))
    with pytest.raises(SnapshotError, match=r"net\.h5: cannot be written.*entry 'parameters/.*/weight'"):
        net.save(saved)
    assert saved.read_bytes() == before


@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
def test_kinds_of_paths(saved, kind, monkeypatch):
    monkeypatch.chdir(saved.parent)
    net = make_net("Adam", seed=8)
    net.load(kind("net.h5"))
    net.save(kind("copy.h5"))
    assert (saved.parent / "copy.h5").read_bytes() == saved.read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems want names in UTF-8")
def test_a_path_that_is_not_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\xe9.h5"
    net, other = trained(), make_net("Adam", seed=8)
    net.save(path)
    other.load(os.fsdecode(path))
    assert state_of(other) == state_of(net)


# ---- bad files: one clear error, and the net as it was


def assert_refused(path: Path, message: str, net: FeedForwardNet | None = None, **options: Any) -> None:
    net = trained(seed=8, steps=1) if net is None else net
    before = state_of(net)
    with pytest.raises(SnapshotError, match=message) as caught:
        net.load(path, **options)
    assert str(caught.value).startswith(f"{path}: ")
    assert state_of(net) == before


BETA = "parameters/norm/beta"
MOMENT = "optimizer/dense/weight/first_moment"


def change(act: Callable[[h5py.File], Any]) -> Callable[[Path], None]:
    """What is done to a good file, over h5py."""

    def do(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            act(file)

    return do


def without(name: str) -> Callable[[Path], None]:
    """Without an entry."""
    return change(lambda file: file.__delitem__(name))


def having(name: str, entry: Any) -> Callable[[Path], None]:
    """With an entry, new or in the place of another: an array, a link, a type."""

    def put(file: h5py.File) -> None:
        if name in file:
            del file[name]
        file[name] = entry

    return change(put)


def told(name: str, value: Any) -> Callable[[Path], None]:
    return change(lambda file: file.attrs.create(name, value))


def untold(name: str) -> Callable[[Path], None]:
    return change(lambda file: file.attrs.__delitem__(name))


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), "f4")
    layout[:] = h5py.VirtualSource(file["parameters/norm/gamma"])
    del file[BETA]
    file.create_virtual_dataset(BETA, layout)


def external(file: h5py.File) -> None:
    beta = str(Path(file.filename).with_name("beta.bin"))
    Path(beta).write_bytes(bytes(12))
    del file[BETA]
    file.create_dataset(BETA, (3,), "f4", external=[(beta, 0, 12)])


def empty_group(file: h5py.File) -> None:
    del file[BETA]
    file.create_group(BETA)


def cycle(file: h5py.File) -> None:
    del file[BETA]
    file["parameters/norm/loop"] = file["parameters"]


def dig(file: h5py.File) -> None:
    group = file
    for _ in range(500):
        group = group.create_group("g")


#: What is done to the file, and what the error says after the file's name.
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (without(BETA), f"wanted an entry '{BETA}'"),
    "missing slot": (without(MOMENT), f"wanted an entry '{MOMENT}'"),
    "missing slots": (without("optimizer/dense/weight"), "wanted the 35 entries written"),
    "missing layer": (without("parameters/norm"), "wanted an entry 'parameters/norm/gamma'"),
    "extra": (having("parameters/norm/mean", [1.0]), "received an entry 'parameters/norm/mean'"),
    "extra text": (having("notes", "text"), "received an entry 'notes'"),
    "extra without data": (having("notes", h5py.Empty("f4")), "received an entry 'notes'"),
    "shape": (having(BETA, np.ones((1, 3), "f4")), rf"'{BETA}': wanted shape \(3,\), received \(1, "),
    "dtype": (having(BETA, np.ones(3)), f"'{BETA}': wanted float32, received float64"),
    "text": (having(BETA, ["a", "b", "c"]), f"'{BETA}': wanted float32, received object"),
    "no data": (having(BETA, h5py.Empty("f4")), rf"'{BETA}': wanted shape \(3,\), received None"),
    "group": (change(empty_group), f"wanted an entry '{BETA}'"),
    "type": (having(BETA, np.dtype("f4")), f"'{BETA}': wanted a dataset stored in this file"),
    "soft link": (having(BETA, h5py.SoftLink("/parameters/norm/gamma")), f"'{BETA}'.*a link"),
    "broken link": (having(BETA, h5py.SoftLink("/none")), f"'{BETA}'.*received a link"),
    "external link": (having(BETA, h5py.ExternalLink("o.h5", BETA)), f"'{BETA}'.*received a link"),
    "linked group": (having("notes", h5py.SoftLink("/state")), "'notes'.*received a link"),
    "external data": (change(external), f"'{BETA}': wanted a dataset stored in this file"),
    "virtual data": (change(virtual), f"'{BETA}': wanted a dataset stored in this file"),
    "deep": (change(dig), "wanted groups at most 64 deep"),
    "cycle": (change(cycle), f"wanted an entry '{BETA}'"),
    "broken name": (change(lambda f: f.create_dataset(b"\xff\xfe", data=1.0)), "the list of entries cannot be read"),
    "version": (told("version", 2), "wanted a snapshot of version 1 to 1, received 2"),
    "no format": (untold("format"), "wanted a snapshot of singa_lite, received format None"),
    "list": (told("format", ["singa_lite", "x"]), "wanted a snapshot of singa_lite"),
    "no step": (untold("step"), "attribute 'step': wanted a number from 0"),
    "optimizer": (told("optimizer", "SGD"), "wanted the state of optimizer Adam"),
    "empty": (lambda path: path.write_bytes(b""), "wanted a whole HDF5 file"),
    "text file": (lambda path: path.write_text("weights\n" * 500), "wanted a whole HDF5 file"),
    "zeros": (lambda path: path.write_bytes(bytes(40000)), "wanted a whole HDF5 file"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "wanted a whole HDF5 file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_file_is_refused_and_changes_nothing(saved, name):
    spoil, message = REFUSED[name]
    spoil(saved)
    assert_refused(saved, message)


def test_a_foreign_file(tmp_path):
    """Of another program, with links of its own; told by its format, not by its first entry."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["model_weights/dense/kernel"] = np.ones((3, 2), "f4")
        file["link"] = h5py.SoftLink("/model_weights")
        file.attrs["keras_version"] = "3.0"
    assert_refused(tmp_path / "other.h5", "wanted a snapshot of singa_lite, received format None")


def test_a_net_of_another_shape_or_dtype(saved):
    assert_refused(saved, r"'parameters/conv/weight': wanted float64", make_net("Adam", dtype="float64"))
    net = FeedForwardNet()
    net.add(layers.Dense("dense", 6, input_sample_shape=(5,)))
    assert_refused(saved, r"'parameters/dense/weight': wanted shape \(5, 6\), received \(60, 6\)", net)


@pytest.mark.parametrize("compiled", ["AdamW", "SGD with momentum"])
def test_another_optimizer(saved, compiled):
    assert_refused(saved, r"wanted the state of optimizer .*received Adam; load\(path, op", trained(compiled, steps=1))


def test_a_file_without_an_optimizer(tmp_path):
    make_net().save(tmp_path / "net.h5")
    assert_refused(tmp_path / "net.h5", r"optimizer Adam, received None; load\(path, optimizer=False\)")
    net, wanted = trained(seed=8), make_net()
    before = state_of(net)
    net.load(tmp_path / "net.h5", optimizer=False)
    assert state_of(net) == before | {"step": 3} | state_of(wanted)


def test_a_net_without_an_optimizer(saved):
    net = make_net(seed=8)
    assert_refused(saved, "wanted a compiled net", net, optimizer=True)
    net.load(saved)
    wanted = trained()
    wanted.optimizer = None
    assert state_of(net) == state_of(wanted)


def test_a_missing_file_is_named(tmp_path):
    net = trained()
    before = state_of(net)
    with pytest.raises(FileNotFoundError, match=r"none\.h5"):
        net.load(tmp_path / "none.h5")
    assert state_of(net) == before


def test_a_path_with_a_nul_is_not_cut_there(saved):
    assert_refused(Path(f"{saved}\0.h5"), "null byte")


def test_a_truncated_file_never_loads(saved):
    whole, net = saved.read_bytes(), trained(seed=8, steps=1)
    before, cut = state_of(net), saved.parent / "cut.h5"
    for length in [*range(0, len(whole), 331), *range(len(whole) - 9, len(whole))]:
        cut.write_bytes(whole[:length])
        with pytest.raises(SnapshotError, match=r"cut\.h5: "):
            net.load(cut)
        assert state_of(net) == before, f"cut to {length} bytes"


def test_bytes_behind_the_end_do_no_harm(saved):
    saved.write_bytes(saved.read_bytes() + b"more" * 99)
    net = make_net("Adam", seed=8)
    net.load(saved)
    assert state_of(net) == state_of(trained())


# ---- half a step


def test_half_a_step_is_not_saved_and_a_load_clears_it(saved):
    net, before = trained(), saved.read_bytes()
    x, y = batches(1)[0]
    net.loss.forward(True, net.forward(True, x), y)
    walk = net.backward(net.loss.backward())
    names, values, gradients, _ = next(walk)
    while not names:
        names, values, gradients, _ = next(walk)
    net.optimizer.update(names[0], values[0], gradients[0])
    walk.close()
    with pytest.raises(SnapshotError, match=f"wanted a whole step.*layer '{names[0].split('/')[0]}'"):
        net.save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["net.h5"]
    net.load(saved)
    assert state_of(net) == state_of(trained())
    net.save(saved)
    assert saved.read_bytes() == before


# ---- writing fails


def assert_not_written(net: FeedForwardNet, path: Path, before: bytes, message: str = "") -> None:
    with pytest.raises(SnapshotError, match=rf"net\.h5: cannot be written.*{message}") as caught:
        net.save(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["net.h5"]


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("owner", "call"), [(os, "fsync"), (os, "replace"), (h5py.Group, "create_dataset")])
def test_an_error_of_any_part(saved, monkeypatch, owner, call):
    net, before = trained("SGD", seed=8), saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, no_space)
        assert_not_written(net, saved, before, "No space left on device")
    net.save(saved)
    assert saved.read_bytes() != before


def test_an_error_midway(saved, monkeypatch):
    net, before, calls = trained("SGD", seed=8), saved.read_bytes(), []
    create = h5py.Group.create_dataset

    def fail_at_the_fifth(group: h5py.Group, name: str, **options: Any) -> h5py.Dataset:
        calls.append(name)
        return no_space() if len(calls) == 5 else create(group, name, **options)

    monkeypatch.setattr(h5py.Group, "create_dataset", fail_at_the_fifth)
    assert_not_written(net, saved, before, "No space left on device")
    assert len(calls) == 5


@contextmanager
def disk_of(length: int) -> Iterator[None]:
    """Files end at this byte: the system's limit of a file's size stands for a full disk."""
    resource = pytest.importorskip("resource", reason="needs a system with limits of a file's size")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_is_full_at_any_byte(saved):
    """Left to itself, HDF5 would lose such errors, or crash the process when it closes the file."""
    net, before = trained(seed=8), saved.read_bytes()
    for length in [*range(0, len(before), 499), len(before) - 1]:
        with disk_of(length):
            assert_not_written(net, saved, before, "File too large")
    net.save(saved)
    other = make_net("Adam")
    other.load(saved)
    assert state_of(other) == state_of(net)


def test_a_disk_that_gets_full_when_the_file_is_closed(saved, monkeypatch):
    close = h5py.File.close

    def close_without_space(file: h5py.File) -> None:
        with disk_of(0):
            close(file)

    monkeypatch.setattr(h5py.File, "close", close_without_space)
    assert_not_written(trained(seed=8), saved, saved.read_bytes(), "File too large")


def test_a_full_disk_stops_the_writing(saved, monkeypatch):
    names, create = [], h5py.Group.create_dataset

    def note(group: h5py.Group, name: str, **options: Any) -> h5py.Dataset:
        names.append(name)
        return create(group, name, **options)

    monkeypatch.setattr(h5py.Group, "create_dataset", note)
    with disk_of(0):
        assert_not_written(trained(seed=8), saved, saved.read_bytes(), "File too large")
    assert len(names) <= 1


def write_through(monkeypatch: pytest.MonkeyPatch, kind: type[FileIO]) -> None:
    """Put a kind of file below the one that HDF5 writes to."""
    monkeypatch.setattr(hdf5, "_Disk", type("Disk", (hdf5._Disk, kind), {}))


def test_calls_that_write_less_than_asked(saved, monkeypatch):
    """As Linux does for more than 2 GiB."""

    class Short(FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:101])

    net = trained(seed=8)
    write_through(monkeypatch, Short)
    net.save(saved)
    other = make_net("Adam")
    other.load(saved)
    assert state_of(other) == state_of(net)


@pytest.mark.parametrize("number", [0, 1, 9, 40])
def test_an_interrupt_while_hdf5_writes(saved, monkeypatch, number):
    """Ctrl-C in the middle passes on, and the old file stands."""
    before, calls = saved.read_bytes(), itertools.count()

    class Interrupted(FileIO):
        def write(self, data: Any) -> int:
            if next(calls) == number:
                raise KeyboardInterrupt
            return super().write(data)

    write_through(monkeypatch, Interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(seed=8).save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["net.h5"]


def test_a_missing_folder(tmp_path):
    with pytest.raises(SnapshotError, match=r"net\.h5: cannot be written.*No such file"):
        trained().save(tmp_path / "none" / "net.h5")
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="permissions and links as POSIX has them")
def test_permissions_and_links(saved):
    net, link = trained("SGD", seed=8), saved.parent / "best.h5"
    saved.chmod(0o640)
    link.symlink_to("net.h5")
    net.save(link)
    assert link.is_symlink() and not saved.is_symlink()
    assert saved.stat().st_mode & 0o777 == 0o640
    other = make_net("SGD")
    other.load(link)
    assert state_of(other) == state_of(net)


# ---- kills

# Forks savers, one a line of input. Each tells its process id, saves 1, 2, 3 and so on above the line's number and
# tells each when it is saved; after its end comes 0. Forking spares each the start of Python.
SAVERS = """
import os, sys
from snapshot_nets import set_all, trained
net = trained()
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.write(1, b"%d\\n" % os.getpid())
        number = int(line)
        while True:
            number += 1
            set_all(net, number)
            net.save(sys.argv[1])
            os.write(1, b"%d\\n" % number)
    os.waitpid(child, 0)
    os.write(1, b"0\\n")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_saver_leaves_the_old_file_or_the_new_one(tmp_path):
    """Each is killed after a save or two, at a random moment within the next two."""
    path, net, delays = tmp_path / "net.h5", trained(), random.Random(5)
    set_all(net, 0)
    net.save(path)
    last = leftovers = 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SAVERS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as savers:
        for _ in range(KILLS):
            savers.stdin.write(f"{last}\n")
            savers.stdin.flush()
            child = int(savers.stdout.readline())
            start = time.monotonic()
            reported = [int(savers.stdout.readline()) for _ in range(delays.randint(1, 2))]
            time.sleep(delays.uniform(0, 2) * (time.monotonic() - start) / len(reported))
            os.kill(child, signal.SIGKILL)
            last = max([*reported, *(int(line) for line in iter(savers.stdout.readline, "0\n"))])
            net.load(path)
            assert number_in(net) in (last, last + 1)
            last = number_in(net)
            for rest in set(os.listdir(tmp_path)) - {"net.h5"}:
                assert rest.startswith(".net.h5.") and rest.endswith(".tmp")
                os.unlink(tmp_path / rest)
                leftovers += 1
        savers.stdin.close()
    assert savers.returncode == 0
    assert leftovers, "no saver was killed while it wrote"


# ---- memory


def test_at_most_one_array_more_than_the_net_is_held(tmp_path):
    """Saving and loading copy one array at a time. The allowance, 1/8 of an array, is for names and h5py's objects."""
    net = FeedForwardNet(loss.SquaredError())
    net.add(layers.Dense("0", 499, input_sample_shape=(500,)))
    for place in range(1, 7):
        net.add(layers.Dense(str(place), 500 - place % 2))
    largest = max(value.nbytes for value in net.param_values())
    net.save(tmp_path / "net.h5")
    for act in (net.save, net.load):
        tracemalloc.start()
        act(tmp_path / "net.h5")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert largest <= peak < largest + largest // 8, act.__name__
