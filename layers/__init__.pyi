"""Written by tests/layer_stubs.py: constructors with a name and without one, for type checkers."""

from typing import overload

from .activation import Activation as _Activation
from .concat import Concat as _Concat
from .convolution.conv1d import Conv1D as _Conv1D
from .convolution.conv1d_transpose import Conv1DTranspose as _Conv1DTranspose
from .convolution.conv2d import Conv2D as _Conv2D
from .convolution.conv2d_transpose import Conv2DTranspose as _Conv2DTranspose
from .convolution.cropping2d import Cropping2D as _Cropping2D
from .convolution.depthwise_conv2d import DepthwiseConv2D as _DepthwiseConv2D
from .convolution.separable_conv2d import SeparableConv2D as _SeparableConv2D
from .convolution.upsampling2d import Upsampling2D as _Upsampling2D
from .convolution.zero_padding2d import ZeroPadding2D as _ZeroPadding2D
from .dense import Dense as _Dense
from .dropout import Dropout as _Dropout
from .dummy import Dummy as _Dummy
from .embedding import Embedding as _Embedding
from .flatten import Flatten as _Flatten
from .gaussian_noise import GaussianNoise as _GaussianNoise
from .lambda_ import Given
from .lambda_ import Lambda as _Lambda
from .learned_positions import LearnedPositions as _LearnedPositions
from .merge import Merge as _Merge
from .multi_head_attention import MultiHeadAttention as _MultiHeadAttention
from .multiply import Multiply as _Multiply
from .net import Net as _Net
from .normalization.batch_normalization import BatchNormalization as _BatchNormalization
from .normalization.group_normalization import GroupNormalization as _GroupNormalization
from .normalization.l2_norm import L2Norm as _L2Norm
from .normalization.layer_normalization import LayerNormalization as _LayerNormalization
from .normalization.lrn import LRN as _LRN
from .normalization.normalization import Normalization as _Normalization
from .normalization.normalization import Numbers
from .normalization.rms_normalization import RMSNormalization as _RMSNormalization
from .padding_mask import PaddingMask as _PaddingMask
from .permute import Permute as _Permute
from .pooling.avg_pooling1d import AvgPooling1D as _AvgPooling1D
from .pooling.avg_pooling2d import AvgPooling2D as _AvgPooling2D
from .pooling.global_avg_pooling1d import GlobalAvgPooling1D as _GlobalAvgPooling1D
from .pooling.global_avg_pooling2d import GlobalAvgPooling2D as _GlobalAvgPooling2D
from .pooling.global_max_pooling1d import GlobalMaxPooling1D as _GlobalMaxPooling1D
from .pooling.global_max_pooling2d import GlobalMaxPooling2D as _GlobalMaxPooling2D
from .pooling.max_pooling1d import MaxPooling1D as _MaxPooling1D
from .pooling.max_pooling2d import MaxPooling2D as _MaxPooling2D
from .prelu import PReLU as _PReLU
from .recurrent.bidirectional import Bidirectional as _Bidirectional
from .recurrent.gru import GRU as _GRU
from .recurrent.lstm import LSTM as _LSTM
from .recurrent.simple_rnn import SimpleRNN as _SimpleRNN
from .recurrent.time_distributed import TimeDistributed as _TimeDistributed
from .rescaling import Rescaling as _Rescaling
from .reshape import Reshape as _Reshape
from .residual import Residual as _Residual
from .sequential import Sequential as _Sequential
from .sinusoidal_positions import SinusoidalPositions as _SinusoidalPositions
from .slice import Slice as _Slice
from .softmax import Softmax as _Softmax
from .spatial_dropout1d import SpatialDropout1D as _SpatialDropout1D
from .spatial_dropout2d import SpatialDropout2D as _SpatialDropout2D
from .split import Split as _Split
from .swiglu import SwiGLU as _SwiGLU
from .tied_dense import TiedDense as _TiedDense
from .transformer_block import TransformerBlock as _TransformerBlock
from collections.abc import Callable
from collections.abc import Sequence
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape
from singa_lite.layer.layer import Layer
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layers._windows import Extents

