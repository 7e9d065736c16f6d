"""Layers, one a file; each file gives the formula, the shapes, the parameters and the options."""

from typing import TYPE_CHECKING

from singa_lite.common import classes_elsewhere

from .activation import Activation as Activation
from .avg_pooling1d import AvgPooling1D as AvgPooling1D
from .avg_pooling2d import AvgPooling2D as AvgPooling2D
from .batch_normalization import BatchNormalization as BatchNormalization
from .bidirectional import Bidirectional as Bidirectional
from .concat import Concat as Concat
from .conv1d import Conv1D as Conv1D
from .conv1d_transpose import Conv1DTranspose as Conv1DTranspose
from .conv2d import Conv2D as Conv2D
from .conv2d_transpose import Conv2DTranspose as Conv2DTranspose
from .cropping2d import Cropping2D as Cropping2D
from .dense import Dense as Dense
from .depthwise_conv2d import DepthwiseConv2D as DepthwiseConv2D
from .dropout import Dropout as Dropout
from .dummy import Dummy as Dummy
from .embedding import Embedding as Embedding
from .flatten import Flatten as Flatten
from .gaussian_noise import GaussianNoise as GaussianNoise
from .global_avg_pooling1d import GlobalAvgPooling1D as GlobalAvgPooling1D
from .global_avg_pooling2d import GlobalAvgPooling2D as GlobalAvgPooling2D
from .global_max_pooling1d import GlobalMaxPooling1D as GlobalMaxPooling1D
from .global_max_pooling2d import GlobalMaxPooling2D as GlobalMaxPooling2D
from .group_normalization import GroupNormalization as GroupNormalization
from .gru import GRU as GRU
from .l2_norm import L2Norm as L2Norm
from .lambda_ import Lambda as Lambda
from .layer_normalization import LayerNormalization as LayerNormalization
from .learned_positions import LearnedPositions as LearnedPositions
from .lrn import LRN as LRN
from .lstm import LSTM as LSTM
from .max_pooling1d import MaxPooling1D as MaxPooling1D
from .max_pooling2d import MaxPooling2D as MaxPooling2D
from .merge import Merge as Merge
from .multi_head_attention import MultiHeadAttention as MultiHeadAttention
from .multiply import Multiply as Multiply
from .net import Net as Net
from .normalization import Normalization as Normalization
from .padding_mask import PaddingMask as PaddingMask
from .permute import Permute as Permute
from .prelu import PReLU as PReLU
from .rescaling import Rescaling as Rescaling
from .reshape import Reshape as Reshape
from .residual import Residual as Residual
from .rms_normalization import RMSNormalization as RMSNormalization
from .separable_conv2d import SeparableConv2D as SeparableConv2D
from .sequential import Sequential as Sequential
from .simple_rnn import SimpleRNN as SimpleRNN
from .sinusoidal_positions import SinusoidalPositions as SinusoidalPositions
from .slice import Slice as Slice
from .softmax import Softmax as Softmax
from .spatial_dropout1d import SpatialDropout1D as SpatialDropout1D
from .spatial_dropout2d import SpatialDropout2D as SpatialDropout2D
from .split import Split as Split
from .swiglu import SwiGLU as SwiGLU
from .tied_dense import TiedDense as TiedDense
from .time_distributed import TimeDistributed as TimeDistributed
from .transformer_block import TransformerBlock as TransformerBlock
from .upsampling2d import Upsampling2D as Upsampling2D
from .zero_padding2d import ZeroPadding2D as ZeroPadding2D

if not TYPE_CHECKING:  # where it would let any name pass
    __getattr__ = classes_elsewhere.told(__name__, classes_elsewhere.LAYERS)
