"""Tensor: values in and out, views, arithmetic as NumPy's, DLPack both ways, and whose memory it is."""

from __future__ import annotations

import operator
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import skips
from singa_lite import GraphError, OutOfMemoryError, ShapeError, Tensor, autograd, device, tensor

DTYPES = ["float16", "float32", "float64", "bool", "int8", "int32", "int64", "uint8", "uint64"]


def ramp(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1).astype(dtype)


# --- values in and out --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3, 5), (), (1,), (0, 3)], ids=str)
def test_values_go_in_and_come_out_and_numpy_sees_the_same_memory(dtype, shape):
    array = ramp(*shape, dtype=dtype)
    t = tensor.from_numpy(array.copy())
    back, shared = tensor.to_numpy(t), np.from_dlpack(t)
    assert (t.shape, t.dtype, t.size(), t.ndim, t.nbytes) == (shape, dtype, array.size, array.ndim, array.nbytes)
    assert back.dtype == array.dtype and back.flags.c_contiguous and back.flags.writeable
    for seen in (back, shared, np.asarray(t)):
        np.testing.assert_array_equal(seen, array)
    t.copy_from_numpy(np.zeros(shape, dtype))
    assert not shared.any()
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("take", [tensor.from_numpy, tensor.from_dlpack, tensor.as_tensor])
def test_values_are_copied_in_and_out(take):
    array = ramp(3, 2)
    t = take(array)
    array[:] = 0
    again = take(t) if take is tensor.from_dlpack else t
    for back in (tensor.to_numpy(t), np.asarray(t)):
        back[:] = -1
    np.testing.assert_array_equal(tensor.to_numpy(t), ramp(3, 2))
    np.testing.assert_array_equal(np.asarray(again, "float64"), ramp(3, 2, dtype="float64"))
    with pytest.raises(ValueError, match="from_dlpack"):
        np.asarray(t, copy=False)


@pytest.mark.parametrize("given", [ramp(4, 3).T, ramp(6, 4)[::2, 1:], ramp(3)[::-1], ramp(2, 3).astype(">f4")])
def test_any_layout_and_byte_order_comes_in_native(given):
    t = tensor.from_numpy(given)
    assert t.dtype.isnative and t.is_contiguous()
    np.testing.assert_array_equal(tensor.to_numpy(t), given)


def test_copy_from_numpy_overwrites_the_same_memory():
    t = tensor.from_numpy(ramp(3, 2))
    view = t.view((2, 3))
    for dtype in ("float64", "int32"):
        t.copy_from_numpy(-ramp(3, 2, dtype=dtype))
        np.testing.assert_array_equal(tensor.to_numpy(view), -ramp(2, 3))


def test_made_full_zeros_ones_and_empty():
    for made, wanted in ((tensor.full((2, 3), 2.5), 2.5), (tensor.zeros((4,)), 0), (tensor.ones((2, 1), "int32"), 1)):
        assert (tensor.to_numpy(made) == wanted).all()
    made = tensor.empty((3, 4), np.float64)
    assert (made.shape, made.dtype) == ((3, 4), np.float64)


def test_one_element_is_a_number():
    one = tensor.from_numpy(np.array([[2.5]], "f"))
    assert (float(one), int(one), one.item(), f"{one:.2f}") == (2.5, 2, 2.5, "2.50")
    assert tensor.from_numpy(np.array(3)).item() == 3


def test_repr_names_the_tensor_its_shape_dtype_and_device():
    t = tensor.from_numpy(ramp(2, 3))
    t.name = "conv/weight"
    for word in ("conv/weight", "(2, 3)", "float32", "cpu"):
        assert word in repr(t)


#: {what the message names: (the call, given two by three numbers and two whole ones, its error)}.
REFUSED = {
    "complex": (lambda t, i: tensor.from_numpy(np.array([1j])), TypeError),
    "<U1": (lambda t, i: tensor.from_numpy(np.array(["a"])), TypeError),
    "object": (lambda t, i: tensor.from_numpy(np.array([object()])), TypeError),
    "datetime": (lambda t, i: tensor.from_numpy(np.array([1], "M8[s]")), TypeError),
    "(3, 2)": (lambda t, i: t.copy_from_numpy(ramp(3, 2)), ShapeError),
    "(3,)": (lambda t, i: t.copy_from_numpy(ramp(3)), ShapeError),
    "(1, 3)": (lambda t, i: t.copy_from_numpy(ramp(1, 3)), ShapeError),
    "()": (lambda t, i: t.copy_from_numpy(np.float32(3)), ShapeError),
    "float64": (lambda t, i: i.copy_from_numpy(np.ones(2)), TypeError),
    "(2, -3)": (lambda t, i: tensor.empty((2, -3)), ShapeError),
    "one element": (lambda t, i: float(t), ShapeError),
    "(7,)": (lambda t, i: t.view((7,)), ShapeError),
    "(32,)": (lambda t, i: t.view((2,), (32,)), ShapeError),
    "20": (lambda t, i: t.view((2,), None, 20), ShapeError),
    "-4": (lambda t, i: t.view((2,), None, -4), ShapeError),
    "(2,)": (lambda t, i: t + tensor.from_numpy(ramp(2)), ShapeError),
    "float32 and float64": (lambda t, i: t * tensor.from_numpy(ramp(2, 3, dtype="float64")), TypeError),
    "matmul": (lambda t, i: t @ t, ShapeError),
    "None": (lambda t, i: t + None, TypeError),
    "a str": (lambda t, i: t + "3", TypeError),
    "a complex": (lambda t, i: t + 1j, TypeError),
}


