"""`python keras_models.py` makes keras_recorded.json anew, what the tests go by; with a path, that file.

For each model: the names of the groups in its file, the shapes of the arrays, and what it predicts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import h5py
import keras
import numpy as np
from keras import Input
from keras import layers as k

import keras_nets

EPSILON = {"epsilon": 1e-5}


def chain(*members: Any) -> Any:
    return keras.Sequential([*members])


def dense() -> Any:
    return keras.Sequential(
        [Input((3,)), k.Dense(5), k.Activation("relu"), k.Dropout(0.3), k.Dense(4, use_bias=False), k.Softmax()]
    )


def strided() -> Any:
    """Pads that Keras puts behind."""
    same: dict[str, Any] = {"padding": "same"}
    return chain(
        Input((13, 10, 2)),
        k.Conv2D(4, 3, 2, **same),
        k.MaxPooling2D(2, 1, **same),
        k.DepthwiseConv2D(2, **same),
        k.Conv2DTranspose(3, 4, 3, **same),
        k.SeparableConv2D(3, 3, 2, **same),
        k.Conv2DTranspose(2, 2, 3),
        k.MaxPooling2D(**same),
        k.AveragePooling2D(3, 1, **same),
        k.Flatten(),
        k.Dense(3),
    )


def branches() -> Any:
    """Layers of one class in branches of unequal depth, made and named in an order that is not Keras's own."""
    image, vector = Input((6, 4, 2)), Input((5,))
    short = k.Conv2D(3, 1, padding="same", name="short")
    long = k.Conv2D(3, 3, padding="same", name="long")
    longer = k.Conv2D(3, 3, padding="same", name="longer")
    twice = k.Dense(4)
    joined = k.Add()([short(image), longer(k.Activation("tanh")(long(image)))])
    both = k.Concatenate(axis=-1)([joined, image])
    flat = k.Concatenate()([k.Flatten()(both), vector, k.Reshape((-1,))(image)])
    pooled = k.GlobalAveragePooling2D()(k.UpSampling2D(2)(both))
    first = twice(k.Dense(3)(flat))
    second = twice(k.UnitNormalization()(k.Dense(3)(pooled)))
    return keras.Model([image, vector], k.Dense(2)(k.Multiply()([first, second])))


def attention() -> Any:
    words, memory = Input((5,)), Input((4, 8))
    table = k.ReversibleEmbedding(9, 6)
    x = table(words)
    x = k.Add()([x, k.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)])
    x = k.LayerNormalization(**EPSILON)(x)
    x = k.Add()([x, k.MultiHeadAttention(3, 2, use_bias=False)(x, memory)])
    x = k.LayerNormalization(**EPSILON)(k.Add()([x, k.GroupQueryAttention(3, 4, 2)(x, x)]))
    return keras.Model([words, memory], table(x, reverse=True))


def nested() -> Any:
    inner = [k.Dense(4), k.Dropout(0.2), keras.Sequential([k.Dense(6), k.Activation("tanh"), k.Dense(2)])]
    step = keras.Sequential([k.Conv2D(3, 2), k.Flatten(), k.Dense(5)])
    return chain(
        Input((4, 3, 5, 2)),
        k.TimeDistributed(step),
        k.TimeDistributed(k.Dense(3)),
        k.Bidirectional(k.LSTM(2, return_sequences=True)),
        keras.Sequential(inner),
        k.Dense(7),
    )


