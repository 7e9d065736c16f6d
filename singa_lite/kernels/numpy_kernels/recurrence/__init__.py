"""Recurrent layers step by step, by NumPy's functions."""

from singa_lite.kernels.numpy_kernels.recurrence.gru import GruBackward as GruBackward
from singa_lite.kernels.numpy_kernels.recurrence.gru import GruForward as GruForward
from singa_lite.kernels.numpy_kernels.recurrence.lstm import LstmBackward as LstmBackward
from singa_lite.kernels.numpy_kernels.recurrence.lstm import LstmForward as LstmForward
from singa_lite.kernels.numpy_kernels.recurrence.passes import BufferSpecs as BufferSpecs
from singa_lite.kernels.numpy_kernels.recurrence.passes import Call as Call
from singa_lite.kernels.numpy_kernels.recurrence.passes import Pass as Pass
from singa_lite.kernels.numpy_kernels.recurrence.simple_rnn import SimpleRnnBackward as SimpleRnnBackward
from singa_lite.kernels.numpy_kernels.recurrence.simple_rnn import SimpleRnnForward as SimpleRnnForward
