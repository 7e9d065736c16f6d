"""Recurrent layers: all time steps in one call, a product and one pass over gates and states for each."""

from __future__ import annotations

from singa_lite.kernels.loop_kernels.operands import MASK_BYTES, check_stored, in_order, is_narrow
from singa_lite.kernels.loop_kernels.routine import Argument, Builder, Call, Routine, RowsView, want
from singa_lite.kernels.routine import Temporary

#: Columns of a panel at most: columns of matrices in the scratch are filled up to a multiple of it.
PANEL = 64


class _Plan:
    """A call: its operands as rows, its scratch and its sizes."""

    def __init__(self, call: Call, routine: Routine) -> None:
        self.call, self.routine, mask = call, routine, call.optional("mask")
        check_stored(*(spec for name, spec in call.operands.items() if name != "mask"))
        want(mask is None or mask.dtype.itemsize <= MASK_BYTES, "a mask of 8 bytes at most")
        gates = call.optional("gates_in") or call["dgates"]
        self.steps, self.samples, self.units = *gates.shape[:2], call["weight"].shape[0]
        self.weight = in_order(routine, call["weight"])
        self.is_hard = int(call.text("recurrent_activation") == "hard_sigmoid")
        self.is_relu = int(call.text("activation") == "relu")
        self.last = int(call.number("last"))

    def run(self, arguments: list[Argument], *numbers: int) -> None:
        """Adds the step of the kernel: these arguments, the sizes, and these numbers."""
        sizes = self.steps, self.samples, self.units, int(self.call.number("reverse"))
        self.routine.run(self.call.kernel, *arguments, *sizes, *numbers)

    def rows(self, *names: str) -> list[RowsView | None]:
        """Operands, None for those that are left out."""
        specs = map(self.call.optional, names)
        return [None if spec is None else in_order(self.routine, spec) for spec in specs]

    def counted_steps(self) -> Temporary | None:
        """Of each step and sample, whether the step counts; None without a mask."""
        mask = self.call.optional("mask")
        if mask is None:
            return None
        seen = self.routine.temporary((self.steps, self.samples), "uint8")
        row_stride, step_stride = mask.strides
        form = mask.dtype.itemsize, int(mask.dtype.kind not in "biu")
        self.routine.run("mark_seen", mask, seen, self.steps, self.samples, step_stride, row_stride, *form)
        return seen

    def packed(self, first: int, depth: int, columns: int, transposed: bool = False) -> Temporary:
        """The part of the weight from a column on as panels (depth, columns)."""
        panels = self._padded(depth, columns)
        how = "pack_panels_transposed" if transposed else "pack_panels"
        self.routine.run(how, self.weight, panels, first, depth, columns)
        return panels

    def sums(self, columns: int) -> Temporary:
        """A buffer for the result of a step's product."""
        return self._padded(self.samples, columns)

    def wide(self, columns: int, *names: str) -> Temporary | None:
        """A buffer for a step's rows of one of these operands in float32, None where all are stored so."""
        return self._padded(self.samples, columns) if any(map(is_narrow, self.call.all(*names))) else None

    def carry_buffer(self) -> Temporary:
        """A buffer for what goes past a step to the one before."""
        return self.routine.temporary((self.samples, self.units), "float32")

    def _padded(self, rows: int, columns: int) -> Temporary:
        """A buffer for a matrix in float32, whose columns are those of whole panels."""
        return self.routine.temporary((rows, -(-columns // PANEL) * PANEL), "float32")


def _lstm(call: Call, routine: Routine) -> None:
    plan, columns = _Plan(call, routine), 4 * call["weight"].shape[0]
    given: list[Argument] = [*plan.rows("gates_in", "hidden0", "cell0"), plan.counted_steps()]
    given += [*plan.rows("gates", "hidden", "cell"), plan.packed(0, plan.units, columns), plan.sums(columns)]
    plan.run([*given, plan.wide(plan.units, "hidden")], plan.is_hard)


def _lstm_derivative(call: Call, routine: Routine) -> None:
    plan, columns = _Plan(call, routine), 4 * call["weight"].shape[0]
    given: list[Argument] = [*plan.rows("dy"), plan.counted_steps(), *plan.rows("gates", "cell", "dgates")]
    given += [plan.packed(0, columns, plan.units, transposed=True), plan.sums(plan.units)]
    plan.run([*given, plan.wide(columns, "dgates"), plan.carry_buffer(), plan.carry_buffer()], plan.last, plan.is_hard)


def _gru(call: Call, routine: Routine) -> None:
    plan, units = _Plan(call, routine), call["weight"].shape[0]
    given: list[Argument] = [*plan.rows("gates_in", "bias", "hidden0"), plan.counted_steps()]
    given += [*plan.rows("gates", "products", "hidden"), plan.packed(0, units, 2 * units)]
    given += [plan.packed(2 * units, units, units), plan.sums(2 * units), plan.sums(units)]
    plan.run([*given, plan.wide(units, "hidden", "products")], int(call.number("reset_after")), plan.is_hard)


def _gru_derivative(call: Call, routine: Routine) -> None:
    plan, units = _Plan(call, routine), call["weight"].shape[0]
    given: list[Argument] = [*plan.rows("dy"), plan.counted_steps(), *plan.rows("gates", "products", "hidden")]
    given += [*plan.rows("dgates", "dproducts"), plan.packed(0, 2 * units, units, transposed=True)]
    given += [plan.packed(2 * units, units, units, transposed=True), plan.sums(units)]
    plan.run([*given, plan.wide(2 * units, "dgates", "dproducts"), plan.carry_buffer()], plan.last, plan.is_hard)


def _simple_rnn(call: Call, routine: Routine) -> None:
    plan, units = _Plan(call, routine), call["weight"].shape[0]
    given: list[Argument] = [*plan.rows("gates_in", "hidden0"), plan.counted_steps(), *plan.rows("hidden")]
    plan.run([*given, plan.packed(0, units, units), plan.sums(units), plan.wide(units, "hidden")], plan.is_relu)


def _simple_rnn_derivative(call: Call, routine: Routine) -> None:
    plan, units = _Plan(call, routine), call["weight"].shape[0]
    given: list[Argument] = [*plan.rows("dy"), plan.counted_steps(), *plan.rows("hidden", "dgates")]
    given += [plan.packed(0, units, units, transposed=True), plan.sums(units), plan.wide(units, "dgates")]
    plan.run([*given, plan.carry_buffer()], plan.last, plan.is_relu)


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "lstm": _lstm,
    "lstm_derivative": _lstm_derivative,
    "gru": _gru,
    "gru_derivative": _gru_derivative,
    "simple_rnn": _simple_rnn,
    "simple_rnn_derivative": _simple_rnn_derivative,
}
