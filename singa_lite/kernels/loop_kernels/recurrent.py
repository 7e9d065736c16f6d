"""Recurrent layers: all time steps in one call, a product and one pass over gates and states for each."""

from __future__ import annotations

from singa_lite.kernels.loop_kernels.operands import MASK_BYTES, are_stored, in_order, is_narrow
from singa_lite.kernels.loop_kernels.routine import Argument, Builder, Call, Routine, RowsView
from singa_lite.kernels.routine import Temporary

#: Columns of a panel at most: columns of matrices in the scratch are filled up to a multiple of it.
PANEL = 64


class _Plan:
    """A call: its operands as rows, its scratch and its sizes."""

    def __init__(self, call: Call, routine: Routine) -> None:
        self.call, self.routine = call, routine
        gates = call.optional("gates_in") or call["dgates"]
        self.steps, self.rows, self.units = *gates.shape[:2], call["weight"].shape[0]
        self.weight = in_order(routine, call["weight"])
        self.sizes = self.steps, self.rows, self.units, int(call.number("reverse"))
        self.is_hard = int(call.text("recurrent_activation") == "hard_sigmoid")

    def read(self, name: str) -> RowsView | None:
        """An operand that is only read; None where it is left out."""
        spec = self.call.optional(name)
        return None if spec is None else in_order(self.routine, spec)

    def written(self, name: str) -> RowsView:
        """An operand that is written, and perhaps read."""
        return in_order(self.routine, self.call[name], is_written=True)

    def counted_steps(self) -> Temporary | None:
        """Of each step and sample, whether the step counts; None without a mask."""
        mask = self.call.optional("mask")
        if mask is None:
            return None
        seen = self.routine.temporary((self.steps, self.rows), "uint8")
        row_stride, step_stride = mask.strides
        form = mask.dtype.itemsize, int(mask.dtype.kind not in "biu")
        self.routine.run("mark_seen", mask, seen, self.steps, self.rows, step_stride, row_stride, *form)
        return seen

    def packed(self, first: int, depth: int, columns: int, transposed: bool = False) -> Temporary:
        """The part of the weight from a column on as panels (depth, columns)."""
        panels = self.of_rows(depth, columns)
        how = "pack_panels_transposed" if transposed else "pack_panels"
        self.routine.run(how, self.weight, panels, first, depth, columns)
        return panels

    def of_rows(self, rows: int, columns: int) -> Temporary:
        """A buffer for a matrix in float32, whose columns are those of whole panels."""
        return self.routine.temporary((rows, -(-columns // PANEL) * PANEL), "float32")

    def wide(self, columns: int, *names: str) -> Temporary | None:
        """A buffer for a step's rows of one of these operands in float32, None where all are stored so."""
        return self.of_rows(self.rows, columns) if any(map(is_narrow, self.call.all(*names))) else None

    def carry_buffer(self) -> Temporary:
        """A buffer for what goes past a step to the one before."""
        return self.routine.temporary((self.rows, self.units), "float32")


def _planned(call: Call, routine: Routine) -> _Plan | None:
    """The plan; None for other types than float32 and bfloat16, and for a mask of longer numbers."""
    given, mask = [spec for name, spec in call.operands.items() if name != "mask"], call.optional("mask")
    has_known_mask = mask is None or mask.dtype.itemsize <= MASK_BYTES
    return _Plan(call, routine) if are_stored(*given) and has_known_mask else None


def _lstm(call: Call, routine: Routine) -> bool:
    plan = _planned(call, routine)
    if plan is None:
        return False
    columns = 4 * plan.units
    states: list[Argument] = [plan.read("gates_in"), plan.read("hidden0"), plan.read("cell0"), plan.counted_steps()]
    states += [plan.written(name) for name in ("gates", "hidden", "cell")]
    panels, sums = plan.packed(0, plan.units, columns), plan.of_rows(plan.rows, columns)
    routine.run("lstm", *states, panels, sums, plan.wide(plan.units, "hidden"), *plan.sizes, plan.is_hard)
    return True


def _lstm_derivative(call: Call, routine: Routine) -> bool:
    plan = _planned(call, routine)
    if plan is None:
        return False
    columns = 4 * plan.units
    given: list[Argument] = [plan.read("dy"), plan.counted_steps(), plan.read("gates"), plan.read("cell")]
    given += [plan.written("dgates"), plan.packed(0, columns, plan.units, transposed=True)]
    given += [
        plan.of_rows(plan.rows, plan.units),
        plan.wide(columns, "dgates"),
        plan.carry_buffer(),
        plan.carry_buffer(),
    ]
    routine.run("lstm_derivative", *given, *plan.sizes, int(call.number("last")), plan.is_hard)
    return True


def _gru(call: Call, routine: Routine) -> bool:
    plan = _planned(call, routine)
    if plan is None:
        return False
    units, is_after = plan.units, int(call.number("reset_after"))
    given: list[Argument] = [plan.read("gates_in"), plan.read("bias"), plan.read("hidden0"), plan.counted_steps()]
    given += [plan.written(name) for name in ("gates", "products", "hidden")]
    given += [plan.packed(0, units, 2 * units), plan.packed(2 * units, units, units)]
    given += [
        plan.of_rows(plan.rows, 2 * units),
        plan.of_rows(plan.rows, units),
        plan.wide(units, "hidden", "products"),
    ]
    routine.run("gru", *given, *plan.sizes, is_after, plan.is_hard)
    return True


def _gru_derivative(call: Call, routine: Routine) -> bool:
    plan = _planned(call, routine)
    if plan is None:
        return False
    units, dproducts = plan.units, call.optional("dproducts") and plan.written("dproducts")
    given: list[Argument] = [plan.read("dy"), plan.counted_steps(), *map(plan.read, ("gates", "products", "hidden"))]
    given += [plan.written("dgates"), dproducts, plan.packed(0, 2 * units, units, transposed=True)]
    given += [plan.packed(2 * units, units, units, transposed=True), plan.of_rows(plan.rows, units)]
    given += [plan.wide(2 * units, "dgates", "dproducts"), plan.carry_buffer()]
    routine.run("gru_derivative", *given, *plan.sizes, int(call.number("last")), plan.is_hard)
    return True


def _simple_rnn(call: Call, routine: Routine) -> bool:
    plan = _planned(call, routine)
    if plan is None:
        return False
    units = plan.units
    given: list[Argument] = [plan.read("gates_in"), plan.read("hidden0"), plan.counted_steps(), plan.written("hidden")]
    given += [plan.packed(0, units, units), plan.of_rows(plan.rows, units), plan.wide(units, "hidden")]
    routine.run("simple_rnn", *given, *plan.sizes, int(call.text("activation") == "relu"))
    return True


def _simple_rnn_derivative(call: Call, routine: Routine) -> bool:
    plan = _planned(call, routine)
    if plan is None:
        return False
    units = plan.units
    given: list[Argument] = [plan.read("dy"), plan.counted_steps(), plan.read("hidden"), plan.written("dgates")]
    given += [plan.packed(0, units, units, transposed=True), plan.of_rows(plan.rows, units)]
    given += [plan.wide(units, "dgates"), plan.carry_buffer()]
    is_relu = int(call.text("activation") == "relu")
    routine.run("simple_rnn_derivative", *given, *plan.sizes, int(call.number("last")), is_relu)
    return True


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "lstm": _lstm,
    "lstm_derivative": _lstm_derivative,
    "gru": _gru,
    "gru_derivative": _gru_derivative,
    "simple_rnn": _simple_rnn,
    "simple_rnn_derivative": _simple_rnn_derivative,
}
