"""Optimizer updates, in place. PyTorch's formulas."""

from __future__ import annotations

from dataclasses import dataclass

from singa_lite.kernels.interface.signature import Facts, Read, Update, Write, kernel

BY_ELEMENTS = Facts(by_elements=True)

# gradient, value and all state of an element-wise kind: one shape. rate: float64 (), the learning rate, read anew
# at each run; where it is NaN nothing is changed, the count neither. count: int64 (), updates of this parameter so far;
# the kernel adds one first and calls the result t. lr = rate * lr_mult. g = gradient + weight_decay * value, but for
# decoupled decay. With weight_decay = 0 the value is no part of g, so that an infinite one stays infinite. NaN of a
# gradient stays in the element that it came in.


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyper:
    """Hyperparameters that all kinds of update share: one setting of a kernel, hashable."""

    weight_decay: float
    lr_mult: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SgdHyper(Hyper):
    """Those of `sgd`."""

    momentum: float
    dampening: float
    nesterov: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsPropHyper(Hyper):
    """Those of `rms_prop`."""

    rho: float
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaGradHyper(Hyper):
    """Those of `ada_grad`."""

    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamHyper(Hyper):
    """Those of `adam`."""

    beta_1: float
    beta_2: float
    epsilon: float
    decoupled: bool

    @property
    def coupled_decay(self) -> float:
        """The weight decay that goes into g."""
        return 0.0 if self.decoupled else self.weight_decay


@dataclass(frozen=True, slots=True, kw_only=True)
class LionHyper(Hyper):
    """Those of `lion`."""

    beta_1: float
    beta_2: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MuonHyper(Hyper):
    """Those of `muon`. scale: of the step, by the matrix's extents; a, b, c: factors of the Newton-Schulz iteration."""

    momentum: float
    nesterov: bool
    ns_steps: int
    a: float
    b: float
    c: float
    epsilon: float
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdafactorHyper(Hyper):
    """Those of `adafactor` and `adafactor_step`. epsilon_1: None: the machine epsilon of the gradient's dtype."""

    beta_2_decay: float
    epsilon_1: float | None
    epsilon_2: float
    d: float


@kernel(BY_ELEMENTS)
def sgd(gradient: Read, rate: Read, value: Update, velocity: Update | None, count: Update, *, hyper: SgdHyper) -> None:
    """velocity = momentum * velocity + (1 - dampening) * g, or g where t = 1, whatever it held; value -= lr * step.

    step = velocity, or g + momentum * velocity if nesterov, or g where momentum = 0 (velocity is None then).
    """


@kernel(BY_ELEMENTS)
def rms_prop(
    gradient: Read, rate: Read, value: Update, square_average: Update, count: Update, *, hyper: RmsPropHyper
) -> None:
    """square_average = rho * square_average + (1 - rho) * g**2; value -= lr * g / (sqrt(square_average) + epsilon)."""


@kernel(BY_ELEMENTS)
def ada_grad(
    gradient: Read, rate: Read, value: Update, square_sum: Update, count: Update, *, hyper: AdaGradHyper
) -> None:
    """square_sum += g**2; value -= lr * g / (sqrt(square_sum) + epsilon)."""


@kernel(BY_ELEMENTS)
def adam(
    gradient: Read,
    rate: Read,
    value: Update,
    first_moment: Update,
    second_moment: Update,
    max_second_moment: Update | None,
    count: Update,
    *,
    hyper: AdamHyper,
) -> None:
    """m = beta_1 * m + (1 - beta_1) * g; v = beta_2 * v + (1 - beta_2) * g**2;

    value -= lr / (1 - beta_1**t) * m / (sqrt(v / (1 - beta_2**t)) + epsilon) (Kingma and Ba, arXiv 1412.6980).
    decoupled: g = gradient and value -= lr * weight_decay * value beforehand (AdamW, arXiv 1711.05101).
    max_second_moment: where it is given it becomes max(max_second_moment, v), NaN being the largest, and divides in
    the place of v (AMSGrad, Reddi, Kale and Kumar, ICLR 2018, in PyTorch's form: 1 - beta_2**t corrects the maximum).
    """


@kernel(BY_ELEMENTS)
def lion(gradient: Read, rate: Read, value: Update, momentum: Update, count: Update, *, hyper: LionHyper) -> None:
    """value = (1 - lr * weight_decay) * value - lr * sign(beta_1 * momentum + (1 - beta_1) * gradient); then

    momentum = beta_2 * momentum + (1 - beta_2) * gradient (Chen and others, arXiv 2302.06675). The sign of 0 is 0.
    """


@kernel()
def muon(gradient: Read, rate: Read, value: Update, momentum: Update, count: Update, *, hyper: MuonHyper) -> None:
    """momentum = m * momentum + (1 - m) * gradient, m being hyper's; d = m * momentum + (1 - m) * gradient if nesterov,

    else d = momentum; value = (1 - lr * weight_decay) * value - lr * scale * orthogonal(d) (Jordan and others, 2024).
    orthogonal(d): X = d / max(norm, epsilon), the norm that of all elements, then `ns_steps` times
    X = a * X + (b * A + c * A @ A) @ X with A = X @ X.T; where X has more rows than columns, of its transpose.
    value: of two axes or more; those from the second on count as columns. In float32 at least, whatever the value's
    dtype is. NaN in the gradient makes the whole value NaN.
    """


