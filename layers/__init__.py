"""Layers, one a file; each file gives the formula, the shapes, the parameters and the options."""

from typing import TYPE_CHECKING

from singa_lite.common.keywords import class_lookup
from singa_lite.layers.convolution.conv1d import Conv1D as Conv1D
from singa_lite.layers.convolution.conv1d_transpose import Conv1DTranspose as Conv1DTranspose
from singa_lite.layers.convolution.conv2d import Conv2D as Conv2D
from singa_lite.layers.convolution.conv2d_transpose import Conv2DTranspose as Conv2DTranspose
from singa_lite.layers.convolution.cropping2d import Cropping2D as Cropping2D
from singa_lite.layers.convolution.depthwise_conv2d import DepthwiseConv2D as DepthwiseConv2D
from singa_lite.layers.convolution.separable_conv2d import SeparableConv2D as SeparableConv2D
from singa_lite.layers.convolution.upsampling2d import Upsampling2D as Upsampling2D
from singa_lite.layers.convolution.zero_padding2d import ZeroPadding2D as ZeroPadding2D
from singa_lite.layers.normalization.batch_normalization import BatchNormalization as BatchNormalization
from singa_lite.layers.normalization.group_normalization import GroupNormalization as GroupNormalization
from singa_lite.layers.normalization.l2_norm import L2Norm as L2Norm
from singa_lite.layers.normalization.layer_normalization import LayerNormalization as LayerNormalization
from singa_lite.layers.normalization.lrn import LRN as LRN
from singa_lite.layers.normalization.normalization import Normalization as Normalization
from singa_lite.layers.normalization.rms_normalization import RMSNormalization as RMSNormalization
from singa_lite.layers.pooling.avg_pooling1d import AvgPooling1D as AvgPooling1D
from singa_lite.layers.pooling.avg_pooling2d import AvgPooling2D as AvgPooling2D
from singa_lite.layers.pooling.global_avg_pooling1d import GlobalAvgPooling1D as GlobalAvgPooling1D
from singa_lite.layers.pooling.global_avg_pooling2d import GlobalAvgPooling2D as GlobalAvgPooling2D
from singa_lite.layers.pooling.global_max_pooling1d import GlobalMaxPooling1D as GlobalMaxPooling1D
from singa_lite.layers.pooling.global_max_pooling2d import GlobalMaxPooling2D as GlobalMaxPooling2D
from singa_lite.layers.pooling.max_pooling1d import MaxPooling1D as MaxPooling1D
from singa_lite.layers.pooling.max_pooling2d import MaxPooling2D as MaxPooling2D
from singa_lite.layers.recurrent.bidirectional import Bidirectional as Bidirectional
from singa_lite.layers.recurrent.gru import GRU as GRU
from singa_lite.layers.recurrent.lstm import LSTM as LSTM
from singa_lite.layers.recurrent.simple_rnn import SimpleRNN as SimpleRNN
from singa_lite.layers.recurrent.time_distributed import TimeDistributed as TimeDistributed

from .activation import Activation as Activation
from .concat import Concat as Concat
from .dense import Dense as Dense
from .dropout import Dropout as Dropout
from .dummy import Dummy as Dummy
from .dummy import Input as Input
from .embedding import Embedding as Embedding
from .flatten import Flatten as Flatten
from .gaussian_noise import GaussianNoise as GaussianNoise
from .lambda_ import Lambda as Lambda
from .learned_positions import LearnedPositions as LearnedPositions
from .merge import Merge as Merge
from .multi_head_attention import MultiHeadAttention as MultiHeadAttention
from .multiply import Multiply as Multiply
from .net import Net as Net
from .padding_mask import PaddingMask as PaddingMask
from .permute import Permute as Permute
from .prelu import PReLU as PReLU
from .rescaling import Rescaling as Rescaling
from .reshape import Reshape as Reshape
from .residual import Residual as Residual
from .sequential import Sequential as Sequential
from .sinusoidal_positions import SinusoidalPositions as SinusoidalPositions
from .slice import Slice as Slice
from .softmax import Softmax as Softmax
from .spatial_dropout1d import SpatialDropout1D as SpatialDropout1D
from .spatial_dropout2d import SpatialDropout2D as SpatialDropout2D
from .split import Split as Split
from .swiglu import SwiGLU as SwiGLU
from .tied_dense import TiedDense as TiedDense
from .transformer_block import TransformerBlock as TransformerBlock

if not TYPE_CHECKING:  # where it would let any name pass
    __getattr__ = class_lookup(__name__)
