"""Arrays from outside, in every form: the same bits as a plain one, or one error before anything has moved."""

from __future__ import annotations

from array import array as flat_array
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import skips
from nets import bits, state_of
from singa_lite import FeedForwardNet, GraphError, ShapeError, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.data.loading.batch_sources import gives_batches

RNG = np.random.default_rng(12)
X = RNG.standard_normal((6, 5)).astype("f")
Y = RNG.integers(0, 3, 6)


def trained(graph: bool = True) -> FeedForwardNet:
    """A net with all that a step may move: running statistics, random state, the optimizer's state and step."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu(), seed=9)
    net.add(layers.Dense("first", 4, input_sample_shape=(5,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Dense("last", 3))
    net.compile(optimizer.Adam(0.01), graph=graph)
    net.train_one_batch(X, Y)
    return net


class Lazy:
    """What zarr, and many a reader of files, looks like: shape, dtype and `[]`, nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.array[index]


class OnGpu:
    """What CuPy's arrays look like to a net on the CPU: they are read by `get` alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("in the memory of a GPU")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("implicit conversion")

    def __getitem__(self, index: Any) -> OnGpu:
        return OnGpu(self.array[index])

    def get(self) -> np.ndarray:
        return self.array.copy()


class Unit(np.ndarray):
    """A subclass that has its own say in NumPy's functions."""

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise TypeError("a unit is wanted")


def misaligned(values: np.ndarray) -> np.ndarray:
    room = np.zeros(values.nbytes + 1, np.uint8)[1:]
    made = room.view(values.dtype).reshape(values.shape)
    made[:] = values
    assert not made.flags.aligned
    return made


def read_only(values: np.ndarray) -> np.ndarray:
    made = values.copy()
    made.flags.writeable = False
    return made


def mapped(values: np.ndarray, path: Path) -> np.ndarray:
    values.tofile(path / "mapped")
    return np.memmap(path / "mapped", values.dtype, "r", shape=values.shape)


def in_hdf5(values: np.ndarray, path: Path) -> Any:
    file = h5py.File(path / f"{values.ndim}.h5", "w")
    return file.create_dataset("set", data=values)


Make = Callable[[np.ndarray, Path], Any]

#: Of inputs and of class ids alike.
FORMS: dict[str, Make] = {
    "big-endian": lambda values, path: values.astype(values.dtype.newbyteorder(">")),
    "big-endian, mapped": lambda values, path: mapped(values.astype(values.dtype.newbyteorder(">")), path),
    "negative strides": lambda values, path: values[::-1].copy()[::-1],
    "gaps": lambda values, path: np.repeat(values, 2, axis=0)[::2],
    "fortran": lambda values, path: np.asfortranarray(values),
    "misaligned": lambda values, path: misaligned(values),
    "read-only": lambda values, path: read_only(values),
    "mapped": mapped,
    "subclass": lambda values, path: values.view(Unit),
    "hdf5": in_hdf5,
    "hdf5, big-endian": lambda values, path: in_hdf5(values.astype(values.dtype.newbyteorder(">")), path),
    "lazy": lambda values, path: Lazy(values),
    "frame": lambda values, path: framed(values),
    "on a GPU": lambda values, path: OnGpu(values),
    "tensor": lambda values, path: tensor.from_numpy(values),
    "tensor elsewhere": lambda values, path: tensor.from_numpy(values, device.new_cpu()),
    "tensor made big-endian": lambda values, path: big_endian_tensor(values),
    "tensor of PyTorch": lambda values, path: skips.library("torch").from_numpy(values.copy()),
    "list of arrays": lambda values, path: list(values),
    "memoryview": lambda values, path: memoryview(np.ascontiguousarray(values)),
}

#: Of class ids only.
IDS: dict[str, Make] = {
    **{name: lambda ids, path, name=name: ids.astype(name) for name in ("i1", "u1", ">i2", ">u4", "u8", ">u8", ">i8")},
    "list": lambda ids, path: ids.tolist(),
    "tuple": lambda ids, path: tuple(ids),
    "array": lambda ids, path: flat_array("q", ids.tolist()),
}


def big_endian_tensor(values: np.ndarray) -> Any:
    made = tensor.empty(values.shape, values.dtype.newbyteorder(">"))
    assert made.dtype.isnative
    made.copy_from_numpy(values)
    return made


