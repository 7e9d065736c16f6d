"""Layers, one a file; each file gives the formula, the shapes, the parameters and the options."""

from .activation import Activation as Activation
from .avg_pooling1d import AvgPooling1D as AvgPooling1D
from .avg_pooling2d import AvgPooling2D as AvgPooling2D
from .batch_normalization import BatchNormalization as BatchNormalization
from .concat import Concat as Concat
from .conv1d import Conv1D as Conv1D
from .conv2d import Conv2D as Conv2D
from .dense import Dense as Dense
from .dropout import Dropout as Dropout
from .dummy import Dummy as Dummy
from .flatten import Flatten as Flatten
from .global_avg_pooling2d import GlobalAvgPooling2D as GlobalAvgPooling2D
from .l2_norm import L2Norm as L2Norm
from .layer_normalization import LayerNormalization as LayerNormalization
from .lrn import LRN as LRN
from .max_pooling1d import MaxPooling1D as MaxPooling1D
from .max_pooling2d import MaxPooling2D as MaxPooling2D
from .merge import Merge as Merge
from .multi_head_attention import MultiHeadAttention as MultiHeadAttention
from .multiply import Multiply as Multiply
from .reshape import Reshape as Reshape
from .slice import Slice as Slice
from .softmax import Softmax as Softmax
from .split import Split as Split
from .upsampling2d import Upsampling2D as Upsampling2D
