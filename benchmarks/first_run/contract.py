"""Every kernel of ours, and of the libraries, against the results that were prepared."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np

from first_run.item import Context, Values, Wrong
from first_run.prepared import PreparedCall, cases, exact_results
from singa_lite.kernels.kernel_set import specs_of

#: Roundings of the largest element that a result may be off by: the contract's own bound, and in 16 bits.
MOST_ROUNDINGS, MOST_IN_16_BITS = 128, 32
#: Places of wrong elements that are told.
SHOWN = 5


def check(context: Context, key: str) -> Values:
    """Compares a contract call with its expected results, by our own kernels and by the set with the libraries.

    Gives for each the error in roundings, and whether its bits are those of the host build.
    """
    call = context.prepared.calls[key]
    values: Values = {}
    wrong = []
    for side, kernels in _sets(context, call):
        found = _results(kernels, call)
        values[side] = {"error": _error(found, call), "equal_bits": _equal(found, call.host)}
        if not values[side]["error"] <= _most(call):
            wrong.append(f"{side}: off by {values[side]['error']:.3g} roundings, {_places(found, call)}")
    if wrong:
        raise Wrong("; ".join(wrong), values)
    return values


def again(context: Context, key: str) -> Values:
    """A call that failed, in detail: each size of the contract and each dtype, against NumPy in float64."""
    from kernel_sizes import SIZES, build

    case, prepared_in = cases()[key]
    outcome: Values = {}
    for size in SIZES:
        for dtype in ("float32", "float64") if prepared_in == "float32" else (prepared_in,):
            tensors, settings = build(case, size, dtype)
            name = key.split(":")[0]
            call = PreparedCall(name, tensors, settings, exact_results(name, tensors, settings), {})
            for side, kernels in _sets(context, call):
                label = f"{side} {size} {dtype}"
                outcome[label] = _outcome(kernels, call)
                context.row({label: outcome[label]})
                if not context.machine.is_alive():
                    raise RuntimeError(f"no kernel runs after {label}: {outcome[label]}")
    return outcome


def _outcome(kernels: Any, call: PreparedCall) -> str:
    try:
        found = _results(kernels, call)
    except Exception:
        return traceback.format_exc(limit=-3)
    error = _error(found, call)
    return f"{error:.3g} roundings" + ("" if error <= _most(call) else f", {_places(found, call)}")


def _most(call: PreparedCall) -> int:
    return MOST_IN_16_BITS if any(t is not None and t.dtype == np.float16 for t in call.tensors) else MOST_ROUNDINGS


def _sets(context: Context, call: PreparedCall) -> list[tuple[str, Any]]:
    """Our own kernels where these do the call, and the libraries' with ours below them."""
    from gpu_kernels import OnGpu

    machine, found = context.machine, []
    on, own = machine.on, machine.own_set()
    if machine.served_by(own, call.kernel, specs_of(call.tensors), call.settings) == "own":
        found.append(("own", OnGpu("own", on, own)))
    if not context.options.own:
        found.append(("libraries", OnGpu("libraries", on, on.kernels)))
    return found


def _results(kernels: Any, call: PreparedCall) -> dict[str, Any]:
    from singa_lite.testing.kernel_call import Call

    return dict(Call(kernels, call.kernel, call.tensors, call.settings).run().results)


def _error(found: dict[str, Any], call: PreparedCall) -> float:
    """The largest of all results, in roundings of the largest element; integers must be equal."""
    return max((_roundings(found[name], wanted) for name, wanted in call.exact.items()), default=0.0)


def _roundings(found: Any, wanted: Any) -> float:
    if wanted.dtype.kind != "f" or not wanted.size:
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    apart = np.abs(found.astype(np.float64) - wanted)
    if np.isnan(apart).any():
        return float("inf")
    return float(apart.max() / (np.finfo(found.dtype).eps * max(np.abs(wanted).max(), np.finfo(found.dtype).tiny)))


def _equal(found: dict[str, Any], host: dict[str, Any]) -> bool:
    return all(found[name].tobytes() == bits.tobytes() for name, bits in host.items())


def _places(found: dict[str, Any], call: PreparedCall) -> str:
    """Where the worst result is off most, with what was found and wanted there."""
    name = max(call.exact, key=lambda one: _roundings(found[one], call.exact[one]))
    got, wanted = found[name], call.exact[name]
    apart = np.nan_to_num(np.abs(got.astype(np.float64) - wanted.astype(np.float64)), nan=np.inf)
    worst = np.argsort(apart, axis=None)[::-1][:SHOWN]
    places = [tuple(map(int, np.unravel_index(at, apart.shape))) for at in worst]
    told = ", ".join(f"{place} {got[place]} for {wanted[place]}" for place in places)
    return f"{name} {got.shape}, {int((apart > 0).sum())} elements differ: {told}"
