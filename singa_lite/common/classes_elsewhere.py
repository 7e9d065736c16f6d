"""Classes of Keras and PyTorch that have another name here, told by it where a module is asked for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

_ACTIVATION = "Activation(mode={!r})"

LAYERS: Mapping[str, str] = {
    "Linear": "Dense",
    "Conv1d": "Conv1D",
    "Conv2d": "Conv2D",
    "ConvTranspose1d": "Conv1DTranspose",
    "ConvTranspose2d": "Conv2DTranspose",
    "MaxPool1d": "MaxPooling1D",
    "MaxPool2d": "MaxPooling2D",
    "AvgPool1d": "AvgPooling1D",
    "AvgPool2d": "AvgPooling2D",
    "MaxPool1D": "MaxPooling1D",
    "MaxPool2D": "MaxPooling2D",
    "AveragePooling1D": "AvgPooling1D",
    "AveragePooling2D": "AvgPooling2D",
    "GlobalAveragePooling1D": "GlobalAvgPooling1D",
    "GlobalAveragePooling2D": "GlobalAvgPooling2D",
    "AdaptiveAvgPool2d": "GlobalAvgPooling2D, for an output of one pixel",
    "BatchNorm1d": "BatchNormalization",
    "BatchNorm2d": "BatchNormalization",
    "LayerNorm": "LayerNormalization",
    "GroupNorm": "GroupNormalization",
    "InstanceNorm2d": "GroupNormalization(groups=None)",
    "RMSNorm": "RMSNormalization",
    "LocalResponseNorm": "LRN",
    "UpSampling2D": "Upsampling2D",
    "Upsample": "Upsampling2D",
    "ZeroPad2d": "ZeroPadding2D",
    "Dropout2d": "SpatialDropout2D",
    "MultiheadAttention": "MultiHeadAttention",
    "TransformerEncoderLayer": "TransformerBlock",
    "RNN": "LSTM, GRU or SimpleRNN",
    "Add": "Merge",
    "Concatenate": "Concat",
    "Input": "input_sample_shape= of a layer, or Dummy(name, shape)",
    "InputLayer": "input_sample_shape= of a layer, or Dummy(name, shape)",
    "ReLU": _ACTIVATION.format("relu"),
    "ReLU6": _ACTIVATION.format("relu6"),
    "LeakyReLU": _ACTIVATION.format("leaky_relu"),
    "ELU": _ACTIVATION.format("elu"),
    "GELU": _ACTIVATION.format("gelu"),
    "SiLU": _ACTIVATION.format("silu"),
    "Sigmoid": _ACTIVATION.format("sigmoid"),
    "Tanh": _ACTIVATION.format("tanh"),
    "Softplus": _ACTIVATION.format("softplus"),
}

LOSSES: Mapping[str, str] = {
    "CrossEntropyLoss": "SoftmaxCrossEntropy",
    "CategoricalCrossentropy": "SoftmaxCrossEntropy, on raw scores",
    "SparseCategoricalCrossentropy": "SoftmaxCrossEntropy, on raw scores",
    "BinaryCrossentropy": "SigmoidCrossEntropy, on raw scores",
    "BCELoss": "SigmoidCrossEntropy, on raw scores",
    "BCEWithLogitsLoss": "SigmoidCrossEntropy",
    "MSELoss": "MeanSquaredError",
    "L1Loss": "MeanAbsoluteError",
    "SmoothL1Loss": "Huber",
    "HuberLoss": "Huber",
    "KLDivLoss": "KLDivergence, of raw scores",
}

METRICS: Mapping[str, str] = {
    "CategoricalAccuracy": "Accuracy",
    "SparseCategoricalAccuracy": "Accuracy",
    "TopKCategoricalAccuracy": "TopKAccuracy",
    "SparseTopKCategoricalAccuracy": "TopKAccuracy",
    "F1Score": "F1",
    "R2Score": "R2",
}

OPTIMIZERS: Mapping[str, str] = {"RMSprop": "RMSProp", "Adagrad": "AdaGrad"}

CALLBACKS: Mapping[str, str] = {
    "ModelCheckpoint": "Checkpoint",
    "LearningRateScheduler": "the optimizer's lr, a schedule or a function of the step",
}

SCHEDULES: Mapping[str, str] = {
    "ExponentialDecay": "Exponential",
    "ExponentialLR": "Exponential",
    "StepLR": "Step",
    "MultiStepLR": "Step, with a list of steps",
    "PiecewiseConstantDecay": "Step, with a list of steps",
    "CosineDecay": "CosineWithWarmup",
    "CosineAnnealingLR": "CosineWithWarmup",
}


def getattr_with_hints(module: str, classes: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module: AttributeError for a name that it lacks, with ours for a class of another
    framework.
    """

    def missing(name: str) -> NoReturn:
        hint = f"; here it is {classes[name]}" if name in classes else ""
        raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)

    return missing