def framed(values: np.ndarray) -> Any:
    pandas = skips.library("pandas")
    return (pandas.DataFrame if values.ndim > 1 else pandas.Series)(values)


def outcome(net: FeedForwardNet, x: Any, y: Any) -> list[Any]:
    """What all calls that take data give, and leave behind."""
    told: list[Any] = [bits(value) for value in net.train_one_batch(x, y)]
    told += [bits(value) for value in net.evaluate_one_batch(x, y)]
    told += [bits(value) for value in net.gradients(x, y).values()]
    told += [bits(net.forward(False, x)), bits(net.predict_one_batch(x)), bits(net.predict(x, batch_size=4))]
    history = net.fit(x, y, batch_size=4, epochs=2, validation_data=(x, y), verbose=False)
    net.fit(x, y, batch_size=4, shuffle=False, prefetch=2, verbose=False)
    return [*told, history["loss"], history["val_loss"], net.evaluate(x, y, batch_size=4), state_of(net)]


@cache
def plain(graph: bool) -> list[Any]:
    return outcome(trained(graph), X, Y)


@pytest.mark.parametrize("number", range(len(FORMS)), ids=FORMS)
def test_samples_and_class_ids_in_any_form(number, tmp_path):
    """Both in one: what they become is compared bit for bit, and an error names which of them it is about."""
    make, graph = list(FORMS.values())[number], number % 2 == 0
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    assert outcome(trained(graph), make(X, tmp_path / "x"), make(Y, tmp_path / "y")) == plain(graph)


@pytest.mark.parametrize("number", range(len(IDS)), ids=IDS)
def test_class_ids_in_any_form(number, tmp_path):
    graph = number % 2 == 0
    assert outcome(trained(graph), X, list(IDS.values())[number](Y, tmp_path)) == plain(graph)


def test_a_net_of_a_foreign_byte_order_is_native():
    net = FeedForwardNet(device=device.new_cpu(), dtype=">f8")
    net.add(layers.Dense("first", 4, input_sample_shape=(5,)))
    assert net.dtype.isnative and all(value.dtype.isnative for value in net.param_values())


def test_nothing_that_can_be_shown_is_copied():
    net = trained(graph=False)
    seen: list[Any] = []
    net.train_one_batch = lambda x, y: (seen.append(x), (tensor.zeros(()), None))[1]
    net.fit(X, Y, batch_size=3, shuffle=False, verbose=False)
    assert all(np.shares_memory(x, X) for x in seen)


# --- what is refused ----------------------------------------------------------------------------------------


class Sequence:
    """An object that would be asked for one entry after the other until memory ends."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> float:
        self.asked += 1
        if self.asked > 100:
            pytest.fail("read on and on")
        return 0.5


class Sparse:
    """What SciPy's sparse matrices look like."""

    shape, dtype = (6, 5), np.dtype("f")

    def __getitem__(self, index: Any) -> Sparse:
        return self

    def toarray(self) -> np.ndarray:
        return X


class Closed:
    """A set of a file that was closed."""

    @property
    def shape(self) -> Any:
        raise RuntimeError("the identifier is not of the specified type")

    def __getitem__(self, index: Any) -> Any:
        raise RuntimeError("closed")


def itself() -> list[Any]:
    made: list[Any] = []
    made += [made, made]
    return made


def recorded(values: np.ndarray) -> Any:
    """A tensor that has no value."""
    on = device.new_cpu()
    with on.recording():
        made = tensor.from_numpy(values, on) * 1
    return made