@pytest.mark.parametrize("culprit", REFUSED)
def test_what_does_not_fit_is_refused(culprit):
    call, error = REFUSED[culprit]
    t, integers = tensor.from_numpy(ramp(2, 3)), tensor.from_numpy(np.arange(2))
    with pytest.raises(error, match=re.escape(culprit)):
        call(t, integers)
    np.testing.assert_array_equal(tensor.to_numpy(t), ramp(2, 3))
    np.testing.assert_array_equal(tensor.to_numpy(integers), np.arange(2))


# --- handles over memory ------------------------------------------------------------------------------------


def test_views_share_memory_which_lives_as_long_as_any_of_them():
    on = device.new_cpu()
    whole = tensor.from_numpy(ramp(4, 6), on)
    used = on.pool.used
    part = whole.view((4, 2), whole.strides, 2 * 4)
    assert (part.nbytes, part.is_contiguous(), whole.is_contiguous()) == (32, False, True)
    del whole
    assert on.pool.used == used
    for seen in (tensor.to_numpy(part), np.from_dlpack(part)):
        np.testing.assert_array_equal(seen, ramp(4, 6)[:, 2:4])
    del part, seen
    assert on.pool.used == 0


def test_the_tape_knows_parameters_and_no_detached_tensor():
    p = tensor.from_numpy(ramp(3))
    assert not p.stores_grad and not p.requires_grad
    p.stores_grad = True
    y = p * 2.0
    other = y.detach()
    assert y.requires_grad and not other.requires_grad and other.creator is None
    other.copy_from_numpy(np.zeros(3))
    np.testing.assert_array_equal(tensor.to_numpy(y), np.zeros(3))
    p.stores_grad = False
    assert not p.requires_grad


def test_released_this_handle_is_dead_and_others_are_not():
    t = tensor.from_numpy(ramp(3))
    t.name = "weight"
    other = t.view((1, 3))
    t.release()
    for use in (lambda: t.device, lambda: tensor.to_numpy(t), lambda: t + 1.0, lambda: np.from_dlpack(t)):
        with pytest.raises(GraphError, match="weight"):
            use()
    np.testing.assert_array_equal(tensor.to_numpy(other), ramp(1, 3))


def test_to_device_copies_only_to_another_device_and_keeps_what_it_is():
    t = tensor.from_numpy(ramp(3, 2))
    t.name, t.stores_grad = "w", True
    assert t.to_device(t.device) is t
    other = device.new_cpu()
    moved = t.to_device(other)
    assert moved.device is other and other.pool.used >= t.nbytes
    assert (moved.name, moved.stores_grad) == ("w", True)
    t.copy_from_numpy(np.zeros((3, 2)))
    np.testing.assert_array_equal(tensor.to_numpy(moved), ramp(3, 2))


def test_as_tensor_copies_only_what_it_must():
    t = tensor.from_numpy(ramp(3))
    assert tensor.as_tensor(t) is t
    assert tensor.as_tensor(t, t.device) is t
    other = device.new_cpu()
    assert tensor.as_tensor(t, other).device is other
    assert tensor.as_tensor(ramp(3), other).device is other
    np.testing.assert_array_equal(tensor.to_numpy(tensor.as_tensor([[1, 2], [3, 4]])), [[1, 2], [3, 4]])


# --- arithmetic ---------------------------------------------------------------------------------------------


BINARY = [operator.add, operator.sub, operator.mul, operator.truediv]
finite = st.floats(0.25, 4.0, width=32).flatmap(lambda x: st.sampled_from([x, -x]))


@settings(max_examples=60, deadline=None)
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4), st.data())
def test_arithmetic_broadcasts_as_numpy_does(shapes, data):
    a, b = (data.draw(hnp.arrays("float32", shape, elements=finite)) for shape in shapes.input_shapes)
    for operation in BINARY:
        result = tensor.to_numpy(operation(tensor.from_numpy(a), tensor.from_numpy(b)))
        wanted = operation(a, b)
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(result, wanted)


