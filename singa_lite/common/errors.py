"""The project's exceptions; each derives from the built-in that fits.

Those of memory are in `runtime/` and `compiler/placement/`.
"""

from __future__ import annotations


class ShapeError(ValueError):
    """Shapes or layouts do not fit. The message says what was wanted, what was received, and where.

    >>> tensor.zeros((2, 3)).copy_from_numpy(np.ones((3, 2)))
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.ShapeError: copy_from_numpy: wanted shape (2, 3), received (3, 2)
    """


class GraphError(RuntimeError):
    """A net or a tape is used in a way or at a time that it does not allow.

    >>> Sequential([layers.Dense(3, input_shape=(5,))]).train_one_batch(np.ones((2, 5)), np.ones((2, 3)))
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.GraphError: train_one_batch: wanted an optimizer, call compile(optimizer) first
    """


class UnknownNameError(GraphError, KeyError):
    """A name is not in a net or a layer. The message says which there are.

    >>> Sequential([layers.Dense(3, input_shape=(5,))]).layers["hidden"]
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.UnknownNameError: layers of the net: wanted one of ['dense'], received 'hidden'
    """

    __str__ = RuntimeError.__str__  # KeyError's would put the message in quotes


class RuleError(ValueError):
    """A rule for rewriting does not hold, or cannot be found in a record; the message shows where.

    >>> from singa_lite.rewriting import Rule
    >>> Rule("half", lambda x: x / 2.0, lambda x: x * 2.0)
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.RuleError: rule 'half': wanted both sides equal to the bit, ...
    """


class NonFiniteError(FloatingPointError):
    """The loss of a training step is NaN or infinite; the message names the first layer whose output is not finite.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,), weight_init=1e30)])
    >>> net.compile(optimizer.SGD(lr=0.1), "mse", on_nan="raise")
    >>> net.train_one_batch(np.ones((2, 5), "float32"), np.ones((2, 3), "float32"))
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.NonFiniteError: loss of step 0, from 0: wanted a finite number, received inf: ...
    """


class DeviceError(RuntimeError):
    """A device or kernel set is not there, or one operation has tensors of two devices.

    >>> device.get("tpu")
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.DeviceError: device: wanted 'cpu' or 'cuda:<number>', received 'tpu'
    """


class AbstractDeviceError(DeviceError):
    """Values or bytes were wanted of a tensor or a net on an abstract device, which has neither.

    >>> tensor.zeros((2, 3), device=device.abstract()).tolist()
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.AbstractDeviceError: the values of a tensor of shape (2, 3): ...
    """


class SnapshotError(OSError):
    """A snapshot cannot be written or read; the message names the file and the entry.

    >>> open("net.h5", "w").close()
    >>> load("net.h5")
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.SnapshotError: net.h5: wanted a snapshot, ...
    """


class SnapshotVersionError(SnapshotError):
    """A snapshot has a form that this version does not know, such as one of a later version; it is not damaged.

    >>> from singa_lite.errors import SnapshotVersionError
    >>> issubclass(SnapshotVersionError, SnapshotError)
    True
    """


class ConfigError(ValueError):
    """A net cannot be written down as a configuration, or a configuration cannot be read.

    >>> net = Sequential([layers.Lambda("square", lambda x: x * x, input_shape=(5,))])
    >>> net.config()
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.ConfigError: config: layer 'square': function: wanted numbers, text, ...
    """


class OverrunError(RuntimeError):
    """An operation wrote beyond the bytes that it was given. Looked for in checked mode alone.

    >>> from singa_lite.errors import OverrunError
    >>> issubclass(OverrunError, RuntimeError)
    True
    """


class PrecisionWarning(UserWarning):
    """A precision that this processor, or the kernels in use, compute in by another one: right, and no faster.

    >>> import warnings
    >>> from singa_lite.errors import PrecisionWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", PrecisionWarning)  # around net.compile(precision=...)
    """


class DataError(RuntimeError):
    """Data could not be read or made; the message names the sample, the file or the batch.

    >>> def broken(sample, random):
    ...     raise ValueError("no such colour")
    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("sgd", "mse")
    >>> net.fit(np.ones((4, 5)), np.ones((4, 3)), transform=broken, verbose=False)
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.DataError: fit: input of layer 'dense': transform of sample 0: wanted an array, ...
    """


class DataFileError(DataError, ValueError):
    """A file is damaged, empty, or of another kind than was wanted; the message begins with its path.

    >>> open("empty.npz", "w").close()
    >>> data.load_npz("empty.npz", ["x"])
    Traceback (most recent call last):
        ...
    singa_lite.common.errors.DataFileError: empty.npz: wanted an .npz archive, received No data left in file
    """


class ParallelError(RuntimeError):
    """Processes that train together no longer can: one has not come, differs, or failed; the message names it.

    >>> from singa_lite.errors import ParallelError
    >>> issubclass(ParallelError, RuntimeError)
    True
    """


class RankFailedError(ParallelError):
    """Another process of the job has failed, and tells more of it than this one knows.

    >>> from singa_lite.errors import ParallelError, RankFailedError
    >>> issubclass(RankFailedError, ParallelError)
    True
    """
