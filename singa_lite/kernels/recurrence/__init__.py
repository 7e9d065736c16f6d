"""Recurrent layers step by step, for all kernel sets that work on NumPy's arrays: they bring the products."""

from singa_lite.kernels.recurrence.gru import GruBackward as GruBackward
from singa_lite.kernels.recurrence.gru import GruForward as GruForward
from singa_lite.kernels.recurrence.lstm import LstmBackward as LstmBackward
from singa_lite.kernels.recurrence.lstm import LstmForward as LstmForward
from singa_lite.kernels.recurrence.passes import Arithmetic as Arithmetic
from singa_lite.kernels.recurrence.passes import BufferSpecs as BufferSpecs
from singa_lite.kernels.recurrence.passes import Call as Call
from singa_lite.kernels.recurrence.passes import Pass as Pass
from singa_lite.kernels.recurrence.passes import Product as Product
from singa_lite.kernels.recurrence.simple_rnn import SimpleRnnBackward as SimpleRnnBackward
from singa_lite.kernels.recurrence.simple_rnn import SimpleRnnForward as SimpleRnnForward