# Adafactor (Shazeer and Stern, arXiv 1804.04235), in PyTorch's form, in two calls: what goes by the whole gradient, and
# what each element then moves by, which may be done in pieces. Of two axes or more there are row_var (..., rows, 1),
# col_var (..., 1, columns) and scale, of row_var's shape; of fewer there is variance, of the value's shape, no scale.


@kernel(Facts(strides_matter=True))
def adafactor(
    gradient: Read,
    rate: Read,
    value: Read,
    row_var: Update | None,
    col_var: Update | None,
    variance: Update | None,
    count: Read,
    scale: Write | None,
    factor: Write,
    *,
    hyper: AdafactorHyper,
) -> None:
    """With t = count + 1 and b = t**beta_2_decay: row_var += b * (mean of g**2 of a row - row_var);

    col_var and variance likewise; scale = row_var / max(mean of row_var of a matrix, epsilon_1), so that g**2 is about
    scale * col_var. factor, float64 (): max(epsilon_2, rms(value)) * min(lr, t**-0.5) / max(1, rms(u) / d), where
    u = g / max(sqrt(scale * col_var), epsilon_1), or of variance; rms: the root of the mean of squares. g = gradient.
    value: perhaps stored in bfloat16; count: perhaps with a key behind it. Where the rate is NaN the state stays.
    """


@kernel(BY_ELEMENTS)
def adafactor_step(
    gradient: Read,
    rate: Read,
    value: Update,
    scale: Read | None,
    col_var: Read | None,
    variance: Read | None,
    factor: Read,
    count: Update,
    *,
    hyper: AdafactorHyper,
) -> None:
    """value = (1 - lr * weight_decay) * value - factor * u, by what `adafactor` has made. It counts the update."""


@kernel(BY_ELEMENTS)
def add_scaled(x: Read, y: Update, *, alpha: float) -> None:
    """y += alpha * x. Equal shapes."""


@kernel(BY_ELEMENTS)
def clip_elements(y: Update, *, threshold: float) -> None:
    """y = min(max(y, -threshold), threshold), element by element. NaN stays NaN."""


@kernel(Facts(strides_matter=True))
def clip_norm(y: Update, *, threshold: float) -> None:
    """y *= threshold / norm where norm = sqrt(sum of y**2) exceeds threshold; else y stays, also where the norm is NaN.

    Squares that float32 cannot hold are added in float64.
    """


# Gradients scaled so that their norm is at most a limit: total, norm and factor are float64 ().


@kernel(Facts(by_elements=True, strides_matter=True))
def add_squares(x: Read, total: Update) -> None:
    """total += sum of x**2, also where x's dtype cannot hold the squares. NaN and infinities reach the total.

    On a CPU pieces of x along its outermost axis in memory, one after the other, give what x gives, to the bit.
    """


@kernel()
def clip_factor(total: Read, norm: Write, factor: Write, *, limit: float) -> None:
    """norm = sqrt(total); factor = min(1, limit / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_.

    limit: above 0, perhaps infinite. An infinite norm gives 0, unless the limit is infinite; NaN stays NaN.
    """


@kernel(BY_ELEMENTS)
def scale_by(factor: Read, y: Update) -> None:
    """y *= factor, rounded to float32 first unless y is float64; where the factor is 1 y stays as it is."""


# The derivative of the loss times a scale, so that small ones are no zeros in float16 (Micikevicius and others, "Mixed
# precision training", arXiv 1710.03740), and steps skipped whose gradients are not finite, as by torch.amp.GradScaler.
# scale, rate, applied, norm, factor: float64 (). good, skipped: int64 ().


@kernel()
def unscale_factor(
    total: Read, rate: Read, scale: Read, norm: Write, factor: Write, applied: Write, *, limit: float
) -> None:
    """norm = sqrt(total) / scale; factor = min(1, limit / (norm + 1e-6)) / scale; applied = rate.

    total: of the squares of gradients times the scale. Where it is no finite number applied is NaN, by which updates
    change nothing, and the factor is 1. limit: as of `clip_factor`; infinite: factor = 1 / scale.
    """


@kernel()
def next_loss_scale(applied: Read, scale: Update, good: Update, skipped: Update, *, interval: int) -> None:
    """Behind a step: the scale of the next one, by whether this one was skipped (applied is NaN).

    Skipped: skipped += 1, good = 0, scale / 2. Else good += 1; where that is the interval scale * 2 and good = 0.
    interval 0: the scale stays. It stays from 2**-126 to 2**126, so that float32 holds it and what it is divided by.
    """


@kernel()
def take_back(applied: Read, before: Read, y: Update) -> None:
    """y = before, where applied is NaN. Equal shapes and dtypes."""
