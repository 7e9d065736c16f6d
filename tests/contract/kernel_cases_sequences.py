"""Cases of the kernels of embedding, position, root mean square normalization, and of losses by tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernel_case import Case, Tensors, garbage
from kernel_cases_pointwise import BIG, SCORES, SMALL, normal, targets
from kernel_cases_spatial import ROWS, positive
from singa_lite.kernels.interface.update import SgdHyper

Made = tuple[Tensors, dict[str, Any]]
#: ids, rows and features of a table.
TABLES = ((3, 5), 11, 7), ((7, 41), 229, 2503)
PLAIN = SgdHyper(momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, lr_mult=0.5)


def table(build: Callable[..., Made], dtype: Any = np.int64) -> Case:
    """build(rng, dtype, ids, rows, features) of a kernel with ids of the dtype."""

    def made(rng: np.random.Generator, floats: np.dtype, big: bool) -> Made:
        shape, rows, features = TABLES[big]
        return build(rng, floats, rng.integers(0, rows, shape).astype(dtype), rows, features)

    return Case(made)


def build_embedding(rng: np.random.Generator, dtype: np.dtype, ids: np.ndarray, rows: int, features: int) -> Made:
    """ids, weight, y."""
    return [ids, normal(rng, (rows, features), dtype), garbage((*ids.shape, features), dtype)], {}


def gradient(first: int = 0, left_out: int = 0, padding: int = -1) -> Callable[..., Made]:
    """ids, dy, and dweight of the rows from `first` to `left_out` before the last."""

    def build(rng: np.random.Generator, dtype: np.dtype, ids: np.ndarray, rows: int, features: int) -> Made:
        dweight = garbage((rows - first - left_out, features), dtype)
        return [ids, normal(rng, (*ids.shape, features), dtype), dweight], {"first": first, "padding": padding}

    return build


def by_rows(padding: int) -> Callable[..., Made]:
    """ids, dy, rate, value, count."""

    def build(rng: np.random.Generator, dtype: np.dtype, ids: np.ndarray, rows: int, features: int) -> Made:
        dy, value = normal(rng, (*ids.shape, features), dtype), normal(rng, (rows, features), dtype)
        return [ids, dy, np.array(0.03), value, np.array(3, np.int64)], {"hyper": PLAIN, "padding": padding}

    return build


def rotary(shapes: tuple[tuple[int, ...], ...], axis: int, inverse: bool) -> Case:
    """x, table, y."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = shapes[big]
        turns = normal(rng, (2, shape[axis], shape[-1] // 2), dtype)
        return [normal(rng, shape, dtype), turns, garbage(shape, dtype)], {"axis": axis, "inverse": inverse}

    return Case(build)


def build_read_at(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, position, y."""
    n, length, m, features = (11, 613, 97, 83) if big else (2, 7, 3, 5)
    return [normal(rng, (n, length, features), dtype), np.array([4]), garbage((n, m, features), dtype)], {}


def build_write_at(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, position, y."""
    n, length, m, features = (11, 613, 97, 83) if big else (2, 7, 3, 5)
    return [normal(rng, (n, m, features), dtype), np.array([4]), normal(rng, (n, length, features), dtype)], {}


def rms(name: str, label: str, **settings: Any) -> Case:
    """A kernel of root mean square normalization."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        rows, features = ROWS[label][big]
        shape = rows + features
        dy, x, out = normal(rng, shape, dtype), 1 + normal(rng, shape, dtype), garbage(shape, dtype)
        gamma, inv_rms = normal(rng, features, dtype), np.asarray(positive(rng, rows, dtype))
        tensors: dict[str, Tensors] = {
            "rms_norm": [x, gamma, out, garbage(rows, dtype)],
            "rms_norm_derivative": [dy, x, gamma, inv_rms, out],
            "rms_norm_gradient": [dy, x, inv_rms, garbage(features, dtype)],
        }
        return tensors[name], settings

    return Case(build)


def target_weights(id_dtype: Any, ignored: int) -> Case:
    """target, ids, weights."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        rows = 600_001 if big else 37
        target = rng.integers(0, 5, rows).astype(id_dtype)
        return [target, garbage((rows,), id_dtype), garbage((rows,), dtype)], {"ignored": ignored}

    return Case(build)


def build_differs(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, y."""
    shape = BIG if big else SMALL
    return [rng.integers(0, 3, shape), garbage(shape, dtype)], {"value": 1}


def build_weigh(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, weights, y."""
    shape = BIG if big else SMALL
    weights = rng.integers(0, 3, shape).astype(dtype)
    return [normal(rng, shape, dtype), weights, garbage(shape, dtype)], {}


def build_smooth_labels(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, target, losses."""
    x = 3 * normal(rng, SCORES[big], dtype)
    return [x, targets(rng, x.shape, np.int64), normal(rng, x.shape[:1], dtype)], {"share": 0.3}


def build_smooth_labels_derivative(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """dlosses, target, dx."""
    dx = normal(rng, SCORES[big], dtype)
    return [normal(rng, dx.shape[:1], dtype), targets(rng, dx.shape, np.int32), dx], {"share": 0.3}


def added_gradient(first: int, padding: int) -> Callable[..., Made]:
    """ids, dy, and dweight with something in it."""

    def build(rng: np.random.Generator, dtype: np.dtype, ids: np.ndarray, rows: int, features: int) -> Made:
        dy, dweight = normal(rng, (*ids.shape, features), dtype), normal(rng, (rows - first, features), dtype)
        return [ids, dy, dweight], {"first": first, "padding": padding}

    return build


def product_added(transpose_a: bool, transpose_b: bool, small: tuple[int, int, int], big: tuple[int, int, int]) -> Case:
    """a, b, y with something in it. small, big: rows, terms and columns."""

    def build(rng: np.random.Generator, dtype: np.dtype, is_big: bool) -> Made:
        rows, terms, columns = big if is_big else small
        a, b = normal(rng, (rows, terms), dtype), normal(rng, (terms, columns), dtype)
        factors = [np.ascontiguousarray(f.T) if t else f for f, t in ((a, transpose_a), (b, transpose_b))]
        settings = {"transpose_a": transpose_a, "transpose_b": transpose_b}
        return [*factors, normal(rng, (rows, columns), dtype)], settings

    return Case(build)


def low_rank(back: bool, first: bool = False, scale: float = 0.5) -> Case:
    """x, a, b, h, y; or dy, x, a, b, h, dh, da, db, dx. first: without dx."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        n, into, out, rank = (1013, 130, 517, 9) if big else (5, 4, 6, 3)
        x, y, h = (normal(rng, (n, width), dtype) for width in (into, out, rank))
        a, b = normal(rng, (into, rank), dtype), normal(rng, (rank, out), dtype)
        if not back:
            return [x, a, b, garbage(h.shape, dtype), y], {"scale": scale}
        made = [garbage(each.shape, dtype) for each in (h, a, b)]
        return [y, x, a, b, h, *made, None if first else normal(rng, x.shape, dtype)], {"scale": scale}

    return Case(build)


def build_log_sum_exp(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, y."""
    x = 3 * normal(rng, SCORES[big], dtype)
    return [x, garbage(x.shape[:1], dtype)], {}


def classes_derivative(first: int, share: float) -> Case:
    """dlosses, x, lse, target, dx: all classes but `first` before them and three behind."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        rows, some = SCORES[big]
        x, dlosses = 3 * normal(rng, (rows, some), dtype), normal(rng, (rows,), dtype)
        lse = np.log(np.exp(x).sum(1) + 2).astype(dtype)
        target, classes = targets(rng, (rows, first + some + 3), np.int64), first + some + 3
        settings = {"first": first, "classes": classes, "share": share}
        return [dlosses, x, lse, target, garbage((rows, some), dtype)], settings

    return Case(build)


CASES: dict[str, Case] = {
    "embedding": table(build_embedding),
    "embedding:bytes": table(build_embedding, np.uint8),
    "embedding_gradient": table(gradient(), np.int32),
    # A padding that occurs among the ids.
    "embedding_gradient:some rows": table(gradient(2, 3, padding=6)),
    "embedding_gradient_add": table(added_gradient(0, -1)),
    "embedding_gradient_add:some rows": table(added_gradient(2, 6), np.int32),
    "matmul_add": product_added(False, False, (3, 5, 7), (701, 67, 1013)),
    "matmul_add:a_transposed": product_added(True, False, (7, 4, 5), (1013, 67, 701)),
    "matmul_add:both_transposed": product_added(True, True, (3, 7, 5), (701, 67, 1013)),
    "low_rank_add": low_rank(back=False),
    "low_rank_add:as it is": low_rank(back=False, scale=1.0),
    "low_rank_add_derivative": low_rank(back=True),
    "low_rank_add_derivative:first": low_rank(back=True, first=True),
    "log_sum_exp": Case(build_log_sum_exp),
    "softmax_classes_derivative": classes_derivative(0, 0.0),
    "softmax_classes_derivative:smoothed": classes_derivative(5, 0.3),
    "sgd_rows": table(by_rows(-1)),
    "sgd_rows:padding": table(by_rows(6), np.uint8),
    "rotary": rotary(((3, 7, 10), (7, 311, 254)), -2, False),
    "read_at": Case(build_read_at),
    "write_at": Case(build_write_at),
    "rotary:back": rotary(((3, 5, 2, 6), (7, 101, 11, 82)), 1, True),
    **{
        name + label: rms(name, label, **settings)
        for name, settings in {
            "rms_norm": {"epsilon": 1e-3},
            "rms_norm_derivative": {},
            "rms_norm_gradient": {},
        }.items()
        for label in ROWS
    },
    "differs": Case(build_differs),
    "target_weights": target_weights(np.int64, 3),
    "target_weights:negative": target_weights(np.int32, -100),
    "weigh": Case(build_weigh),
    "smooth_labels": Case(build_smooth_labels),
    "smooth_labels_derivative": Case(build_smooth_labels_derivative),
}
