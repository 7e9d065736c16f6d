"""The library's algorithms for single elements (dnnl_alg_kind_t)."""

from __future__ import annotations

# One operand: of the primitive "eltwise_forward" and "eltwise_backward", and of the post-op "eltwise".
RELU, TANH, ELU, SQUARE, ABS, SQRT, LINEAR = 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26
LOGISTIC, EXP, GELU_TANH, SWISH, CLIP, POWER, GELU = 0x29, 0x2A, 0x2B, 0x2C, 0x2F, 0x30, 0x31

# Their derivatives by what the forward direction gave.
RELU_FROM_RESULT, TANH_FROM_RESULT, ELU_FROM_RESULT = 0x100, 0x101, 0x102
LOGISTIC_FROM_RESULT, CLIP_FROM_RESULT = 0x104, 0x106

# Two operands: of the primitive "binary" and the post-op "binary". Comparisons: 1 where it holds, else 0.
ADD, MULTIPLY, MAXIMUM, MINIMUM, DIVIDE, SUBTRACT = 0x1FFF0, 0x1FFF1, 0x1FFF2, 0x1FFF3, 0x1FFF4, 0x1FFF5
LESS_EQUAL, LESS, EQUAL, NOT_EQUAL = 0x1FFF8, 0x1FFF9, 0x1FFFA, 0x1FFFB