MODELS: dict[str, Callable[[], Any]] = {
    "dense": dense,
    "images": lambda: chain(
        Input((9, 8, 2)),
        k.Conv2D(6, (3, 5), padding="same"),
        k.BatchNormalization(**EPSILON),
        k.Activation("relu"),
        k.MaxPooling2D((2, 1)),
        k.Conv2D(4, 3, strides=(1, 2), groups=2, use_bias=False),
        k.AveragePooling2D(2, 1),
        k.Flatten(),
        k.Dropout(0.5),
        k.Dense(7),
        k.Dense(3),
    ),
    "depthwise": lambda: chain(
        Input((5, 6, 3)),
        k.DepthwiseConv2D((2, 3), depth_multiplier=2),
        k.LayerNormalization(axis=[1, 2, 3], **EPSILON),
        k.Flatten(),
        k.BatchNormalization(**EPSILON),
        k.LayerNormalization(**EPSILON),
        k.Dense(4),
    ),
    # A group for each channel, and beside it a layer of the class for that.
    "grouped": lambda: chain(
        Input((5, 6, 3)),
        k.Conv2D(6, (2, 3), groups=3),
        k.DepthwiseConv2D(2),
        k.Conv2D(6, 1, groups=6, use_bias=False),
        k.Reshape((3 * 3, 6)),
        k.Conv1D(12, 3, groups=6),
        k.Flatten(),
        k.Dense(4),
    ),
    "sequences": lambda: chain(
        Input((19, 4)),
        k.Conv1D(6, 3, dilation_rate=2, groups=2, padding="same"),
        k.BatchNormalization(**EPSILON),
        k.MaxPooling1D(2, 1),
        k.Conv1D(6, 5, groups=6),
        k.AveragePooling1D(3, 2),
        k.LayerNormalization(axis=[1, 2], **EPSILON),
        k.Flatten(),
        k.Dense(3),
    ),
    "branches": branches,
    "recurrent": lambda: chain(
        Input((7,)),
        k.Embedding(9, 4, mask_zero=True),
        k.LSTM(6, return_sequences=True),
        k.GRU(5, return_sequences=True),
        k.SimpleRNN(4, use_bias=False, return_sequences=True),
        k.Bidirectional(k.GRU(3, return_sequences=True, reset_after=False)),
        k.Bidirectional(k.LSTM(2), merge_mode="mul"),
        k.RMSNormalization(**EPSILON),
        k.Dense(3),
    ),
    "attention": attention,
    "nested": nested,
    "everyday": lambda: chain(
        Input((4, 5, 2)),
        k.Rescaling(0.5, 0.1),
        k.Conv2DTranspose(4, (3, 2), 2),
        k.PReLU(shared_axes=[1, 2]),
        k.GroupNormalization(2, **EPSILON),
        k.SpatialDropout2D(0.5),
        k.Conv2DTranspose(3, 3, 2, padding="same"),
        k.ZeroPadding2D(((1, 0), (2, 3))),
        k.SeparableConv2D(6, (3, 5), padding="same", depth_multiplier=2),
        k.PReLU(),
        k.Cropping2D(((0, 2), (1, 0))),
        k.DepthwiseConv2D((2, 3), use_bias=False),
        k.GaussianNoise(0.3),
        k.MaxPooling2D(7),
        k.Flatten(),
        k.PReLU(),
        k.Dense(3),
    ),
    "pooled": lambda: chain(
        Input((5, 3)),
        k.SpatialDropout1D(0.5),
        k.Conv1DTranspose(4, 3, 2, use_bias=False),
        k.GroupNormalization(-1, **EPSILON),
        k.Conv1DTranspose(6, 2),
        k.PReLU(shared_axes=[1]),
        k.GlobalMaxPooling1D(),
        k.PReLU(shared_axes=[1]),
        k.Dense(3),
    ),
    "deep": lambda: chain(Input((9, 4)), k.DepthwiseConv1D(5, depth_multiplier=2), k.Flatten(), k.Dense(3)),
    "strided": strided,
    "causal": lambda: chain(
        Input((11, 3)),
        k.Conv1D(4, 3, padding="causal"),
        k.Conv1D(4, 2, 2, padding="same"),
        k.Conv1DTranspose(3, 3, 2, padding="same"),
        k.MaxPooling1D(3, padding="same"),
        k.Flatten(),
        k.Dense(2),
    ),
}


def predicted(model: Any, inputs: list[np.ndarray]) -> np.ndarray:
    given = inputs if len(inputs) > 1 else inputs[0]
    return keras.ops.convert_to_numpy(model(given, training=False))


def recorded(name: str, folder: Path) -> dict[str, Any]:
    """Groups, arrays and output of a model, with the values and inputs of keras_nets.py."""
    model, path = MODELS[name](), folder / "x.weights.h5"
    model.save_weights(path)
    found: dict[str, Any] = {"names": {}, "arrays": {}}

    def note(place: str, member: Any) -> None:
        if isinstance(member, h5py.Dataset):
            found["arrays"][place] = member.shape
            member[...] = keras_nets.recorded_values(place, member.shape)
        elif "name" in member.attrs:
            found["names"][place] = member.attrs["name"]

    with h5py.File(path, "r+") as file:
        file.visititems(note)
    model.load_weights(path)
    inputs = [keras_nets.recorded_inputs(name, number, x.shape[1:]) for number, x in enumerate(model.inputs)]
    return found | {"output": predicted(model, inputs).tolist()}


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        made = {name: recorded(name, Path(folder)) for name in MODELS}
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else keras_nets.RECORDED
    target.write_text(json.dumps({"keras": keras.__version__, **made}) + "\n")
