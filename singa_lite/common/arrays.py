"""Arrays of any library, pandas' tables among them, as NumPy's: over the same memory where it can be, or refused."""

from __future__ import annotations

from array import array as flat_array
from collections.abc import Sequence
from os import PathLike
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.checks import kind_of
from singa_lite.common.errors import GraphError, ShapeError

#: Kinds of NumPy dtypes that a tensor can have: bool, signed, unsigned, float.
KINDS = "biuf"
#: Numbers that lists may hold.
_NUMBERS = (bool, int, float, np.generic)
#: Memory that NumPy can read, by DLPack's numbers: the CPU's, and the CPU's that is pinned for CUDA.
_HOST = (1, 3)


Kept = TypeVar("Kept")


@runtime_checkable
class Indexed(Protocol):
    """An object that gives a part of itself for an index, such as a data set of an HDF5 or zarr file."""

    def __getitem__(self, index: object, /) -> object: ...


def is_plain(given: object) -> TypeGuard[Array]:
    """Whether it is NumPy's own array of numbers in native byte order, which needs no further check."""
    return type(given) is np.ndarray and given.dtype.isnative and given.dtype.kind in KINDS


def host_array(where: str, given: object) -> Array:
    """`numbers` in native byte order."""
    return given if is_plain(given) else native(numbers(where, given))


def numbers(where: str, given: object) -> Array:
    """`given` as a NumPy array, over the same memory if it can be.

    given: NumPy, DLPack on the host, anything with `__array__`, what can be sliced and says its shape and dtype, lists
    of numbers, a number. TypeError for all else, masked arrays, and dtypes without numbers in them (object, text,
    complex); ShapeError for lists of unequal lengths. where: what the message begins with.
    """
    found = _as_numpy(where, given)
    if found.dtype.kind not in KINDS:
        raise TypeError(f"{where}: wanted a bool, integer or float array, received dtype {found.dtype}")
    return found


def native(array: Array) -> Array:
    """The array itself, or a copy if its bytes are in another order than this machine's."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def may_convert(given: object) -> bool:
    """Whether it says that it is of real numbers, in the host's memory or on disk."""
    dtype = dtype_of(given)
    return on_host(given) and dtype is not None and dtype.kind in KINDS


def converted(given: Kept, dtype: DType | None) -> Kept | Array:
    """The same values in this dtype, if one is given; what is no NumPy array as it is."""
    if dtype is None or not isinstance(given, np.ndarray) or given.dtype == dtype:
        return given
    with np.errstate(over="ignore"):  # an infinity is told where the net meets it
        made: Array = given.astype(dtype)
    return made


def dtype_of(given: object) -> DType | None:
    """NumPy's dtype, in native byte order, of what names its dtype as NumPy or PyTorch does; else None."""
    said = getattr(given, "dtype", None)
    if said is None or is_table(said):  # NumPy takes None for float64; a DataFrame may have a column of this name
        return None
    if isinstance(said, np.dtype):  # of nearly every array: NumPy takes its time to name one
        return said if said.isnative else said.newbyteorder("=")
    for words in (said, str(said).removeprefix("torch.")):
        try:
            return np.dtype(words).newbyteorder("=")
        except (TypeError, ValueError):
            continue
    return None


def on_host(given: object) -> bool:
    """False for an array in a GPU's memory (CuPy, PyTorch, JAX)."""
    try:
        return not hasattr(given, "__dlpack_device__") or int(given.__dlpack_device__()[0]) in _HOST
    except (BufferError, RuntimeError, TypeError, ValueError):  # an array that cannot be exported at all
        return True


def check_detached(where: str, given: object) -> None:
    """TypeError for another library's tensor that requires grad: its tape would miss what is done here."""
    if getattr(given, "requires_grad", False) is True:
        raise TypeError(f"{where}: wanted values alone, received {kind(given)} that requires grad; detach() it first")


def says_form(where: str, given: object) -> bool:
    """Whether it says shape and dtype without being read. ValueError if it cannot, as of a file that was closed."""
    try:
        return _shape(given) is not None and dtype_of(given) is not None
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{where}: wanted a data set that is open, received {kind(given)}: {error}") from error


def _shape(given: object) -> Sequence[object] | None:
    shape = getattr(given, "shape", None)
    return shape if isinstance(shape, Sequence) else None


def is_lazy(where: str, given: object) -> bool:
    """Whether it is read by slices: it has shape, dtype and `[]`, and no memory to show (HDF5 and zarr sets)."""
    if isinstance(given, np.ndarray | np.generic | list | tuple) or not hasattr(given, "__getitem__"):
        return False
    if not says_form(where, given) or not all(isinstance(extent, int | np.integer) for extent in _shape(given) or ()):
        return False
    return not (hasattr(given, "__dlpack__") or hasattr(given, "iloc"))


def sliced(where: str, given: object, index: object) -> Array:
    """The samples of an array that is read by slices, at a slice or at increasing indices."""
    piece = given[index] if isinstance(given, Indexed) else None
    if not isinstance(piece, np.ndarray | np.generic) and not hasattr(piece, "__array__"):
        raise no_array(where, given)
    return host_array(where, piece)