NUMBERS = [3, -0.5, True, np.float32(1.5), np.float64(0.25), np.int64(2)]
ARRAYS = [ramp(2, 3), ramp(3), ramp(2, 1), np.array(2.0, "f"), ramp(4, 2, 3)]


@pytest.mark.parametrize("operation", BINARY)
def test_numbers_and_arrays_on_either_side_give_tensors(operation):
    array = ramp(2, 3)
    t = tensor.from_numpy(array)
    for other in (*NUMBERS, *ARRAYS):
        for result, wanted in (
            (operation(t, other), operation(array, np.asarray(other, "f"))),
            (operation(other, t), operation(np.asarray(other, "f"), array)),
        ):
            assert isinstance(result, Tensor)
            assert result.dtype == np.float32
            np.testing.assert_allclose(tensor.to_numpy(result), wanted, rtol=2e-7, err_msg=repr(other))


def test_powers_negatives_and_products_of_matrices():
    array = ramp(2, 3)
    t = tensor.from_numpy(array)
    np.testing.assert_allclose(tensor.to_numpy(t**2.5), array**2.5, rtol=1e-6)
    np.testing.assert_array_equal(tensor.to_numpy(-t), -array)
    for product in (t @ tensor.from_numpy(ramp(3, 4)), t @ ramp(3, 4), array @ tensor.from_numpy(ramp(3, 4))):
        np.testing.assert_array_equal(tensor.to_numpy(product), array @ ramp(3, 4))


def test_arithmetic_with_arrays_and_numbers_stays_on_the_tape():
    p = tensor.from_numpy(ramp(2, 3, dtype="float64"))
    p.stores_grad = True
    y = np.float64(2) * (np.ones(3) + (3 - p / 4)) * np.full((2, 1), 5.0)
    _, gradient = next(autograd.backward(y, tensor.ones((2, 3), np.float64)))
    np.testing.assert_allclose(tensor.to_numpy(gradient), np.full((2, 3), -2.5))


def test_whole_numbers_stay_whole():
    a, b = tensor.from_numpy(np.array([7, 8])), tensor.from_numpy(np.array([[2], [3]]))
    for operation in (operator.add, operator.sub, operator.mul):
        for other in (b, 5, np.array([[2], [3]]), np.int64(5)):
            result = operation(a, other)
            assert result.dtype == np.int64
            wanted = operation(np.array([7, 8]), tensor.to_numpy(tensor.as_tensor(other)))
            np.testing.assert_array_equal(tensor.to_numpy(result), wanted)
    np.testing.assert_array_equal(tensor.to_numpy(-a), [-7, -8])
    np.testing.assert_array_equal(tensor.to_numpy(1 - a), [-6, -7])
    np.testing.assert_array_equal(tensor.to_numpy(a**2), [49, 64])


@pytest.mark.parametrize("operation", BINARY)
def test_fractions_are_not_cut_off_to_fit_whole_numbers(operation):
    t = tensor.from_numpy(np.arange(1, 4))
    for other in (0.5, np.array([0.5, 1.5, 2.5]), np.float64(0.5)):
        with pytest.raises(TypeError, match="int64"):
            operation(t, other)


# --- other libraries ----------------------------------------------------------------------------------------


def test_exported_memory_outlives_the_tensor():
    on = device.new_cpu()
    t = tensor.from_numpy(ramp(100, 7), on)
    shared = np.from_dlpack(t)
    row = shared[3]
    del t, shared
    others = [tensor.from_numpy(np.zeros((100, 7), "f"), on) for _ in range(4)]
    np.testing.assert_array_equal(row, ramp(100, 7)[3])
    del row, others
    assert on.pool.used == 0


@pytest.mark.peer
def test_torch_both_ways():
    torch = skips.library("torch")
    t = tensor.from_numpy(ramp(3, 4))
    shared = torch.from_dlpack(t)
    shared[0, 0] = 50
    assert tensor.to_numpy(t)[0, 0] == 50
    del t
    assert shared[2, 3] == 12
    given = torch.arange(12.0).reshape(3, 4).T
    for made in (tensor.from_dlpack(given), tensor.as_tensor(given)):
        assert made.is_contiguous()
        np.testing.assert_array_equal(tensor.to_numpy(made), given.numpy())
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        tensor.from_dlpack(given.clone().requires_grad_())


def test_no_memory_for_it():
    on = device.new_cpu(1000)
    held = tensor.from_numpy(np.zeros(200, "f"), on)
    with pytest.raises(OutOfMemoryError, match="4000 bytes"):
        tensor.from_numpy(np.zeros(1000, "f"), on)
    assert on.pool.used == 832  # 800 bytes, in whole lines of 64
    assert held.device is on
