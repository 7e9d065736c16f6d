"""The project's exceptions; each derives from the built-in that fits.

Those of memory are in `runtime/` and `compiler/placement/`.
"""

from __future__ import annotations


class ShapeError(ValueError):
    """Shapes or layouts that do not fit. The message says what was wanted, what was received, and where."""


class GraphError(RuntimeError):
    """A net or a tape used in a way or at a time that it does not allow."""


class UnknownNameError(GraphError, KeyError):
    """A name that is not in a net or a layer. The message says which there are."""

    __str__ = RuntimeError.__str__  # KeyError's would put the message in quotes


class RuleError(ValueError):
    """A rule for rewriting that does not hold, or that cannot be found in a record; the message shows where."""


class NonFiniteError(FloatingPointError):
    """A training step whose loss is NaN or infinite; the message names the first layer whose output is not finite."""


class DeviceError(RuntimeError):
    """A device or kernel set that is not there, or tensors of two devices in one operation."""


class AbstractDeviceError(DeviceError):
    """Values or bytes were wanted of a tensor or a net on an abstract device, which has neither."""


class SnapshotError(OSError):
    """A snapshot that cannot be written or read; the message names the file and the entry."""


class SnapshotVersionError(SnapshotError):
    """A snapshot of a form that this version does not know, such as one of a later version; it is not damaged."""


class ConfigError(ValueError):
    """A net that cannot be written down as a configuration, or a configuration that cannot be read."""


class OverrunError(RuntimeError):
    """An operation wrote beyond the bytes that it was given. Looked for in checked mode alone."""


class PrecisionWarning(UserWarning):
    """A precision that this processor, or the kernels in use, compute in by another one: right, and no faster."""


class DataError(RuntimeError):
    """Data that could not be read or made; the message names the sample, the file or the batch."""


class DataFileError(DataError, ValueError):
    """A file that is damaged, empty, or of another kind than was wanted; the message begins with its path."""


class ParallelError(RuntimeError):
    """Processes that train together and no longer can: one has not come, differs, or failed; the message names it."""


class RankFailedError(ParallelError):
    """Another process of the job has failed, and tells more of it than this one knows."""
