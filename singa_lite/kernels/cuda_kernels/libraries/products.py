"""Matrix products by a library: builders of the kernels that are one product, its bias and its activation.

cuBLASLt adds a bias and applies ReLU before the result is stored. Its GELU is the approximation by tanh, the one of the
interface is the exact form by erf: that one is not among the fusions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.elementwise import activated
from singa_lite.kernels.cuda_kernels.libraries.cublaslt_header import Epilogue
from singa_lite.kernels.cuda_kernels.libraries.matrix import MOST, Matrix, matrix
from singa_lite.kernels.cuda_kernels.libraries.nan_probe import NanProbe, Question, Trial
from singa_lite.kernels.cuda_kernels.libraries.product import Multiplication, Multiplier, Product, layout
from singa_lite.kernels.cuda_kernels.reduction import column_sums
from singa_lite.kernels.cuda_kernels.routine import THREADS, BufferView, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES, may_hold
from singa_lite.kernels.cuda_kernels.walk import dense, walk
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

#: Epilogues by activation, of a result without a bias and of one with.
_EPILOGUES = {
    "": (Epilogue.DEFAULT, Epilogue.BIAS),
    "relu": (Epilogue.RELU, Epilogue.RELU_BIAS),
}


class _MatrixView(NamedTuple):
    """Where matrices are, and how they lie there."""

    buffer: BufferView
    matrix: Matrix
    dtype: str

    @property
    def transposed(self) -> _MatrixView:
        return self._replace(matrix=self.matrix.transposed)

    @property
    def in_one(self) -> _MatrixView:
        return self._replace(matrix=self.matrix.in_one)


class Products:
    """The builders. multiplier: does the products; tf32: float32 factors may be rounded to 10 bits, which is faster.

    trial: how the library is asked whether its ReLU keeps NaN; where it does not, a kernel of ours is applied behind
    the product. None: it does.
    """

    #: Pairs of kernels that are done in one go.
    FUSIONS = (
        *(("linear", activation) for activation in _EPILOGUES if activation),
        ("matmul", "bias_gradient"),
    )

    def __init__(self, multiplier: Multiplier, tf32: bool = False, trial: Trial | None = None) -> None:
        self.multiplier = multiplier
        self.tf32 = tf32
        self._probe = NanProbe(trial)

    @property
    def builders(self) -> Mapping[str, CallBuilder[Routine]]:
        """By kernel."""
        return {
            "linear": self.linear,
            "linear_gradient": self.linear_gradient,
            "matmul": self.matmul,
            "matmul_add": self.matmul,
        }

    def linear(self, call: Call) -> Routine | None:
        """The bias is added, and ReLU applied, before the result is stored."""
        x, weight, bias, y = call["x"], call["weight"], call.optional("bias"), call["y"]
        activation = call.text("activation")
        if activation not in _EPILOGUES:
            return None
        if not activation or self.keeps_nan(x, bias, y):
            return self._dense(x, weight, bias, y, activation)
        routine, relu = self._dense(x, weight, bias, y), activated("relu", y)
        return None if routine is None or relu is None else routine.then(relu)

    def keeps_nan(self, x: TensorSpec, bias: TensorSpec | None, y: TensorSpec) -> bool:
        """Of products of these dtypes, by an aligned one and one that is not."""

        def questions() -> Iterator[Question]:
            for inputs, outputs in ((16, 8), (13, 5)):
                a, b = dense((3, inputs), x.dtype), dense((inputs, outputs), x.dtype)
                vector = None if bias is None else dense((outputs,), y.dtype)
                result = dense((3, outputs), y.dtype)
                yield Question(self._dense(a, b, vector, result, "relu"), (a, b, vector, result))

        return self._probe.keeps_nan((x.dtype.name, y.dtype.name, bias is None), questions)

    def matmul(self, call: Call) -> Routine | None:
        """A plain matrix is a batch with stride 0; where it comes second, all rows of `a` are one product with it.

        `matmul_add` adds what y holds before the result is stored.
        """
        transpose_a, transpose_b = bool(call.settings["transpose_a"]), bool(call.settings["transpose_b"])
        accumulate = call.kernel == "matmul_add"
        return self._matmul(call["a"], call["b"], call["y"], transpose_a, transpose_b, accumulate)

    def _matmul(
        self,
        a: TensorSpec,
        b: TensorSpec,
        y: TensorSpec,
        transpose_a: bool = False,
        transpose_b: bool = False,
        accumulate: bool = False,
    ) -> Routine | None:
        routine, result = Routine(), _written(y)
        left, right = _read(routine, a), _read(routine, b)
        if result is None or left is None or right is None or not _fit(a, b, y):
            return None
        left = left.transposed if transpose_a else left
        right = right.transposed if transpose_b else right
        if result.matrix.by_columns:
            left, right, result = right.transposed, left.transposed, result.transposed
        if not accumulate and _are_rows_of_one(left.matrix, right.matrix, result.matrix):
            left, result = left.in_one, result.in_one
        return self._product(routine, left, right, result, accumulate=accumulate)

    def linear_gradient(self, call: Call) -> Routine | None:
        """dweight = x^T @ dy, and dbias, the column sums of dy: from the same reads of dy, else by a kernel behind it.

        x: (n, in); dy: (n, out); dweight: (in, out); dbias: (out,). Not every dtype and version of the library has the
        epilogue, nor is it for sums with gaps; the product is the library's in any case.
        """
        x, dy, dweight, dbias = call.all("x", "dy", "dweight", "dbias")
        within = self._gradients(x, dy, dweight, dbias)
        if within is not None:
            return within
        product = self._matmul(x, dy, dweight, transpose_a=True)
        sums = None if product is None else column_sums(dy, dbias)
        return None if product is None or sums is None else product.then(sums)

    def _gradients(self, x: TensorSpec, dy: TensorSpec, dweight: TensorSpec, dbias: TensorSpec) -> Routine | None:
        """Both in one call. The library is asked for dweight^T = dy^T @ x, whose A is dy^T: dbias are the sums of the
        rows of A.
        """
        routine, result = Routine(), _written(dweight)
        left, right = _read(routine, x), _read(routine, dy)
        if result is None or left is None or right is None or result.matrix.by_columns:
            return None
        if not _fit(x, dy, dweight) or not _is_packed(dbias, dweight):
            return None
        return self._product(routine, left.transposed, right, result, Epilogue.BGRADA, dbias)

    def _dense(
        self, x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, y: TensorSpec, activation: str = ""
    ) -> Routine | None:
        routine, result = Routine(), _written(y)
        left, right = _read(routine, x), _read(routine, weight)
        if result is None or left is None or right is None or result.matrix.by_columns or not _fit(x, weight, y):
            return None
        epilogue = _EPILOGUES[activation][bias is not None]
        if bias is None or _is_packed(bias, y):
            return self._product(routine, left, right, result, epilogue, bias)
        copied = _copied(routine, bias, y.dtype)
        return None if copied is None else self._product(routine, left, right, result, epilogue, copied[0])

    def _product(
        self,
        routine: Routine,
        left: _MatrixView,
        right: _MatrixView,
        result: _MatrixView,
        epilogue: Epilogue = Epilogue.DEFAULT,
        bias: BufferView = None,
        accumulate: bool = False,
    ) -> Routine | None:
        """The routine with the step result = epilogue(left @ right); None if the library cannot do that.

        Memory read by columns shows the transposed matrix, so the library is asked for result^T = right^T @ left^T: A
        is `right`, B is `left`. The rows of D are the columns of the result, and a bias has an element for each.
        """
        product = Product(
            left.dtype,
            result.dtype,
            layout(right.matrix),
            layout(left.matrix),
            layout(result.matrix),
            transpose_a=right.matrix.by_columns,
            transpose_b=left.matrix.by_columns,
            batch=result.matrix.batch,
            epilogue=epilogue,
            tf32=self.tf32,
            accumulate=accumulate,
        )
        workspace = self.multiplier.workspace_bytes(product)
        if workspace is None:
            return None
        call = Multiplication(product, self.multiplier, workspace)
        return routine.call(call, right.buffer, left.buffer, result.buffer, bias)


def _fit(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> bool:
    """Floats of one dtype; the result of halves may be float32."""
    return a.dtype.name in FLOATS and a.dtype == b.dtype and may_hold(y.dtype, a.dtype)


def _are_rows_of_one(left: Matrix, right: Matrix, result: Matrix) -> bool:
    """Whether several matrices times one are one product."""
    return right.batch == 1 and left.batch * left.rows <= MOST and left.is_even and result.is_even


def _written(spec: TensorSpec) -> _MatrixView | None:
    found = matrix(spec)
    return None if found is None else _MatrixView(spec, found, spec.dtype.name)


def _read(routine: Routine, spec: TensorSpec) -> _MatrixView | None:
    """The matrices of a tensor, copied first where its strides are not those of matrices."""
    found = _written(spec)
    if found is not None:
        return found
    copied = _copied(routine, spec, spec.dtype)
    found = None if copied is None else _written(copied[1])
    return None if copied is None or found is None else found._replace(buffer=copied[0])


def _is_packed(vector: TensorSpec, like: TensorSpec) -> bool:
    """Whether a vector has no gaps between its elements, which are of the dtype of `like`."""
    return vector.dtype == like.dtype and (vector.size == 1 or vector.strides == (vector.dtype.itemsize,))


def _copied(routine: Routine, spec: TensorSpec, dtype: DType) -> tuple[Temporary, TensorSpec] | None:
    """A temporary that gets the tensor's values, in C order and of this dtype, and its spec."""
    made_like = dense(spec.shape, dtype)
    found = walk(spec.shape, (made_like, spec))
    if found is None or spec.dtype.name not in TYPES:
        return None
    made = routine.temporary(spec.shape, dtype)
    grid = blocks(spec.size, THREADS * max(1, 16 // dtype.itemsize))
    routine.launch("copy.cu", "copy", found, spec, made, types={"T": dtype, "S": spec.dtype}, grid=grid)
    return made, made_like
