"""Tables of Keras's words: those that are accepted in place of this package's, Keras's defaults, and hints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class SameAs(NamedTuple):
    """A default that is the value of another parameter of the same call."""

    parameter: str


#: {keyword of Keras: parameters that mean the same; a call takes the first that it has}. docs/from_keras.md prints it.
ALIASES: Mapping[str, tuple[str, ...]] = {
    # layers
    "units": ("num_output", "hidden_size"),
    "filters": ("nb_kernels",),
    "kernel_size": ("kernel",),
    "pool_size": ("kernel",),
    "strides": ("stride",),
    "dilation_rate": ("dilation",),
    "padding": ("pad",),
    "cropping": ("crop",),
    "size": ("factor",),
    "rate": ("p",),
    "stddev": ("std",),
    "activation": ("mode",),
    "negative_slope": ("slope",),
    "target_shape": ("shape",),
    "dims": ("axes",),
    "input_dim": ("num_embeddings",),
    "output_dim": ("dim",),
    "num_heads": ("heads",),
    "key_dim": ("head_size",),
    "merge_mode": ("merge",),
    "kernel_initializer": ("weight_init",),
    "embeddings_initializer": ("weight_init",),
    "recurrent_initializer": ("recurrent_init",),
    "bias_initializer": ("bias_init",),
    "gamma_initializer": ("gamma_init",),
    "beta_initializer": ("beta_init",),
    "alpha_initializer": ("alpha_init",),
    "input_shape": ("input_sample_shape",),
    # optimizers, metrics, callbacks
    "learning_rate": ("lr",),
    "restore_best_weights": ("restore_best",),
    "filename": ("path",),
    "log_dir": ("folder",),
    # compile
    "metrics": ("metric",),
}

#: {keyword of Keras that is a parameter here by the same name: classes for which it too brings Keras's defaults}.
SAME_WORDS: Mapping[str, frozenset[str]] = {
    "activation": frozenset({"Convolution", "SeparableConv2D"}),
    "padding": frozenset({"Convolution", "SeparableConv2D", "MaxPooling", "AvgPooling"}),
}


#: {keyword of Keras whose parameter here other classes have as well: classes that take it}.
ONLY_OF: Mapping[str, frozenset[str]] = {
    "pool_size": frozenset({"MaxPooling", "AvgPooling"}),
    "embeddings_initializer": frozenset({"Embedding"}),
}


def _only_entry(given: object) -> object:
    """The entry of a list of one, as `metrics=["accuracy"]` is one metric; None for an empty list."""
    if isinstance(given, list | tuple) and len(given) < 2:
        return given[0] if given else None
    return given


def _flat_pairs(given: object) -> object:
    """((top, bottom), (left, right)) as (top, bottom, left, right)."""
    if isinstance(given, list | tuple) and given and all(isinstance(pair, list | tuple) for pair in given):
        return tuple(number for pair in given for number in pair)
    return given


#: {keyword of Keras: its value as this package's parameter takes it}.
CONVERSIONS: Mapping[str, Callable[[object], object]] = {
    "metrics": _only_entry,
    "padding": _flat_pairs,
    "cropping": _flat_pairs,
}

#: {keyword of Keras: its values that ask for what is done anyway}: accepted by calls that have no such parameter.
NO_EFFECT: Mapping[str, tuple[object, ...]] = {
    "verbose": (False, 0),
    "run_eagerly": (False,),
    "weighted_metrics": (None,),
    "validation_freq": (1,),
    "validation_batch_size": (None,),
    "return_dict": (False,),
    "jit_compile": (True, "auto"),
    "steps_per_execution": (1,),
    "data_format": ("channels_first", None),
    "reduction": ("sum_over_batch_size",),
    "kernel_regularizer": (None,),
    "bias_regularizer": (None,),
    "activity_regularizer": (None,),
    "kernel_constraint": (None,),
    "bias_constraint": (None,),
}

_PADDING: Mapping[tuple[str, ...], object] = {("padding", "border_mode", "pad"): "valid"}
#: With a padding a pooling takes the other defaults of Keras's by itself.
_POOLING: Mapping[tuple[str, ...], object] = {
    **_PADDING,
    ("kernel", "padding"): 2,
    ("stride", "padding"): SameAs("kernel"),
}
_RECURRENT: Mapping[tuple[str, ...], object] = {
    ("weight_init",): "glorot_uniform",
    ("recurrent_init",): "orthogonal",
}

#: {class, also of its subclasses: {(parameter, others in its place): Keras's default}}: what a call with a word of
#: Keras's takes for the parameter if none of these is given.
DEFAULTS: Mapping[str, Mapping[tuple[str, ...], object]] = {
    "Convolution": _PADDING,
    "SeparableConv2D": _PADDING,
    "TransposedConvolution": {
        ("padding", "border_mode", "pad", "output_padding"): "valid",
        ("border_mode", "padding", "pad"): "valid",
    },
    "MaxPooling": _POOLING,
    "AvgPooling": {**_POOLING, ("count_pad", "padding"): False},
    "BatchNormalization": {("momentum",): 0.01, ("epsilon",): 1e-3},
    "LayerNormalization": {("epsilon",): 1e-3},
    "GroupNormalization": {("epsilon",): 1e-3},
    "PReLU": {("alpha_init",): 0.0, ("shared_axes",): ()},
    "RecurrentLayer": {**_RECURRENT, ("bias_init",): 0.0},
    "LSTM": {**_RECURRENT, ("bias_init",): "unit_forget"},
    "SGD": {("lr",): 0.01},
    "RMSProp": {("lr",): 0.001, ("epsilon",): 1e-7},
    "AdaGrad": {("lr",): 0.001, ("epsilon",): 1e-7},
    "Adam": {("lr",): 0.001, ("epsilon",): 1e-7},
    "AdamW": {("lr",): 0.001, ("epsilon",): 1e-7, ("weight_decay",): 0.004},
    "Lion": {("lr",): 0.001},
}

#: {class, also of its subclasses: (parameter whose meaning differs from Keras's, what it is here)}: refused beside a
#: word of Keras's.
DIFFERENT: Mapping[str, tuple[str, str]] = {
    "BatchNormalization": ("momentum", "the weight of the new batch, 1 minus Keras's momentum"),
    "RecurrentLayer": ("dropout", "between stacks, Keras's on the inputs"),
}

#: {keyword of Keras or PyTorch: hints; the first that is a parameter of the call, or no name, is shown}. Those that are
#: nearly a parameter need none.
HINTS: Mapping[str, tuple[str, ...]] = {
    # layers
    "out_features": ("num_output",),
    "out_channels": ("nb_kernels",),
    "bias": ("use_bias",),
    "embedding_dim": ("dim",),
    "eps": ("epsilon",),
    "num_layers": ("num_stacks",),
    "dim": ("axis",),
    "units": ("num_output",),
    "rate": ("dropout",),
    "input_dim": ("input_sample_shape",),
    "padding": ("border_mode", "pad"),
    "activation": ("net.add(layers.Activation(mode=...)) behind it",),
    "in_features": ("nothing, as a layer takes it from its source (input_sample_shape for the first one)",),
    "in_channels": ("nothing, as a layer takes it from its source (input_sample_shape for the first one)",),
    "batch_first": ("nothing, as the batch comes first always",),
    "kernel_regularizer": ("optimizer.register(pattern, regularizer=...), L2Regularizer(2 * c) for Keras's l2(c)",),
    "storage": ("net.compile(optimizer, precision='bfloat16')",),
    "data_format": ("nothing, as images are (channels, height, width)",),
    # optimizers, losses, metrics
    "betas": ("beta_1 and beta_2",),
    "alpha": ("rho",),
    "momentum": ("beta_1", "optimizer.SGD(momentum=)"),
    "decay": ("weight_decay",),
    "l2": ("weight_decay",),
    "lr_decay": ("a schedule as lr, such as schedule.Exponential",),
    "nesterov": ("optimizer.Nesterov, or optimizer.SGD(nesterov=True)",),
    "params": ("nothing, as net.compile(optimizer) gives it the parameters",),
    "clipnorm": ("clip_global_norm", "net.compile(clip_global_norm=), by the norm of all gradients together"),
    "global_clipnorm": ("clip_global_norm", "net.compile(clip_global_norm=)"),
    "clipvalue": ("net.compile(clip_global_norm=), by the norm of all gradients together",),
    "max_grad_norm": ("clip_global_norm",),
    "reduction": ("nothing, as forward gives a value a sample and evaluate the mean",),
    "weight": ("weight_init", "net.fit(class_weight=)"),
    "top_k": ("k",),
    # compile
    "weighted_metrics": ("metric",),
    "criterion": ("loss",),
    "loss_fn": ("loss",),
    "lr": ("net.optimizer.lr, which optimizer.SGD(lr=) begins with",),
    "learning_rate": ("net.optimizer.lr, which optimizer.SGD(lr=) begins with",),
    "trainable": ("trainable of each layer, or compile(freeze=...)",),
    "run_eagerly": ("graph, which is its opposite",),
    "jit_compile": ("graph",),
    "steps_per_execution": ("nothing, as each step is one",),
    "mixed_precision": ("precision",),
    "gradient_accumulation_steps": ("accumulate",),
    # fit, evaluate, predict
    "validation_freq": ("nothing, as the validation is at the end of each epoch",),
    "validation_batch_size": ("batch_size, which both have",),
    "max_queue_size": ("prefetch",),
    "use_multiprocessing": ("workers=data.Processes(2)",),
    "verbose": ("nothing, as it shows no bar",),
    "return_dict": ("nothing, as (loss, metric) comes back",),
    # callbacks
    "filepath": ("folder",),
    "save_freq": ("every_steps",),
    "save_best_only": ("nothing, as best.h5 is the best one by monitor and mode",),
    "save_weights_only": ("nothing, as net.load(path, optimizer=False) reads the weights alone",),
    "baseline": ("net.evaluate() before the fit",),
    "schedule": ("the optimizer's lr, a schedule or a function of the step",),
}

#: {module of Keras's: the one that has its classes}.
MODULES: Mapping[str, str] = {
    "initializers": "initializer",
    "losses": "loss",
    "metrics": "metric",
    "optimizers": "optimizer",
    "regularizers": "regularizer",
}

#: {class of Keras's: (this package's class, what it is made with unless given)}.
CLASSES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "MaxPool1D": ("MaxPooling1D", {}),
    "MaxPool2D": ("MaxPooling2D", {}),
    "AveragePooling1D": ("AvgPooling1D", {}),
    "AveragePooling2D": ("AvgPooling2D", {}),
    "GlobalAveragePooling1D": ("GlobalAvgPooling1D", {}),
    "GlobalAveragePooling2D": ("GlobalAvgPooling2D", {}),
    "UpSampling2D": ("Upsampling2D", {}),
    "Add": ("Merge", {}),
    "Concatenate": ("Concat", {}),
    "ReLU": ("Activation", {"mode": "relu"}),
    "ELU": ("Activation", {"mode": "elu"}),
    "RMSprop": ("RMSProp", {}),
    "CategoricalCrossentropy": ("SoftmaxCrossEntropy", {"from_logits": False}),
    "SparseCategoricalCrossentropy": ("SoftmaxCrossEntropy", {"from_logits": False}),
    "BinaryCrossentropy": ("SigmoidCrossEntropy", {"from_logits": False}),
    "CategoricalAccuracy": ("Accuracy", {}),
    "SparseCategoricalAccuracy": ("Accuracy", {}),
    "TopKCategoricalAccuracy": ("TopKAccuracy", {}),
    "SparseTopKCategoricalAccuracy": ("TopKAccuracy", {}),
}

#: {class of Keras or PyTorch that is no class here, or differs: what to use}. Those that are nearly a class's name need
#: none.
CLASS_HINTS: Mapping[str, str] = {
    "Linear": "Dense",
    "ConvTranspose1d": "Conv1DTranspose",
    "AdaptiveAvgPool2d": "GlobalAvgPooling2D, for an output of one pixel",
    "InstanceNorm2d": "GroupNormalization(groups=None)",
    "RMSNorm": "RMSNormalization",
    "LocalResponseNorm": "LRN",
    "Dropout2d": "SpatialDropout2D",
    "RNN": "LSTM, GRU or SimpleRNN",
    "InputLayer": "input_sample_shape= of a layer, or Dummy(name, shape)",
    "ReLU6": "Activation(mode='relu6')",
    "LeakyReLU": "Activation(mode='leaky_relu')",
    "GELU": "Activation(mode='gelu')",
    "SiLU": "Activation(mode='silu')",
    "Sigmoid": "Activation(mode='sigmoid')",
    "Tanh": "Activation(mode='tanh')",
    "Softplus": "Activation(mode='softplus')",
    "BCELoss": "SigmoidCrossEntropy(from_logits=False)",
    "BCEWithLogitsLoss": "SigmoidCrossEntropy",
    "MSELoss": "MeanSquaredError",
    "L1Loss": "MeanAbsoluteError",
    "SmoothL1Loss": "Huber",
    "KLDivLoss": "KLDivergence, of raw scores",
    "F1Score": "F1",
    "R2Score": "R2",
    "Adagrad": "AdaGrad, whose sums begin at 0",
    "LearningRateScheduler": "the optimizer's lr, a schedule or a function of the step",
    "MultiStepLR": "Step, with a list of steps",
    "PiecewiseConstantDecay": "Step, with a list of steps",
    "CosineDecay": "CosineWithWarmup",
    "CosineAnnealingLR": "CosineWithWarmup",
}
