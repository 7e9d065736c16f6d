"""What holds for every layer: gradients, shapes, both modes, both float types, views, and memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from layer_cases import CASES, Case
from singa_lite import autograd, device, layers, tensor
from singa_lite.layer.layer import Context, Layer
from singa_lite.layers import GRU, Dense
from singa_lite.tensor import Tensor
from singa_lite.testing.gradients import by_tape, outputs_of, projections, relative_error, spread
from singa_lite.testing.gradients import compare as check_gradients

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
DIFFERENTIABLE = {key: case for key, case in CASES.items() if case.differentiable}
every_differentiable_case = pytest.mark.parametrize("case", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE.keys())


class Prepared:
    """A case's layer with random parameters, running statistics and inputs; equal values for each dtype.

    extra: columns of NaN behind each input along axis 1, which `pass_on` must cut off.
    """

    def __init__(self, case: Case, dtype: str = "float64", on: Any = None, extra: int = 0) -> None:
        rng = np.random.default_rng(3)
        self.device = on or device.cpu()
        self.layer = case.placed(dtype, self.device) if case.placed else case.make()
        self.layer.prepare(case.shapes, Context(self.device, np.dtype(dtype), 5))
        for parameter in self.layer.parameters.values():
            parameter.copy_from_numpy(rng.uniform(0.3, 1.5, parameter.shape))
        for name, frozen in self.layer.frozen.items():
            self.layer.set_frozen(name, rng.integers(0x20, 0x3C, frozen.shape, np.uint8))
        for state in self.layer.states.values():
            if state.dtype.kind == "f":
                state.copy_from_numpy(rng.uniform(0.3, 1.5, state.shape))
        self.states = {name: tensor.to_numpy(state) for name, state in self.layer.states.items()}
        arrays = [self._values(rng, case, (case.batch, *shape)) for shape in case.shapes]
        columns = [np.full((case.batch, extra, *a.shape[2:]), np.nan if a.dtype.kind == "f" else 0) for a in arrays]
        wide = [np.concatenate(pair, 1) for pair in zip(arrays, columns, strict=True)]
        wide = [array.astype(dtype if array.dtype.kind == "f" else np.int32) for array in wide]
        self.inputs = [tensor.from_numpy(array, self.device) for array in wide]
        self.numbers = [entry for entry in self.inputs if entry.dtype.kind == "f"]
        for entry in self.numbers:
            entry.stores_grad = True

    def _values(self, rng: np.random.Generator, case: Case, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers within the case's reach, or ids if the layer takes ids: even ones from 0 to 6."""
        if self.layer.input_ids is None:
            return spread(rng, shape, -case.reach, case.reach)
        return np.resize(np.arange(min(self.layer.input_ids, 9) - 1)[::2], shape)

    @property
    def trained(self) -> list[Tensor]:
        """Inputs, but for ids, and parameters: all that gradients are taken by."""
        return [*self.numbers, *self.layer.parameters.values()]

    def forward(self, training: bool = True, pass_on: Callable[[Tensor], Tensor] = autograd.identity) -> Any:
        """Run from the state of the beginning. pass_on: what each input passes first."""
        for name, state in self.layer.states.items():
            state.copy_from_numpy(self.states[name])
        return self.layer.forward(training, *(pass_on(x) for x in self.inputs))

    def values(self, training: bool = True) -> list[np.ndarray]:
        """The outputs' values."""
        return [tensor.to_numpy(output) for output in outputs_of(self.forward(training))]


def exported() -> dict[str, type[Layer]]:
    """The layers that the package offers."""
    return {n: c for n, c in vars(layers).items() if inspect.isclass(c) and issubclass(c, Layer)}


def test_every_layer_has_a_case():
    missing = set(exported()) - {key.split(":")[0] for key in CASES}
    assert not missing, f"layers without a case in layer_cases.py: {sorted(missing)}"


@pytest.mark.parametrize("key", CASES)
def test_a_case_is_of_the_layer_that_it_names(key):
    assert type(CASES[key].make()) is exported()[key.split(":")[0]]


@pytest.mark.parametrize("cls", exported().values(), ids=exported())
def test_every_layer_takes_an_input_sample_shape(cls):
    made = next(case.make() for key, case in CASES.items() if key.split(":")[0] == cls.__name__)
    parameters = inspect.signature(cls).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    held = {"layers": [Dense("inner", 2)], "layer": GRU("inner", 2)}  # one is held once alone
    layer = cls(*(held.get(name) or getattr(made, name) for name in needed), input_sample_shape=(7, 5))
    assert layer.input_sample_shapes == [(7, 5)]


@every_differentiable_case
def test_gradients_are_those_of_central_differences(case):
    prepared = Prepared(case)
    check_gradients(prepared.forward, prepared.trained)


@every_case
def test_outputs_have_the_shape_that_was_told(case):
    prepared = Prepared(case)
    told = prepared.layer.get_output_sample_shape()
    given = prepared.forward()
    assert isinstance(told, list) == isinstance(given, list)
    wanted = told if isinstance(told, list) else [told]
    assert [output.shape for output in outputs_of(given)] == [(case.batch, *shape) for shape in wanted]


@every_case
def test_evaluation_mode(case):
    prepared = Prepared(case)
    evaluated = prepared.values(training=False)
    for name, state in prepared.layer.states.items():
        np.testing.assert_array_equal(tensor.to_numpy(state), prepared.states[name])
    if case.evaluation is None:
        for output, trained in zip(evaluated, prepared.values(), strict=True):
            np.testing.assert_array_equal(output, trained)
    else:
        values = {n: tensor.to_numpy(t) for n, t in prepared.layer.parameters.items()} | prepared.states
        wanted = case.evaluation(values, tensor.to_numpy(prepared.inputs[0]))
        np.testing.assert_allclose(evaluated[0], wanted, rtol=1e-12, atol=1e-12)


@every_differentiable_case
def test_float32_gives_nearly_the_same(case):
    single, double = Prepared(case, "float32"), Prepared(case)
    for training in (True, False):
        _nearly(single.values(training), double.values(training), np.float32)
    _nearly(by_tape(single.forward, single.trained), by_tape(double.forward, double.trained), np.float32)


@every_differentiable_case
def test_views_do_as_well_as_whole_tensors(case):
    """Inputs as Slice gives them, and derivatives as Concat gives them: neither lies in one piece."""
    whole, cut = Prepared(case), Prepared(case, extra=2)
    weights = projections(outputs_of(whole.forward()))

    def between_views() -> list[Tensor]:
        given = cut.forward(pass_on=lambda x: autograd.split(x, 1, (x.shape[1] - 2,))[0])
        return [autograd.concat([y, y.detach()], 1) for y in outputs_of(given)]

    wanted = by_tape(whole.forward, whole.trained, weights)
    found = by_tape(between_views, cut.trained, [np.concatenate([w, 2 * w], 1) for w in weights])
    for place, x in enumerate(whole.numbers):
        np.testing.assert_array_equal(found[place][:, x.shape[1] :], 0)
        found[place] = found[place][:, : x.shape[1]]
    _nearly(found, wanted, np.float64, 1e-12)


@every_case
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_a_forward_leaves_no_memory_behind(case, training):
    prepared = Prepared(case, on=device.new_cpu())
    before = prepared.device.pool.used
    outputs = prepared.forward(training)
    assert outputs_of(outputs)
    del outputs
    assert prepared.device.pool.used == before


def _nearly(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], dtype: Any, tolerance: float = 2e-5) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == dtype
        assert relative_error(mine, theirs) < tolerance
