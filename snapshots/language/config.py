"""LanguageConfig: the sizes and options of a language model, whatever file they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.checks import finite_above_zero, flag, integer
from singa_lite.common.errors import SnapshotError
from singa_lite.layers.rotary_scaling import checked_scaling, scaled_rates

#: Architectures whose files are read and written; GPT-2's are those of `snapshots.maps.gpt2`.
IN_FILES = ("llama", "qwen2", "qwen3", "mistral")
#: Those that `models.language_model` builds.
ARCHITECTURES = (*IN_FILES, "gpt2")

T = TypeVar("T", int, float, str, bool)

#: {our name: that in config.json, that in GGUF files behind the architecture's}.
NAMES = {
    "width": ("hidden_size", "embedding_length"),
    "layers": ("num_hidden_layers", "block_count"),
    "heads": ("num_attention_heads", "attention.head_count"),
    "hidden_size": ("intermediate_size", "feed_forward_length"),
    "context": ("max_position_embeddings", "context_length"),
    "vocabulary": ("vocab_size", "vocab_size"),
    "kv_heads": ("num_key_value_heads", "attention.head_count_kv"),
    "head_size": ("head_dim", "attention.key_length"),
    "epsilon": ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    "rotary_base": ("rope_theta", "rope.freq_base"),
}
_SIZES = [*NAMES][:-2]
#: Of these sizes, what each file says; the others follow from them.
_REQUIRED = _SIZES[:-2]
_FLAGS = ("biases", "query_key_norm", "tied")


@dataclass(frozen=True, kw_only=True)
class LanguageConfig:
    """The sizes and options of a decoder of text. ValueError or TypeError for values that no model has.

    architecture: one of `ARCHITECTURES`; width: features of a position; layers: blocks; heads, kv_heads: of queries,
    and of keys and values; head_size: features of a head; hidden_size: outputs of the feed-forward part's first
    product; vocabulary: ids; rotary_base, rotary_scaling: as for `MultiHeadAttention`; epsilon: of the norms; biases:
    of query, key and value (GPT-2 has them everywhere); query_key_norm: whether each head's queries and keys are
    normalised; window: how many keys a position sees at most, None for all before it; tied: whether the head uses the
    embedding's table; context: the longest text that the model was trained for.

    >>> from singa_lite.snapshots.language.config import LanguageConfig
    >>> LanguageConfig(architecture="llama", width=8, layers=1, heads=2, vocabulary=100, hidden_size=12).head_size
    4
    """

    architecture: str
    width: int
    layers: int
    heads: int
    hidden_size: int
    vocabulary: int
    kv_heads: int = 0
    head_size: int = 0
    rotary_base: float = 10000.0
    rotary_scaling: Mapping[str, object] | None = None
    epsilon: float = 1e-5
    biases: bool = False
    query_key_norm: bool = False
    window: int | None = None
    tied: bool = False
    context: int = 2048

    def __post_init__(self) -> None:
        where = "LanguageConfig"
        if self.architecture not in ARCHITECTURES:
            raise ValueError(
                f"{where} architecture: wanted one of {', '.join(ARCHITECTURES)}, received {self.architecture!r:.100}"
            )
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)
        if not self.head_size:
            self._check_divides("heads", "width")
            object.__setattr__(self, "head_size", self.width // self.heads)
        for name in _SIZES:
            object.__setattr__(self, name, integer(f"{where} {name}", getattr(self, name), 1))
        for name in ("rotary_base", "epsilon"):
            finite_above_zero(f"{where} {name}", getattr(self, name))
        for name in _FLAGS:
            flag(f"{where} {name}", getattr(self, name))
        if self.window is not None:
            integer(f"{where} window", self.window, 1)
        checked_scaling(f"{where} rotary_scaling", self.rotary_scaling)
        self._check_divides("kv_heads", "heads")
        if self.head_size % 2 and self.architecture != "gpt2":
            raise ValueError(f"{where} head_size: wanted an even number, received {self.head_size}")
        if self.architecture == "gpt2":
            self._check_gpt2()

    def _check_divides(self, divisor: str, name: str) -> None:
        count, whole = (integer(f"LanguageConfig {each}", getattr(self, each), 1) for each in (divisor, name))
        if whole % count:
            raise ValueError(f"LanguageConfig {divisor}: wanted a divisor of the {name}, {whole}, received {count}")

    def _check_gpt2(self) -> None:
        """ValueError for what GPT-2's blocks lack."""
        beside = {"kv_heads": self.heads, "head_size": self.width // self.heads, "window": None, "rotary_scaling": None}
        for name, wanted in {**beside, "query_key_norm": False}.items():
            if getattr(self, name) != wanted:
                raise ValueError(f"LanguageConfig {name}: wanted {wanted} of gpt2, received {getattr(self, name)!r}")


# ---- what files say


class Values:
    """The entries of a file by name. prefix: of all names that are asked for."""

    def __init__(self, path: str, entries: Mapping[str, object], prefix: str = "") -> None:
        self.path, self.entries, self.prefix = path, entries, prefix

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """Returns a value. SnapshotError for one that is not there and has no default, or is of another kind."""
        found = self.entries.get(self.prefix + name)
        found = default if found is None else found
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            received = "none of that name" if found is None else repr(found)[:100]
            raise SnapshotError(f"{self.path}: {self.prefix}{name}: wanted {kind.__name__}, received {received}")
        return found

    def architecture(self, name: str, known: Sequence[str] = IN_FILES) -> str:
        """Returns the architecture under a name. SnapshotError for one that is not known."""
        found = self.get(name, str)
        if found not in known:
            raise SnapshotError(f"{self.path}: {name}: wanted one of {', '.join(known)}, received {found[:100]!r}")
        return found


def read_config(values: Values, column: int, architecture: str, **known: Any) -> LanguageConfig:
    """Returns the configuration of a file's entries. SnapshotError for what is missing, and for what no model has.

    column: of the names in `NAMES`; known: what has other names, or none.
    """
    found: dict[str, Any] = {ours: values.get(NAMES[ours][column], int) for ours in _REQUIRED if ours not in known}
    for ours, default in {"kv_heads": found["heads"], "head_size": found["width"] // max(1, found["heads"])}.items():
        found[ours] = values.get(NAMES[ours][column], int, known.pop(ours, default))
    try:
        return LanguageConfig(architecture=architecture, **found, **known)
    except (ValueError, TypeError) as error:
        raise SnapshotError(f"{values.path}: {error}") from error


def rotary_factors(config: LanguageConfig, scaling: Mapping[str, object]) -> NDArray[np.float64]:
    """Returns by what a scaling divides each of the rotary frequencies, (head_size / 2,)."""
    rates = config.rotary_base ** (-np.arange(0, config.head_size, 2) / config.head_size)
    factors: NDArray[np.float64] = rates / scaled_rates("rotary_scaling", rates, scaling)
    return factors


def check_lacking(path: str, lacking: Sequence[str]) -> None:
    """SnapshotError that lists all that a file wants and is not here, if there is any."""
    if lacking:
        raise SnapshotError(f"{path}: wanted a model of what this version has, received {'; '.join(lacking[:20])}")
