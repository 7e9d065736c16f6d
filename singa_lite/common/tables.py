"""pandas' Series and DataFrames as NumPy's arrays, whatever dtypes their columns have."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from singa_lite.common.array_types import Array, DType

#: Kinds of NumPy dtypes that columns can have: bool, signed, unsigned, float.
_KINDS = "biuf"


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
        names = ("numpy_dtype", "subtype") if getattr(said, "kind", "O") in _KINDS else ("categories",)
        said = next((getattr(said, name) for name in names if hasattr(said, name)), said)
        said = getattr(said, "dtype", said)  # that of categories
        missing = column.isna().to_numpy()
        if isinstance(said, np.dtype) and said.kind in "biu" and missing.any():
            raise ValueError(f"{where}: wanted a number in each row, received none in row {int(missing.argmax())}")
    if not isinstance(said, np.dtype) or said.kind not in _KINDS:
        raise TypeError(f"{where}: wanted a bool, integer or float array, received dtype {column.dtype}")
    return said
