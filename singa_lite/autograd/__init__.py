"""Taped operations, and `backward(y, dy)`, which yields each parameter's gradient as soon as it is final."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from singa_lite.autograd.backward_pass import BackwardPass, unit_derivative
from singa_lite.autograd.ops import operators
from singa_lite.autograd.ops.activation import elu as elu
from singa_lite.autograd.ops.activation import gelu as gelu
from singa_lite.autograd.ops.activation import gelu_tanh as gelu_tanh
from singa_lite.autograd.ops.activation import leaky_relu as leaky_relu
from singa_lite.autograd.ops.activation import prelu as prelu
from singa_lite.autograd.ops.activation import relu as relu
from singa_lite.autograd.ops.activation import relu6 as relu6
from singa_lite.autograd.ops.activation import sigmoid as sigmoid
from singa_lite.autograd.ops.activation import silu as silu
from singa_lite.autograd.ops.activation import softmax as softmax
from singa_lite.autograd.ops.activation import softplus as softplus
from singa_lite.autograd.ops.activation import tanh as tanh
from singa_lite.autograd.ops.arithmetic import add as add
from singa_lite.autograd.ops.arithmetic import divide as divide
from singa_lite.autograd.ops.arithmetic import exp as exp
from singa_lite.autograd.ops.arithmetic import log as log
from singa_lite.autograd.ops.arithmetic import multiply as multiply
from singa_lite.autograd.ops.arithmetic import power as power
from singa_lite.autograd.ops.arithmetic import scale as scale
from singa_lite.autograd.ops.arithmetic import shift as shift
from singa_lite.autograd.ops.arithmetic import sqrt as sqrt
from singa_lite.autograd.ops.arithmetic import square as square
from singa_lite.autograd.ops.arithmetic import subtract as subtract
from singa_lite.autograd.ops.attention import attention as attention
from singa_lite.autograd.ops.attention import rotary as rotary
from singa_lite.autograd.ops.broadcasting import cast as cast
from singa_lite.autograd.ops.convolution import conv2d as conv2d
from singa_lite.autograd.ops.convolution import conv2d_transpose as conv2d_transpose
from singa_lite.autograd.ops.function import Function as Function
from singa_lite.autograd.ops.function_form import Output as Output
from singa_lite.autograd.ops.function_form import Scratch as Scratch
from singa_lite.autograd.ops.gathering import embedding as embedding
from singa_lite.autograd.ops.gathering import gather as gather
from singa_lite.autograd.ops.gathering import stack as stack
from singa_lite.autograd.ops.indexing import crop as crop
from singa_lite.autograd.ops.indexing import index as index
from singa_lite.autograd.ops.indexing import pad as pad
from singa_lite.autograd.ops.linear import add_bias as add_bias
from singa_lite.autograd.ops.linear import linear as linear
from singa_lite.autograd.ops.linear import matmul as matmul
from singa_lite.autograd.ops.loss import huber as huber
from singa_lite.autograd.ops.loss import huber_values as huber_values
from singa_lite.autograd.ops.loss import sigmoid_cross_entropy as sigmoid_cross_entropy
from singa_lite.autograd.ops.loss import sigmoid_cross_entropy_values as sigmoid_cross_entropy_values
from singa_lite.autograd.ops.loss import softmax_cross_entropy as softmax_cross_entropy
from singa_lite.autograd.ops.loss import softmax_cross_entropy_values as softmax_cross_entropy_values
from singa_lite.autograd.ops.loss import squared_error as squared_error
from singa_lite.autograd.ops.loss import squared_error_values as squared_error_values
from singa_lite.autograd.ops.noise import dropout as dropout
from singa_lite.autograd.ops.noise import normal as normal
from singa_lite.autograd.ops.noise import spatial_dropout as spatial_dropout
from singa_lite.autograd.ops.normalization import batch_norm as batch_norm
from singa_lite.autograd.ops.normalization import batch_norm_inference as batch_norm_inference
from singa_lite.autograd.ops.normalization import group_norm as group_norm
from singa_lite.autograd.ops.normalization import l2_norm as l2_norm
from singa_lite.autograd.ops.normalization import layer_norm as layer_norm
from singa_lite.autograd.ops.normalization import lrn as lrn
from singa_lite.autograd.ops.normalization import rms_norm as rms_norm
from singa_lite.autograd.ops.op import Edge
from singa_lite.autograd.ops.op import Op as Op
from singa_lite.autograd.ops.op import no_grad as no_grad
from singa_lite.autograd.ops.ordering import abs as abs
from singa_lite.autograd.ops.ordering import clip as clip
from singa_lite.autograd.ops.ordering import equal as equal
from singa_lite.autograd.ops.ordering import greater as greater
from singa_lite.autograd.ops.ordering import greater_equal as greater_equal
from singa_lite.autograd.ops.ordering import less as less
from singa_lite.autograd.ops.ordering import less_equal as less_equal
from singa_lite.autograd.ops.ordering import maximum as maximum
from singa_lite.autograd.ops.ordering import minimum as minimum
from singa_lite.autograd.ops.ordering import not_equal as not_equal
from singa_lite.autograd.ops.ordering import where as where
from singa_lite.autograd.ops.pooling import avg_pool2d as avg_pool2d
from singa_lite.autograd.ops.pooling import global_avg_pool2d as global_avg_pool2d
from singa_lite.autograd.ops.pooling import max_pool2d as max_pool2d
from singa_lite.autograd.ops.pooling import upsample_nearest as upsample_nearest
from singa_lite.autograd.ops.quantized import dequantize as dequantize
from singa_lite.autograd.ops.quantized import quantized_embedding as quantized_embedding
from singa_lite.autograd.ops.quantized import quantized_linear as quantized_linear
from singa_lite.autograd.ops.recurrent import gru as gru
from singa_lite.autograd.ops.recurrent import lstm as lstm
from singa_lite.autograd.ops.recurrent import simple_rnn as simple_rnn
from singa_lite.autograd.ops.reduction import reduce_max as reduce_max
from singa_lite.autograd.ops.reduction import reduce_mean as reduce_mean
from singa_lite.autograd.ops.reduction import reduce_min as reduce_min
from singa_lite.autograd.ops.reduction import reduce_sum as reduce_sum
from singa_lite.autograd.ops.shape import concat as concat
from singa_lite.autograd.ops.shape import flatten as flatten
from singa_lite.autograd.ops.shape import identity as identity
from singa_lite.autograd.ops.shape import reshape as reshape
from singa_lite.autograd.ops.shape import split as split
from singa_lite.autograd.ops.shape import transpose as transpose
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.tensor import Tensor

operators.put_on_tensor()


def backward(
    y: Tensor, dy: Tensor | None = None, *, parameters: Collection[Tensor] | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields (parameter, gradient) for every tensor with `stores_grad` that y depends on.

    A parameter comes as soon as its gradient is final, once, even if several operations used it. A gradient is
    valid until the generator is asked for the next; copy it to keep it. The derivative through an operation is
    always computed before its parameters' gradients are handed out, so the consumer may update them at once.

    y: made by taped operations; dy: the derivative by y, y's shape, default 1 for a y of one element. parameters: only
    these, and nothing is computed for others alone; None: all.
    GraphError if y is not on the tape or was walked before; ShapeError or TypeError if dy does not fit.

    >>> w = tensor.as_tensor([1.0, 2.0, 3.0])
    >>> w.stores_grad = True
    >>> for parameter, gradient in autograd.backward((w * w).sum()):
    ...     print(gradient)
    [2. 4. 6.]
    """
    if y.creator is None:
        raise GraphError("backward: y was not made by taped operations over tensors with stores_grad")
    if dy is None:
        if y.size() != 1:
            raise ShapeError(f"backward without dy: wanted a y of one element, received shape {y.shape}")
        dy = unit_derivative(y)
    if dy.shape != y.shape:
        raise ShapeError(f"backward: wanted dy of y's shape {y.shape}, received {dy.shape}")
    if dy.dtype != y.dtype:
        raise TypeError(f"backward: wanted dy of y's dtype {y.dtype}, received {dy.dtype}")
    return BackwardPass([(Edge(y.creator, y.output_index, None), dy)], parameters=parameters).gradients()