#: Samples and class ids alike: what is given, the error, words of its message. Made anew for each call.
NO_ARRAYS: dict[str, tuple[Callable[[], Any], type[Exception], list[str]]] = {
    "nothing": (lambda: None, TypeError, ["wanted an array", "received None"]),
    "a generator": (lambda: (row for row in X), TypeError, ["received a generator", "np.stack(list"]),
    "an iterator": (lambda: iter([X, X]), TypeError, ["received a list_iterator", "train_one_batch"]),
    "a sequence": (Sequence, TypeError, ["Sequence", "np.stack", "train_one_batch"]),
    "text": (lambda: "train.npz", TypeError, ["received a str", "loaders"]),
    "bytes": (lambda: X.tobytes(), TypeError, ["received a bytes", "loaders"]),
    "a list of text": (lambda: ["cat"] * 6, TypeError, ["received one with a str in it"]),
    "a list with nothing": (lambda: [1, 2, None], TypeError, ["received one with None in it"]),
    "unequal lists": (lambda: [[1, 2], [3]], ShapeError, ["lists of equal lengths"]),
    "a list in itself": (itself, ShapeError, ["holds itself"]),
    "a sparse matrix": (Sparse, TypeError, ["Sparse", "toarray()"]),
    "a closed file": (Closed, ValueError, ["wanted a data set that is open", "Closed", "identifier"]),
    "a masked array": (lambda: np.ma.masked_less(X, 0), TypeError, ["without a mask", "filled()"]),
    "a class": (lambda: tensor.Tensor, TypeError, ["received the class Tensor"]),
    "no value yet": (lambda: recorded(X), GraphError, ["recorded"]),
    "a single number": (lambda: 3.0, ShapeError, ["()"]),
    "no sample": (lambda: X[:0], ShapeError, ["(0, 5)"]),
}

BAD_SAMPLES = {
    **NO_ARRAYS,
    "objects": (lambda: X.astype(object), TypeError, ["wanted float32", "object"]),
    "structured": (lambda: np.zeros((6, 5), [("a", "f")]), TypeError, ["wanted float32", "'a'"]),
    "complex": (lambda: X.astype("F"), TypeError, ["wanted float32", "complex64"]),
    "float16": (lambda: X.astype("e"), TypeError, ["wanted float32", "float16"]),
    "longdouble": (lambda: X.astype("g"), TypeError, ["wanted float32", "float"]),
    "big-endian float64": (lambda: X.astype(">f8"), TypeError, ["wanted float32", ">f8", "astype('float32')"]),
    "a list of lists": (lambda: X.tolist(), TypeError, ["wanted float32", "float64"]),
}

OUT_OF_RANGE = {
    f"{bad} as {name}": (lambda name=name, bad=bad: with_id(name, bad), ValueError, [str(bad), "[4]"])
    for name, bad in [("i1", -1), ("u1", 255), (">i2", 256), (">i4", 2**24), (">i8", -1), (">u8", 2**64 - 1), ("i8", 3)]
}

BAD_IDS = {
    **NO_ARRAYS,
    **OUT_OF_RANGE,
    "out of range in a list": (lambda: [0, 1, 2, 0, 3, 1], ValueError, ["from 0 to 2", "3", "[4]"]),
    "out of range in a tensor": (lambda: tensor.from_numpy(with_id("i4", 7)), ValueError, ["7", "[4]"]),
    "out of range in a lazy set": (lambda: Lazy(with_id(">i8", 7)), ValueError, ["7", "[4]"]),
    "out of range on a GPU": (lambda: OnGpu(with_id("i8", 7)), ValueError, ["7", "[4]"]),
    "no whole numbers": (lambda: Y + 0.5, ValueError, ["whole numbers", "[0]"]),
    "objects": (lambda: Y.astype(object), TypeError, ["object"]),
    "huge numbers": (lambda: [2**70] * 6, TypeError, ["object"]),
    "two columns": (lambda: np.stack([Y, Y], 1), ShapeError, ["(6,)", "(6, 2)"]),
}

#: What every call takes as the class ids that they stand for.
CONVERTED_IDS = {
    "bools": lambda: Y > 0,
    "floats": lambda: Y.astype("f"),
    "a column": lambda: Y[:, None].view(np.matrix),
}


def with_id(dtype: str, bad: int) -> np.ndarray:
    ids = Y.astype(dtype)
    ids[4] = bad
    return ids


#: Every call that takes samples and targets.
CALLS: dict[str, Callable[[FeedForwardNet, Any, Any], Any]] = {
    "train_one_batch": lambda net, x, y: net.train_one_batch(x, y),
    "gradients": lambda net, x, y: net.gradients(x, y),
    "evaluate_one_batch": lambda net, x, y: net.evaluate_one_batch(x, y),
    "evaluate": lambda net, x, y: net.evaluate(x, y, batch_size=6),
    "fit": lambda net, x, y: net.fit(x, y, batch_size=6, verbose=False),
    "fit, prefetched": lambda net, x, y: net.fit(x, y, batch_size=6, verbose=False, prefetch=1),
    "fit, validation": lambda net, x, y: net.fit(X, Y, batch_size=6, verbose=False, validation_data=(x, y)),
}