class Activation(_Activation):
    @overload
    def __init__(self, name: str, mode: str | None = ..., *, slope: float | None = ..., alpha: float | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, *, name: str | None = ..., mode: str | None = ..., slope: float | None = ..., alpha: float | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class AvgPooling1D(_AvgPooling1D):
    @overload
    def __init__(self, name: str, kernel: Extents | None = ..., stride: Extents | None = ..., border_mode: str | None = ..., pad: Extents | None = ..., *, padding: str | None = ..., count_pad: bool | None = ..., ceil_mode: bool = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, kernel: Extents | None = ..., stride: Extents | None = ..., border_mode: str | None = ..., pad: Extents | None = ..., *, name: str | None = ..., padding: str | None = ..., count_pad: bool | None = ..., ceil_mode: bool = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class AvgPooling2D(_AvgPooling2D):
    @overload
    def __init__(self, name: str, kernel: Extents | None = ..., stride: Extents | None = ..., border_mode: str | None = ..., pad: Extents | None = ..., *, padding: str | None = ..., count_pad: bool | None = ..., ceil_mode: bool = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, kernel: Extents | None = ..., stride: Extents | None = ..., border_mode: str | None = ..., pad: Extents | None = ..., *, name: str | None = ..., padding: str | None = ..., count_pad: bool | None = ..., ceil_mode: bool = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class BatchNormalization(_BatchNormalization):
    @overload
    def __init__(self, name: str, momentum: float = ..., *, epsilon: float = ..., gamma_init: initializer.Spec = ..., beta_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, momentum: float = ..., *, name: str | None = ..., epsilon: float = ..., gamma_init: initializer.Spec = ..., beta_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Bidirectional(_Bidirectional):
    @overload
    def __init__(self, name: str, layer: Layer, merge: str = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, layer: Layer, merge: str = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Concat(_Concat):
    @overload
    def __init__(self, name: str, axis: int, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, axis: int, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Conv1D(_Conv1D):
    @overload
    def __init__(self, name: str, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, padding: str | None = ..., groups: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, name: str | None = ..., padding: str | None = ..., groups: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Conv1DTranspose(_Conv1DTranspose):
    @overload
    def __init__(self, name: str, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, padding: str | None = ..., output_padding: Extents | None = ..., groups: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, name: str | None = ..., padding: str | None = ..., output_padding: Extents | None = ..., groups: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Conv2D(_Conv2D):
    @overload
    def __init__(self, name: str, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, padding: str | None = ..., groups: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, name: str | None = ..., padding: str | None = ..., groups: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Conv2DTranspose(_Conv2DTranspose):
    @overload
    def __init__(self, name: str, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, padding: str | None = ..., output_padding: Extents | None = ..., groups: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, name: str | None = ..., padding: str | None = ..., output_padding: Extents | None = ..., groups: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Cropping2D(_Cropping2D):
    @overload
    def __init__(self, name: str, crop: Extents = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, crop: Extents = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Dense(_Dense):
    @overload
    def __init__(self, name: str, num_output: int, use_bias: bool = ..., *, weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, num_output: int, use_bias: bool = ..., *, name: str | None = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class DepthwiseConv2D(_DepthwiseConv2D):
    @overload
    def __init__(self, name: str, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, padding: str | None = ..., depth_multiplier: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, name: str | None = ..., padding: str | None = ..., depth_multiplier: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Dropout(_Dropout):
    @overload
    def __init__(self, name: str, p: float = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, p: float = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Dummy(_Dummy):
    @overload
    def __init__(self, name: str, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, input_sample_shape: InputShape | None = ..., *, name: str | None = ...) -> None: ...

class Embedding(_Embedding):
    @overload
    def __init__(self, name: str, num_embeddings: int, dim: int, padding_idx: int | None = ..., *, mask_zero: bool = ..., weight_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, num_embeddings: int, dim: int, padding_idx: int | None = ..., *, name: str | None = ..., mask_zero: bool = ..., weight_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Flatten(_Flatten):
    @overload
    def __init__(self, name: str, axis: int = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, axis: int = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class GRU(_GRU):
    @overload
    def __init__(self, name: str, hidden_size: int, dropout: float = ..., num_stacks: int = ..., input_mode: str = ..., bidirectional: bool = ..., *, merge: str = ..., return_sequences: bool = ..., stateful: bool = ..., batch_size: int | None = ..., reset_after: bool = ..., recurrent_activation: str = ..., use_bias: bool = ..., weight_init: initializer.Spec | None = ..., recurrent_init: initializer.Spec | None = ..., bias_init: initializer.Spec | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, hidden_size: int, dropout: float = ..., num_stacks: int = ..., input_mode: str = ..., bidirectional: bool = ..., *, name: str | None = ..., merge: str = ..., return_sequences: bool = ..., stateful: bool = ..., batch_size: int | None = ..., reset_after: bool = ..., recurrent_activation: str = ..., use_bias: bool = ..., weight_init: initializer.Spec | None = ..., recurrent_init: initializer.Spec | None = ..., bias_init: initializer.Spec | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class GaussianNoise(_GaussianNoise):
    @overload
    def __init__(self, name: str, std: float, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, std: float, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class GlobalAvgPooling1D(_GlobalAvgPooling1D):
    @overload
    def __init__(self, name: str, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class GlobalAvgPooling2D(_GlobalAvgPooling2D):
    @overload
    def __init__(self, name: str, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class GlobalMaxPooling1D(_GlobalMaxPooling1D):
    @overload
    def __init__(self, name: str, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class GlobalMaxPooling2D(_GlobalMaxPooling2D):
    @overload
    def __init__(self, name: str, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class GroupNormalization(_GroupNormalization):
    @overload
    def __init__(self, name: str, groups: int | None = ..., *, epsilon: float = ..., gamma_init: initializer.Spec = ..., beta_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, groups: int | None = ..., *, name: str | None = ..., epsilon: float = ..., gamma_init: initializer.Spec = ..., beta_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class L2Norm(_L2Norm):
    @overload
    def __init__(self, name: str, epsilon: float = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, epsilon: float = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class LRN(_LRN):
    @overload
    def __init__(self, name: str, size: int = ..., alpha: float = ..., beta: float = ..., mode: str = ..., k: float = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, size: int = ..., alpha: float = ..., beta: float = ..., mode: str = ..., k: float = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class LSTM(_LSTM):
    @overload
    def __init__(self, name: str, hidden_size: int, dropout: float = ..., num_stacks: int = ..., input_mode: str = ..., bidirectional: bool = ..., *, merge: str = ..., return_sequences: bool = ..., stateful: bool = ..., batch_size: int | None = ..., recurrent_activation: str = ..., use_bias: bool = ..., weight_init: initializer.Spec | None = ..., recurrent_init: initializer.Spec | None = ..., bias_init: initializer.Spec | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, hidden_size: int, dropout: float = ..., num_stacks: int = ..., input_mode: str = ..., bidirectional: bool = ..., *, name: str | None = ..., merge: str = ..., return_sequences: bool = ..., stateful: bool = ..., batch_size: int | None = ..., recurrent_activation: str = ..., use_bias: bool = ..., weight_init: initializer.Spec | None = ..., recurrent_init: initializer.Spec | None = ..., bias_init: initializer.Spec | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Lambda(_Lambda):
    @overload
    def __init__(self, name: str, function: Callable[..., Given], *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, function: Callable[..., Given], *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class LayerNormalization(_LayerNormalization):
    @overload
    def __init__(self, name: str, axis: int = ..., *, epsilon: float = ..., gamma_init: initializer.Spec = ..., beta_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, axis: int = ..., *, name: str | None = ..., epsilon: float = ..., gamma_init: initializer.Spec = ..., beta_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class LearnedPositions(_LearnedPositions):
    @overload
    def __init__(self, name: str, max_length: int | None = ..., *, weight_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, max_length: int | None = ..., *, name: str | None = ..., weight_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class MaxPooling1D(_MaxPooling1D):
    @overload
    def __init__(self, name: str, kernel: Extents | None = ..., stride: Extents | None = ..., border_mode: str | None = ..., pad: Extents | None = ..., *, padding: str | None = ..., ceil_mode: bool = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, kernel: Extents | None = ..., stride: Extents | None = ..., border_mode: str | None = ..., pad: Extents | None = ..., *, name: str | None = ..., padding: str | None = ..., ceil_mode: bool = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class MaxPooling2D(_MaxPooling2D):
    @overload
    def __init__(self, name: str, kernel: Extents | None = ..., stride: Extents | None = ..., border_mode: str | None = ..., pad: Extents | None = ..., *, padding: str | None = ..., ceil_mode: bool = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, kernel: Extents | None = ..., stride: Extents | None = ..., border_mode: str | None = ..., pad: Extents | None = ..., *, name: str | None = ..., padding: str | None = ..., ceil_mode: bool = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Merge(_Merge):
    @overload
    def __init__(self, name: str, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class MultiHeadAttention(_MultiHeadAttention):
    @overload
    def __init__(self, name: str, heads: int, head_size: int | None = ..., causal: bool = ..., dropout: float = ..., *, kv_heads: int | None = ..., use_bias: bool = ..., rotary: bool = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, heads: int, head_size: int | None = ..., causal: bool = ..., dropout: float = ..., *, name: str | None = ..., kv_heads: int | None = ..., use_bias: bool = ..., rotary: bool = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Multiply(_Multiply):
    @overload
    def __init__(self, name: str, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Net(_Net):
    @overload
    def __init__(self, name: str, net: LayerGraph, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, net: LayerGraph, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Normalization(_Normalization):
    @overload
    def __init__(self, name: str, mean: Numbers | None = ..., variance: Numbers | None = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, mean: Numbers | None = ..., variance: Numbers | None = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class PReLU(_PReLU):
    @overload
    def __init__(self, name: str, shared_axes: Sequence[int] | None = ..., *, alpha_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, shared_axes: Sequence[int] | None = ..., *, name: str | None = ..., alpha_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class PaddingMask(_PaddingMask):
    @overload
    def __init__(self, name: str, padding_idx: int = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, padding_idx: int = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Permute(_Permute):
    @overload
    def __init__(self, name: str, axes: Sequence[int], *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, axes: Sequence[int], *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class RMSNormalization(_RMSNormalization):
    @overload
    def __init__(self, name: str, epsilon: float = ..., *, gamma_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, epsilon: float = ..., *, name: str | None = ..., gamma_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Rescaling(_Rescaling):
    @overload
    def __init__(self, name: str, scale: float, offset: float = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, scale: float, offset: float = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Reshape(_Reshape):
    @overload
    def __init__(self, name: str, shape: Sequence[int], *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, shape: Sequence[int], *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Residual(_Residual):
    @overload
    def __init__(self, name: str, layers: Sequence[Layer], *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, layers: Sequence[Layer], *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class SeparableConv2D(_SeparableConv2D):
    @overload
    def __init__(self, name: str, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, padding: str | None = ..., depth_multiplier: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, nb_kernels: int, kernel: Extents = ..., stride: Extents = ..., border_mode: str = ..., pad: Extents | None = ..., use_bias: bool = ..., *, name: str | None = ..., padding: str | None = ..., depth_multiplier: int = ..., dilation: Extents = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Sequential(_Sequential):
    @overload
    def __init__(self, name: str, layers: Sequence[Layer], *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, layers: Sequence[Layer], *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class SimpleRNN(_SimpleRNN):
    @overload
    def __init__(self, name: str, hidden_size: int, dropout: float = ..., num_stacks: int = ..., input_mode: str = ..., bidirectional: bool = ..., *, activation: str = ..., merge: str = ..., return_sequences: bool = ..., stateful: bool = ..., batch_size: int | None = ..., use_bias: bool = ..., weight_init: initializer.Spec | None = ..., recurrent_init: initializer.Spec | None = ..., bias_init: initializer.Spec | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, hidden_size: int, dropout: float = ..., num_stacks: int = ..., input_mode: str = ..., bidirectional: bool = ..., *, name: str | None = ..., activation: str = ..., merge: str = ..., return_sequences: bool = ..., stateful: bool = ..., batch_size: int | None = ..., use_bias: bool = ..., weight_init: initializer.Spec | None = ..., recurrent_init: initializer.Spec | None = ..., bias_init: initializer.Spec | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class SinusoidalPositions(_SinusoidalPositions):
    @overload
    def __init__(self, name: str, base: float = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, base: float = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Slice(_Slice):
    @overload
    def __init__(self, name: str, axis: int, slice_point: Sequence[int], *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, axis: int, slice_point: Sequence[int], *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Softmax(_Softmax):
    @overload
    def __init__(self, name: str, axis: int = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, axis: int = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class SpatialDropout1D(_SpatialDropout1D):
    @overload
    def __init__(self, name: str, p: float = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, p: float = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class SpatialDropout2D(_SpatialDropout2D):
    @overload
    def __init__(self, name: str, p: float = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, p: float = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Split(_Split):
    @overload
    def __init__(self, name: str, num_output: int, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, num_output: int, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class SwiGLU(_SwiGLU):
    @overload
    def __init__(self, name: str, num_output: int, use_bias: bool = ..., *, weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, num_output: int, use_bias: bool = ..., *, name: str | None = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class TiedDense(_TiedDense):
    @overload
    def __init__(self, name: str, embedding: Embedding, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, embedding: Embedding, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class TimeDistributed(_TimeDistributed):
    @overload
    def __init__(self, name: str, layer: Layer, *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, layer: Layer, *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class TransformerBlock(_TransformerBlock):
    @overload
    def __init__(self, name: str, heads: int, causal: bool = ..., *, hidden_size: int | None = ..., dropout: float = ..., activation: str = ..., normalize_first: bool = ..., norm: str = ..., hidden_dropout: float = ..., head_size: int | None = ..., kv_heads: int | None = ..., rotary: bool = ..., epsilon: float = ..., use_bias: bool = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, heads: int, causal: bool = ..., *, name: str | None = ..., hidden_size: int | None = ..., dropout: float = ..., activation: str = ..., normalize_first: bool = ..., norm: str = ..., hidden_dropout: float = ..., head_size: int | None = ..., kv_heads: int | None = ..., rotary: bool = ..., epsilon: float = ..., use_bias: bool = ..., weight_init: initializer.Spec = ..., bias_init: initializer.Spec = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class Upsampling2D(_Upsampling2D):
    @overload
    def __init__(self, name: str, factor: Extents = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, factor: Extents = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...

class ZeroPadding2D(_ZeroPadding2D):
    @overload
    def __init__(self, name: str, pad: Extents = ..., *, input_sample_shape: InputShape | None = ...) -> None: ...
    @overload
    def __init__(self, pad: Extents = ..., *, name: str | None = ..., input_sample_shape: InputShape | None = ...) -> None: ...