def kind(given: object) -> str:
    """What to call it in a message, with its library: "a torch.Tensor", "None"; a class as `kind_of` does."""
    if given is None:
        return "None"
    if isinstance(given, type):
        return kind_of(given)
    made = type(given)
    module = (made.__module__ or "builtins").partition(".")[0]
    name = made.__qualname__ if module in ("builtins", "__main__") else f"{module}.{made.__qualname__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def no_array(where: str, given: object) -> TypeError:
    """The error for what is no array, which says what to do."""
    return TypeError(
        f"{where}: wanted an array (NumPy, CuPy, DLPack, a Tensor, an HDF5 data set, lists of numbers), "
        f"received {kind(given)}{_advice(given)}"
    )


def _advice(given: object) -> str:
    if given is None:
        return ""
    if isinstance(given, str | bytes | PathLike):
        return "; read the file first: singa_lite.data has loaders"
    if hasattr(given, "toarray"):
        return "; toarray() makes one of it"
    if hasattr(given, "__next__"):
        return "; np.stack(list(data)) gathers samples, train_one_batch takes batches"
    if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        return "; np.stack([data[i] for i in range(len(data))]) gathers samples, train_one_batch takes batches"
    if hasattr(given, "__iter__"):
        return "; call train_one_batch for each of its batches"
    return ""


def _as_numpy(where: str, given: object) -> Array:
    """The array that NumPy makes of it. NumPy is not let read objects of unknown length entry by entry."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(
            f"{where}: wanted an array without a mask, received {kind(given)}; filled() gives one its values"
        )
    if isinstance(given, np.ndarray | np.generic | bool | int | float | range | memoryview | flat_array):
        return np.asarray(given)
    if is_table(given):
        return table_array(given, table_dtype(where, given))
    if isinstance(given, list | tuple):
        _check_lists(where, given)
    elif not any(hasattr(given, name) for name in ("__array__", "__array_interface__", "__dlpack__")):
        if not is_lazy(where, given):
            raise no_array(where, given)
        return sliced(where, given, slice(0, next(iter(_shape(given) or ()), 0)))
    try:
        return np.from_dlpack(given) if hasattr(given, "__dlpack__") and on_host(given) else np.asarray(given)
    except GraphError:  # it is a tensor without a value
        raise
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        check_detached(where, given)
        if isinstance(given, list | tuple) and isinstance(error, ValueError):
            raise ShapeError(f"{where}: wanted lists of equal lengths at each depth, received others") from error
        raise TypeError(f"{where}: wanted an array that NumPy can read, received {kind(given)}: {error}") from error


def _check_lists(where: str, given: Sequence[object], outer: tuple[int, ...] = ()) -> None:
    """TypeError unless the lists hold numbers, arrays, and lists of them. ShapeError for a list that holds itself."""
    if id(given) in outer:
        raise ShapeError(f"{where}: wanted lists of numbers, received a list that holds itself")
    for made in set(map(type, given)):
        if issubclass(made, list | tuple):
            for entry in given:
                if type(entry) is made:
                    _check_lists(where, entry, (*outer, id(given)))
        elif issubclass(made, np.ma.MaskedArray) or not (issubclass(made, _NUMBERS) or hasattr(made, "__array__")):
            entry = next(entry for entry in given if type(entry) is made)
            raise TypeError(f"{where}: wanted lists of numbers or arrays, received one with {kind(entry)} in it")


def is_table(given: object) -> TypeGuard[Any]:
    """Whether it is a pandas Series or DataFrame."""
    return hasattr(given, "iloc") and hasattr(given, "to_numpy")


def table_dtype(where: str, table: Any) -> DType:
    """NumPy's dtype that holds all columns, those of nullable, Arrow, sparse and categorical dtypes too.

    TypeError for a column without numbers, ValueError for a missing integer or bool; the message names the column.
    """
    if not hasattr(table, "dtypes"):  # another library's, of one dtype
        plain: DType = table.iloc[0:1].to_numpy().dtype
        return plain
    is_series = len(table.shape) == 1
    columns = [table] if is_series else [table.iloc[:, number] for number in range(table.shape[1])]
    dtypes = [_column_dtype(where if is_series else f"{where}: column {each.name!r}", each) for each in columns]
    return np.result_type(*dtypes) if dtypes else np.dtype(float)


def table_array(table: Any, dtype: DType, copy: bool = False) -> Array:
    """The values, in the memory of the table where that can be. dtype: what `table_dtype` says."""
    own = np.atleast_1d(np.asarray(getattr(table, "dtypes", dtype), object))
    is_plain = all(isinstance(each, np.dtype) and each == dtype for each in own)
    found: Array = (table if is_plain else table.astype(dtype)).to_numpy(copy=copy)
    return found


def _column_dtype(where: str, column: Any) -> DType:
    said = column.dtype
    if not isinstance(said, np.dtype):
        names = ("numpy_dtype", "subtype") if getattr(said, "kind", "O") in KINDS else ("categories",)
        said = next((getattr(said, name) for name in names if hasattr(said, name)), said)
        said = getattr(said, "dtype", said)  # that of categories
        missing = column.isna().to_numpy()
        if isinstance(said, np.dtype) and said.kind in "biu" and missing.any():
            raise ValueError(f"{where}: wanted a number in each row, received none in row {int(missing.argmax())}")
    if not isinstance(said, np.dtype) or said.kind not in KINDS:
        raise TypeError(f"{where}: wanted a bool, integer or float array, received dtype {column.dtype}")
    return said
