"""When two sides that trained from equal weights agree to float32 accuracy.

Two correct implementations add in different orders. A sum of K rounded products, kept in the few partial sums that
vector registers are, ends with a relative error of some sqrt(K) / 8 units of rounding u = 2**-24 (random walk; Higham,
Accuracy and Stability of Numerical Algorithms, 2002, 4.2): about 8 u for the K of a 3 x 3 convolution of 512 channels.
What becomes of it over ten steps depends on the net, the rate and the batch: a ReLU whose input is about 0, or a
maximum about equal to another, turns a rounding error into another gradient. So it is measured, not guessed: PyTorch
trains the same steps three times, and at each step passes forward and back through weights that are each off by 8 u, up
or down at random, which moves every sum by about as much as rounding does. How far apart the three come is the noise.

    |our loss - their loss| <= FACTOR * noise so far + LAST_PLACES * u * |loss|     at each step

FACTOR: the range of three samples of deviation s is 1.7 s in the mean; the difference of two sides, s * sqrt(2), stays
below 4.7 s in 999 of 1000 cases. 4.7 / 1.7 = 2.8, rounded up to a power of two for a range that came out small.
LAST_PLACES: the loss itself is a float32 mean, rounded last on both sides.
CAP: of the first loss. Noise above it means that rounding alone decides how the training goes (a rate too high): then
equal losses can show nothing, and the comparison fails as well. SEEN: so many times what is allowed must the loss have
moved, so that a gradient that is wrong by a percent would show; a rate too low fails too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

UNIT = 2.0**-24
PERTURBATION = 8 * UNIT
FACTOR = 4.0
LAST_PLACES = 4.0
CAP = 1e-3
SEEN = 100.0


class Agreement(NamedTuple):
    """difference, allowed: at the step where they are closest to each other or furthest beyond; agrees: at all."""

    agrees: bool
    step: int
    difference: float
    allowed: float
    reason: str = ""


def allowed_differences(losses: Sequence[float], perturbed: Sequence[Sequence[float]]) -> list[float]:
    """At each step. losses: of the peer; perturbed: of the runs with perturbed weights, at least as many steps."""
    ranges = [max(step) - min(step) for step in zip(*perturbed, strict=True)]
    noise = accumulate(ranges, max)
    return [FACTOR * n + LAST_PLACES * UNIT * abs(loss) for n, loss in zip(noise, losses, strict=False)]


def agreement(ours: Sequence[float], theirs: Sequence[float], perturbed: Sequence[Sequence[float]]) -> Agreement:
    """Whether the losses of all steps agree."""
    allowed = allowed_differences(theirs, perturbed)
    differences = [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
    # `not <=`, and no maximum over the raw differences: a loss that is not a number must not pass.
    failed = [step for step, (d, a) in enumerate(zip(differences, allowed, strict=True)) if not d <= a]
    step = failed[0] if failed else max(range(len(differences)), key=lambda i: differences[i] / allowed[i])
    reason = f"loss of step {step + 1} differs" if failed else _blindness(theirs, max(allowed))
    return Agreement(not reason, step, differences[step], allowed[step], reason)


def _blindness(losses: Sequence[float], allowed: float) -> str:
    """Why these losses could not show a difference; "" if they could."""
    if not allowed <= CAP * abs(losses[0]):
        return f"noise of rounding: {allowed:.1e} allowed, wanted at most {CAP:.0e} of the first loss"
    if not allowed * SEEN <= abs(losses[-1] - losses[0]):
        return f"the loss hardly moved: wanted {SEEN:.0f} times the {allowed:.1e} allowed"
    return ""
