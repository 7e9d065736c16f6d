"""Muon, which moves matrices by steps whose singular values are near 1, and leaves the rest to another optimizer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import sqrt
from typing import Self, Unpack

from singa_lite.common.checks import at_least_zero, check_choice, finite, flag, fraction, integer, kind_of, names
from singa_lite.common.errors import GraphError
from singa_lite.kernels.interface.update import MuonHyper
from singa_lite.optimizer.adaptive import AdamW
from singa_lite.optimizer.base import LearningRate, Optimizer, Parts
from singa_lite.optimizer.rules import Rule
from singa_lite.tensor import Tensor

ADJUST_LR = ("original", "match_rms_adamw")


class Muon(Optimizer):
    """Updates matrices by m = momentum * m + (1 - momentum) * g; d = momentum * m + (1 - momentum) * g if nesterov,

    else m; value -= lr * (scale * orthogonal(d) + weight_decay * value). g: the gradient. orthogonal(d): d, whose
    singular values are brought to 0.7 to 1.2 by `ns_steps` of Newton and Schulz's iteration with `ns_coefficients`, in
    float32. scale: by adjust_lr "original" the root of max(1, outputs / inputs), by "match_rms_adamw" 0.2 times the
    root of the larger of both, by which AdamW's rates fit. As torch.optim.Muon (Jordan and others, 2024; Liu and
    others, arXiv 2502.16982). A matrix is (inputs, outputs), as that of `Dense`; with more axes it is
    (kernels, all others), as a convolution's filters.

    others: the optimizer of all other parameters, AdamW() by default: those of one axis, and those whose names match a
    pattern of `others_for`, as embeddings and the head usually do. Its rate is its own. Rules by `register`,
    regularizer and constraint are given to Muon, and hold for all parameters.

    >>> w, gradient = tensor.as_tensor([[1.0, 2.0]]), tensor.as_tensor([[3.0, -4.0]])
    >>> optimizer.Muon(lr=0.1, weight_decay=0.0).update("w", w, gradient)
    >>> print(w.round(1))
    [[0.9 2.1]]
    """

    kernel = "muon"
    hyper = MuonHyper
    kernel_slots = ("momentum", "count")

    def __init__(
        self,
        lr: LearningRate = 1e-3,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        epsilon: float = 1e-7,
        adjust_lr: str = "original",
        weight_decay: float = 0.1,
        others: Optimizer | None = None,
        others_for: Collection[str] = (),
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, **parts)
        self.adjust_lr = check_choice("Muon adjust_lr", adjust_lr, ADJUST_LR)
        self.others = _checked_others(AdamW() if others is None else others)
        self.others_for = tuple(names("Muon others_for", others_for))
        if not all(isinstance(pattern, str) for pattern in self.others_for):
            raise TypeError(f"Muon others_for: wanted a list of names, received {others_for!r:.100}")
        self.settings = {
            "momentum": fraction("Muon momentum", momentum),
            "nesterov": flag("Muon nesterov", nesterov),
            "ns_steps": integer("Muon ns_steps", ns_steps, 1, 99),
            **dict(zip("abc", _three("Muon ns_coefficients", ns_coefficients), strict=True)),
            "epsilon": at_least_zero("Muon epsilon", epsilon),
        }

    @property
    def members(self) -> Sequence[Optimizer]:
        """Itself, and the optimizer of the other parameters."""
        return self, self.others

    def member_of(self, name: str | None, value: Tensor) -> Optimizer:
        """`others` for vectors and for the parameters that `others_for` names."""
        called = value.name if name is None else name
        is_other = len(value.shape) < 2 or any(fnmatchcase(called, pattern) for pattern in self.others_for)
        return self.others if is_other else self

    def settings_for(self, value: Tensor) -> dict[str, float]:
        """With the scale of its steps."""
        rows, columns = value.shape[0], value.size() // max(value.shape[0], 1)
        inputs, outputs = (rows, columns) if len(value.shape) == 2 else (columns, rows)
        original = sqrt(max(1, outputs / max(inputs, 1)))
        scale = original if self.adjust_lr == "original" else 0.2 * sqrt(max(rows, columns))
        return self.settings | {"scale": scale}

    def described_settings(self) -> dict[str, object]:
        """Also those of the other parameters."""
        others = {f"others {name}": value for name, value in self.others.described_settings().items()}
        own = {"adjust_lr": self.adjust_lr, "others": type(self.others).__name__, "others_for": self.others_for}
        return super().described_settings() | own | others

    def check_names(self, names: Iterable[str]) -> None:
        """ValueError also for a pattern of `others_for` that matches none of the names."""
        names = list(names)
        super().check_names(names)
        _checked_others(self.others)
        for pattern in self.others_for:
            Rule(pattern).check_names(names, "Muon others_for")

    def adopt(self, changes: Mapping[str, object], before: Self, after: Self) -> None:
        """GraphError for another choice of optimizers once there is state."""
        if self.state and not changes.keys().isdisjoint({"others", "others_for"}):
            raise GraphError(
                f"Muon {', '.join(changes)}: wanted those of the state that it has, received others; a new optimizer "
                "has none yet"
            )
        super().adopt(changes, before, after)

    def _write_rate(self, step: int) -> None:
        super()._write_rate(step)
        self.others.restore_step(step)
        self.others.count_step()


def _checked_others(given: object) -> Optimizer:
    """TypeError for what is no optimizer of this kind, ValueError for one that has rules or state."""
    if not isinstance(given, Optimizer) or isinstance(given, Muon):
        raise TypeError(f"Muon others: wanted another optimizer, such as AdamW(3e-4), received {kind_of(given)}")
    rule = given.rules[0]
    if len(given.rules) > 1 or rule.regularizer is not None or rule.constraint is not None or given.has_state:
        raise ValueError(
            f"Muon others: wanted a new optimizer without rules, regularizer or constraint, which Muon's `register` "
            f"takes for all parameters, received {type(given).__name__} with some"
        )
    return given


def _three(where: str, given: Iterable[float]) -> list[float]:
    found = [finite(where, number) for number in given] if isinstance(given, tuple | list) else []
    if len(found) != 3:
        raise ValueError(f"{where}: wanted three numbers, received {given!r:.100}")
    return found
