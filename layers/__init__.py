"""Layers: each class gives its formula, the shapes, the parameters and the options."""

from typing import TYPE_CHECKING

from singa_lite.common.keywords import class_lookup
from singa_lite.layers.activation import Activation as Activation
from singa_lite.layers.activation import PReLU as PReLU
from singa_lite.layers.activation import Softmax as Softmax
from singa_lite.layers.convolution.convolution import Conv1D as Conv1D
from singa_lite.layers.convolution.convolution import Conv2D as Conv2D
from singa_lite.layers.convolution.convolution import DepthwiseConv2D as DepthwiseConv2D
from singa_lite.layers.convolution.margins import Cropping2D as Cropping2D
from singa_lite.layers.convolution.margins import Upsampling2D as Upsampling2D
from singa_lite.layers.convolution.margins import ZeroPadding2D as ZeroPadding2D
from singa_lite.layers.convolution.separable_conv2d import SeparableConv2D as SeparableConv2D
from singa_lite.layers.convolution.transposed_convolution import Conv1DTranspose as Conv1DTranspose
from singa_lite.layers.convolution.transposed_convolution import Conv2DTranspose as Conv2DTranspose
from singa_lite.layers.dense import Dense as Dense
from singa_lite.layers.dense import SwiGLU as SwiGLU
from singa_lite.layers.dropout import Dropout as Dropout
from singa_lite.layers.dropout import GaussianNoise as GaussianNoise
from singa_lite.layers.dropout import SpatialDropout1D as SpatialDropout1D
from singa_lite.layers.dropout import SpatialDropout2D as SpatialDropout2D
from singa_lite.layers.elementwise import Dummy as Dummy
from singa_lite.layers.elementwise import Input as Input
from singa_lite.layers.elementwise import Rescaling as Rescaling
from singa_lite.layers.embedding import Embedding as Embedding
from singa_lite.layers.embedding import PaddingMask as PaddingMask
from singa_lite.layers.embedding import TiedDense as TiedDense
from singa_lite.layers.lambda_ import Lambda as Lambda
from singa_lite.layers.merge import Concat as Concat
from singa_lite.layers.merge import Merge as Merge
from singa_lite.layers.merge import Multiply as Multiply
from singa_lite.layers.merge import Slice as Slice
from singa_lite.layers.merge import Split as Split
from singa_lite.layers.multi_head_attention import MultiHeadAttention as MultiHeadAttention
from singa_lite.layers.net import Net as Net
from singa_lite.layers.normalization.channels import LRN as LRN
from singa_lite.layers.normalization.channels import BatchNormalization as BatchNormalization
from singa_lite.layers.normalization.channels import GroupNormalization as GroupNormalization
from singa_lite.layers.normalization.layer_normalization import L2Norm as L2Norm
from singa_lite.layers.normalization.layer_normalization import LayerNormalization as LayerNormalization
from singa_lite.layers.normalization.layer_normalization import RMSNormalization as RMSNormalization
from singa_lite.layers.normalization.normalization import Normalization as Normalization
from singa_lite.layers.pooling.global_pooling import GlobalAvgPooling1D as GlobalAvgPooling1D
from singa_lite.layers.pooling.global_pooling import GlobalAvgPooling2D as GlobalAvgPooling2D
from singa_lite.layers.pooling.global_pooling import GlobalMaxPooling1D as GlobalMaxPooling1D
from singa_lite.layers.pooling.global_pooling import GlobalMaxPooling2D as GlobalMaxPooling2D
from singa_lite.layers.pooling.pooling import AvgPooling1D as AvgPooling1D
from singa_lite.layers.pooling.pooling import AvgPooling2D as AvgPooling2D
from singa_lite.layers.pooling.pooling import MaxPooling1D as MaxPooling1D
from singa_lite.layers.pooling.pooling import MaxPooling2D as MaxPooling2D
from singa_lite.layers.positions import LearnedPositions as LearnedPositions
from singa_lite.layers.positions import SinusoidalPositions as SinusoidalPositions
from singa_lite.layers.positions import TextStarts as TextStarts
from singa_lite.layers.recurrent.cells import GRU as GRU
from singa_lite.layers.recurrent.cells import LSTM as LSTM
from singa_lite.layers.recurrent.cells import SimpleRNN as SimpleRNN
from singa_lite.layers.recurrent.wrappers import Bidirectional as Bidirectional
from singa_lite.layers.recurrent.wrappers import TimeDistributed as TimeDistributed
from singa_lite.layers.reshape import Flatten as Flatten
from singa_lite.layers.reshape import Permute as Permute
from singa_lite.layers.reshape import Reshape as Reshape
from singa_lite.layers.sequential import Residual as Residual
from singa_lite.layers.sequential import Sequential as Sequential
from singa_lite.layers.transformer_block import TransformerBlock as TransformerBlock

if not TYPE_CHECKING:  # where it would let any name pass
    __getattr__ = class_lookup(__name__)