#: Of these the ones that take one batch as it is; the others convert real numbers, see docs/data.md.
AS_IT_IS = ("train_one_batch", "gradients", "evaluate_one_batch")

#: What calls that convert take, by the keys of BAD_SAMPLES.
CONVERTED = ("float16", "longdouble", "big-endian float64", "a list of lists")


def check_refused(graph: bool, calls: list[Callable[[FeedForwardNet], Any]], error: type, words: list[str]) -> None:
    """Each call is one error of this kind with these words; state is bit for bit as before, and so is the next step."""
    net = trained(graph)
    before = state_of(net), net.device.seeds_given, net.recorded_forms
    for call in calls:
        with pytest.raises(error) as caught:
            call(net)
        assert caught.type is error
        assert not [word for word in words if word not in str(caught.value)], str(caught.value)
        assert (state_of(net), net.device.seeds_given, net.recorded_forms) == before
    net.train_one_batch(X, Y)
    assert state_of(net) == undisturbed(graph)


@cache
def undisturbed(graph: bool) -> dict[str, Any]:
    """The state of a net that nobody gave anything else, after the step."""
    net = trained(graph)
    net.train_one_batch(X, Y)
    return state_of(net)


def with_samples(make: Callable[[], Any], converted: bool = False) -> list[Callable[[FeedForwardNet], Any]]:
    """Every call that takes samples, with these. converted: whether some calls convert them, which are left out."""
    calls = [call for name, call in CALLS.items() if name in AS_IT_IS or not converted]
    found = [lambda net, call=call: call(net, make(), Y) for call in calls]
    if not (converted or gives_batches(make())):
        found.append(lambda net: net.predict(make()))
    found += [lambda net, training=training: net.forward(training, make()) for training in (True, False)]
    return [*found, lambda net: net.predict_one_batch(make())]


def with_ids(make: Callable[[], Any]) -> list[Callable[[FeedForwardNet], Any]]:
    """Every call that takes class ids, with these."""
    return [lambda net, call=call: call(net, X, make()) for call in CALLS.values()]


@pytest.mark.parametrize("number", range(len(BAD_SAMPLES)), ids=BAD_SAMPLES)
def test_samples_that_are_refused(number):
    name, (make, error, words) = list(BAD_SAMPLES.items())[number]
    check_refused(number % 2 == 0, with_samples(make, name in CONVERTED), error, ["'first'", *words])


@pytest.mark.parametrize("number", range(len(BAD_IDS)), ids=BAD_IDS)
def test_class_ids_that_are_refused(number):
    make, error, words = list(BAD_IDS.values())[number]
    check_refused(number % 2 == 0, with_ids(make), error, words)


@pytest.mark.parametrize("name", [*CONVERTED, *CONVERTED_IDS])
def test_what_is_converted_trains_as_what_it_stands_for(name):
    if name in BAD_SAMPLES:
        x, y = BAD_SAMPLES[name][0](), Y
        wanted = np.asarray(x, np.float32), Y
    else:
        x, y = X, CONVERTED_IDS[name]()
        wanted = X, np.asarray(y).astype(np.int64).reshape(-1)
    net, other = trained(True), trained(True)
    for one, data in ((net, (x, y)), (other, wanted)):
        if name in CONVERTED_IDS:
            one.train_one_batch(*data)
            assert [float(found) for found in one.evaluate_one_batch(*data)]
            assert one.gradients(*data)
        one.fit(*data, batch_size=4, verbose=False, validation_data=data)
    assert state_of(net) == state_of(other)
    assert net.evaluate(x, y, batch_size=4) == other.evaluate(*wanted, batch_size=4)
    np.testing.assert_array_equal(np.asarray(net.predict(x)), np.asarray(other.predict(wanted[0])))


@pytest.mark.peer
def test_tensors_of_pytorch_that_are_refused():
    torch = skips.library("torch")
    x = torch.from_numpy(X.copy())
    for given, words in [
        (x.clone().requires_grad_(), ["requires grad", "detach()"]),
        (x.bfloat16(), ["torch."]),  # a dtype that NumPy has where ml_dtypes is
        (x.to_sparse(), ["torch.Tensor"]),
        (torch.empty(X.shape, device="meta"), ["torch.Tensor"]),
    ]:
        check_refused(True, with_samples(lambda given=given: given), TypeError, ["'first'", *words])
    check_refused(True, with_ids(lambda: torch.from_numpy(Y) + 3), ValueError, ["from 0 to 2"])


