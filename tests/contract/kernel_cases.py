"""All cases of the kernel contract: `CASES`, keys "kernel" or "kernel:variant"."""

from __future__ import annotations

from kernel_case import Case
from kernel_cases_attention import CASES as ATTENTION
from kernel_cases_pointwise import CASES as POINTWISE
from kernel_cases_quantized import CASES as QUANTIZED
from kernel_cases_recurrent import CASES as RECURRENT
from kernel_cases_sequences import CASES as SEQUENCES
from kernel_cases_spatial import CASES as SPATIAL
from kernel_cases_stored import CASES as STORED

CASES: dict[str, Case] = {**POINTWISE, **SPATIAL, **SEQUENCES, **ATTENTION, **RECURRENT, **QUANTIZED, **STORED}
