"""Normalisations. Variances are biased inside the formulas; running variances are unbiased."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Update, Write, kernel

# Batch normalisation: x, y, dy, dx (n, c, ...); the rest (c,). Statistics over all axes but axis 1, m values each.
# Layer normalisation: x, y, dy, dx (rows..., *shape); gamma, beta (*shape); mean, inv_std (rows...).
# Group normalisation: x, y, dy, dx (n, c, ...); gamma, beta (c,); mean, inv_std (n, groups).
# NaN or an infinity among what a statistic is of makes all that is computed of it NaN or infinite, and nothing else: of
# one channel, or one row. The variance of a channel of equal numbers is 0, and its y is beta.

# Behind batch normalisation stand a sum with `other` and an activation, each where it is given: so ends a block of a
# residual net. activation: "relu", "relu6" or "", none. To the bit what the kernels do one after the other, with NaN,
# infinities and at kinks too; of two numbers that are added, minus infinity and no NaN, a set may give NaN for what an
# activation bounds. The result before them is stored nowhere: in 16 bits it is rounded once. other: as x. x, other, y,
# dy and dx lie alike, as a set may normalise images that lie otherwise by other arithmetic.


@kernel(Facts(again="batch_normalize"), y="x other")
def batch_norm(
    x: Read,
    gamma: Read,
    beta: Read,
    running_mean: Update,
    running_var: Update,
    other: Read | None,
    y: Write,
    mean: Write,
    inv_std: Write,
    *,
    momentum: float,
    epsilon: float,
    activation: str = "",
) -> None:
    """y = activation(gamma * inv_std * (x - mean) + beta + other), inv_std = 1 / sqrt(var + epsilon), of this batch.

    y goes by mean and inv_std as they are kept, rounded to their dtype, so that `batch_normalize` gives it again.
    running = (1 - momentum) * running + momentum * batch; the running variance takes var * m / (m - 1)
    (var itself where m = 1). The form of Ioffe and Szegedy, arXiv 1502.03167, with PyTorch's running variance.
    """


@kernel(Facts(by_samples=("x", "other", "y")), y="x other")
def batch_normalize(
    x: Read, gamma: Read, beta: Read, mean: Read, inv_std: Read, other: Read | None, y: Write, *, activation: str = ""
) -> None:
    """y of `batch_norm` by the statistics that it kept, to the bit."""


@kernel(Facts(by_samples=("x", "y")), y="x")
def batch_norm_inference(
    x: Read, gamma: Read, beta: Read, running_mean: Read, running_var: Read, y: Write, *, epsilon: float
) -> None:
    """y = gamma * (x - running_mean) / sqrt(running_var + epsilon) + beta."""


@kernel(dx="dy x")
def batch_norm_derivative(
    dy: Read,
    x: Read,
    gamma: Read,
    beta: Read | None,
    mean: Read,
    inv_std: Read,
    other: Read | None,
    dx: Write,
    dgamma: Write,
    dbeta: Write,
    *,
    activation: str = "",
) -> None:
    """dx, with dgamma and dbeta, which it needs anyway.

    dbeta = sum(d); dgamma = sum(d * xhat), xhat = (x - mean) * inv_std;
    dx = gamma * inv_std * (d - dbeta / m - xhat * dgamma / m) + other. d: the activation's derivative of dy, whose mask
    is worked out from x and beta again; dy itself where there is none, and no beta. other:
    may have gaps, and is not given with an activation.
    """


@kernel()
def batch_norm_gradient(dy: Read, x: Read, mean: Read, inv_std: Read, dgamma: Write, dbeta: Write) -> None:
    """dgamma and dbeta of `batch_norm_derivative` alone, where dx is not needed."""


@kernel(Facts(by_samples=("x", "y", "mean", "inv_std")), y="x")
def layer_norm(x: Read, gamma: Read, beta: Read, y: Write, mean: Write, inv_std: Write, *, epsilon: float) -> None:
    """y = gamma * (x - mean) / sqrt(var + epsilon) + beta, statistics of each row (arXiv 1607.06450)."""


@kernel(Facts(by_samples=("dy", "x", "mean", "inv_std", "dx")), dx="dy")
def layer_norm_derivative(dy: Read, x: Read, gamma: Read, mean: Read, inv_std: Read, dx: Write) -> None:
    """dx = inv_std * (g - mean(g) - xhat * mean(g * xhat)), g = dy * gamma, means of each row."""


@kernel()
def layer_norm_gradient(dy: Read, x: Read, mean: Read, inv_std: Read, dgamma: Write, dbeta: Write) -> None:
    """dgamma = sum over rows of dy * xhat; dbeta = sum over rows of dy."""


@kernel(Facts(by_samples=("x", "y", "mean", "inv_std")), y="x")
def group_norm(x: Read, gamma: Read, beta: Read, y: Write, mean: Write, inv_std: Write, *, epsilon: float) -> None:
    """y = gamma * (x - mean) / sqrt(var + epsilon) + beta, statistics of each group of channels of each sample.

    x, y: (n, c, ...); gamma, beta: (c,); mean, inv_std: (n, groups), groups dividing c (arXiv 1803.08494).
    """


@kernel(Facts(by_samples=("dy", "x", "mean", "inv_std", "dx")), dx="dy")
def group_norm_derivative(dy: Read, x: Read, gamma: Read, mean: Read, inv_std: Read, dx: Write) -> None:
    """dx = inv_std * (g - mean(g) - xhat * mean(g * xhat)), g = dy * gamma, means of each group of each sample."""


@kernel()
def group_norm_gradient(dy: Read, x: Read, mean: Read, inv_std: Read, dgamma: Write, dbeta: Write) -> None:
    """dgamma = sum over all but the channels of dy * xhat; dbeta = sum over all but the channels of dy."""


@kernel(Facts(by_samples=("x", "y", "inv_rms")), y="x")
def rms_norm(x: Read, gamma: Read, y: Write, inv_rms: Write, *, epsilon: float) -> None:
    """y = gamma * x * inv_rms, inv_rms = 1 / sqrt(mean of x**2 + epsilon) of each row (arXiv 1910.07467).

    x, y: (rows..., *shape); gamma: (*shape); inv_rms: (rows...).
    """


@kernel(Facts(by_samples=("dy", "x", "inv_rms", "dx")), dx="dy")
def rms_norm_derivative(dy: Read, x: Read, gamma: Read, inv_rms: Read, dx: Write) -> None:
    """dx = inv_rms * (g - x * inv_rms**2 * mean(g * x)), g = dy * gamma, the mean of each row."""


@kernel()
def rms_norm_gradient(dy: Read, x: Read, inv_rms: Read, dgamma: Write) -> None:
    """dgamma = sum over rows of dy * x * inv_rms."""


@kernel(Facts(by_samples=("x", "y", "scale")))
def lrn(x: Read, y: Write, scale: Write, *, size: int, alpha: float, beta: float, k: float) -> None:
    """y = x * scale**-beta, scale = k + alpha / size * sum of x**2 over `size` neighbouring channels.

    x, y, scale: (n, c, ...); size odd; channels outside count as 0 (Krizhevsky 2012, alpha / size as in Caffe,
    PyTorch, cuDNN and oneDNN).
    """


@kernel(Facts(by_samples=("dy", "x", "scale", "dx")))
def lrn_derivative(dy: Read, x: Read, scale: Read, dx: Write, *, size: int, alpha: float, beta: float) -> None:
    """dx = dy * scale**-beta - 2 * alpha * beta / size * x * windowsum(dy * x * scale**(-beta - 1))."""


@kernel(Facts(by_samples=("x", "y", "norm")), y="x")
def l2_norm(x: Read, y: Write, norm: Write, *, epsilon: float) -> None:
    """y = x / norm, norm = sqrt(sum of x**2 over the sample + epsilon). x, y: (n, ...); norm: (n,).

    Squares that float32 cannot hold are added in float64.
    """


@kernel(Facts(by_samples=("dy", "y", "norm", "dx")), dx="dy")
def l2_norm_derivative(dy: Read, y: Read, norm: Read, dx: Write) -> None:
    """dx = (dy - y * sum of dy * y over the sample) / norm."""
