"""The tail of the normal distribution, for GELU: NumPy has no error function."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array

#: Chebyshev series, in u = (a - 4) / (a + 4), of e**(a**2 / 2) * Phi(-a) for a >= 0, Phi the standard normal
#: distribution: smooth and bounded, so one polynomial serves all a. The mapping is that of Shepherd and
#: Laframboise, Math. Comp. 36 (1981); the coefficients were computed with 50 digits.
TAIL_SERIES = (
    0.16828820162323273,
    -0.22915709990540907,
    0.07778835509065742,
    -0.020384686418274105,
    0.0039181370454580748,
    -0.00046666062833791709,
    6.2875201321393388768e-06,
    8.5839857991278800064e-06,
    -1.0167576108636199444e-06,
    -1.3975267595213291629e-07,
    3.669280791486882533e-08,
    2.8041788924924711788e-09,
    -1.2584224132220846737e-09,
    -8.9502224072602442542e-11,
    4.5360865309842311453e-11,
    4.4742876565062668215e-12,
    -1.6716879051856839535e-12,
    -2.6837814695538368548e-13,
    5.7217603331309751756e-14,
    1.6210482677154440101e-14,
    -1.3744940820337784055e-15,
    -9.1014389332804694836e-16,
    -2.273488630680851607e-17,
    4.4214638133344208537e-17,
)

#: Coefficients for Horner's rule, highest power first, to float64's rounding and (fewer terms) to float32's.
TAIL_FLOAT64 = tuple(float(c) for c in np.polynomial.chebyshev.cheb2poly(TAIL_SERIES)[::-1])
TAIL_FLOAT32 = tuple(float(c) for c in np.polynomial.chebyshev.cheb2poly(TAIL_SERIES[:11])[::-1])

#: Phi(-40) is 0 in every dtype; beyond it a**2 could overflow.
FARTHEST = 40


def normal_tail(x: Array, a: Array, bell: Array, tail: Array) -> None:
    """a = min(|x|, 40); bell = e**(-a**2 / 2); tail = Phi(-a), to rounding even where it is tiny."""
    np.abs(x, out=a)
    np.minimum(a, FARTHEST, out=a)
    u = bell
    np.add(a, 4, out=tail)
    np.subtract(a, 4, out=u)
    np.divide(u, tail, out=u)
    first, *rest = TAIL_FLOAT64 if tail.dtype.itemsize > 4 else TAIL_FLOAT32
    tail.fill(first)
    for coefficient in rest:
        np.multiply(tail, u, out=tail)
        np.add(tail, coefficient, out=tail)
    np.square(a, out=bell)
    np.multiply(bell, -0.5, out=bell)
    np.exp(bell, out=bell)
    np.multiply(tail, bell, out=tail)