def test_tensors_are_made_of_arrays_only():
    one = tensor.ones(())
    takes = [tensor.from_numpy, tensor.as_tensor, tensor.from_dlpack, tensor.zeros((6, 5)).copy_from_numpy]
    for take in [*takes, lambda given: one + given, lambda given: autograd.multiply(given, one)]:
        for name in ("a sequence", "a masked array", "a list of text", "a generator", "nothing", "text"):
            make, error, _ = NO_ARRAYS[name]
            with pytest.raises(error, match="wanted "):
                take(make())


# --- pandas' own dtypes -------------------------------------------------------------------------------------

TABLE = RNG.normal(size=(13, 3)).astype("f")
CLASSES = np.arange(13) % 3


def of_table() -> FeedForwardNet:
    made = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=2)
    made.add(layers.Dense("scores", 3, input_sample_shape=(3,)))
    made.compile(optimizer.SGD(lr=0.5))
    return made


@pytest.mark.parametrize("kind", ["Float32", "float[pyarrow]", "Sparse[float32]", "category", "one of each"])
def test_columns_of_any_dtype_of_pandas(kind):
    pandas = skips.library("pandas")
    if "pyarrow" in kind or "each" in kind:
        skips.library("pyarrow")
    frame, ids = pandas.DataFrame(TABLE, columns=list("abc")), pandas.Series(CLASSES)
    dtypes = {"a": "Float32", "b": "float[pyarrow]", "c": "float32"} if kind == "one of each" else kind
    found, plain = of_table(), of_table()
    plain.fit(TABLE, CLASSES, 5, epochs=2, verbose=False)
    found.fit(frame.astype(dtypes), ids.astype("Int64"), 5, epochs=2, prefetch=1, verbose=False)
    assert np.array_equal(found.predict(frame.astype(dtypes)), plain.predict(TABLE))
    for target in ("Int64", "UInt8", "category", "Sparse[int64]", *["int32[pyarrow]"] * ("each" in kind)):
        assert found.evaluate(TABLE, ids.astype(target)) == plain.evaluate(TABLE, CLASSES)
        found.train_one_batch(frame.astype(dtypes), ids.astype(target).to_frame())
        plain.train_one_batch(TABLE, CLASSES)
    weights = pandas.Series(np.linspace(0, 1, 13, dtype="f"))
    assert found.evaluate(TABLE, CLASSES, sample_weight=weights.astype("Float32")) == plain.evaluate(
        TABLE, CLASSES, sample_weight=weights
    )


def test_columns_without_numbers_are_named_with_their_row():
    pandas = skips.library("pandas")
    frame = pandas.DataFrame(TABLE, columns=["a", "b", "c"])
    late = np.arange(13) == 11
    for column, error, words in (
        (pandas.Series(["x"] * 13), TypeError, "'b'"),
        (pandas.Series(pandas.Categorical(["x"] * 13)), TypeError, "'b'.*category"),
        (pandas.Series([pandas.Timestamp("2020")] * 13), TypeError, "'b'.*datetime64"),
        (pandas.Series(CLASSES, dtype="Int64").mask(late), ValueError, "'b'.*row 11"),
        (pandas.Series(late, dtype="boolean").mask(late), ValueError, "'b'.*row 11"),
    ):
        for call in (of_table().fit, of_table().evaluate, of_table().train_one_batch):
            with pytest.raises(error, match=words):
                call(frame.assign(b=column), CLASSES)
    floats = pandas.Series(CLASSES).mask(late).astype("category")  # of which one is NaN, as in a plain column
    assert np.isnan(np.asarray(of_table().predict(frame.assign(b=floats)))[11]).all()
    with pytest.raises(ValueError, match=r"'scores'.*row 11"):
        of_table().fit(TABLE, pandas.Series(CLASSES, dtype="Int64").mask(late), verbose=False)
    with pytest.raises(ShapeError):
        of_table().fit(frame[[]], CLASSES, verbose=False)
