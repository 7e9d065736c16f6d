"""Bytes against time as a picture: our curve and the peer's marks, a panel a net; where and when in a line below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report import MIB

from .figures import Figure, curve

#: By system: what the legend calls it, the mark, and a colour that the colour-blind tell apart (Okabe and Ito).
STYLES = {
    "singa_lite": ("singa_lite, memory_budget", "o", "#0072B2"),
    "torch": ("PyTorch, the usual loop", "s", "#E69F00"),
    "torch-segments": ("PyTorch, checkpoint in segments", "^", "#D55E00"),
    "torch-compile": ("PyTorch, compiled, activation_memory_budget", "D", "#CC79A7"),
}
TITLES = {"resnet50": "ResNet-50", "mobilenet_v2": "MobileNetV2", "unet": "U-Net", "densenet121": "DenseNet-121"}
#: Inches of the picture and of a panel's height, dots an inch, and the slowdown above which nothing is drawn.
WIDTH, HEIGHT, DOTS, MOST = 9.0, 3.1, 110, 0.8


def picture(nets: Sequence[Sequence[Figure]], caption: str, path: str) -> None:
    """Draw into a file. ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("agg")  # into files; no screen is needed
    import matplotlib.pyplot as plt

    across = min(2, len(nets))
    down = -(-len(nets) // across)
    size = (WIDTH, HEIGHT * down + 0.9)
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    handles: dict[str, Any] = {}
    for axis, found in zip(axes.flat, nets, strict=False):
        handles.update(_draw(axis, found))
    for axis in list(axes.flat)[len(nets) :]:
        axis.remove()
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=2, frameon=False)
    figure.supxlabel(caption, fontsize=8, color="0.35")
    figure.savefig(path, dpi=DOTS)
    plt.close(figure)


def _draw(axis: Any, found: Sequence[Figure]) -> dict[str, Any]:
    """A panel; what the legend names."""
    handles = {}
    for way, (label, mark, colour) in STYLES.items():
        points = [(one.nbytes / MIB, one.ratio.median - 1) for one in found if one.case.task.way == way]
        if points:
            options = {
                "linestyle": "none",
                "marker": mark,
                "color": colour,
                "markersize": 6,
                "markeredgecolor": "white",
            }
            (handles[label],) = axis.plot(*zip(*points, strict=True), **options)
    points = [(nbytes / MIB, ratio - 1) for nbytes, ratio in curve(found)]
    if points:
        axis.plot(*zip(*points, strict=True), color=STYLES["singa_lite"][2], linewidth=1.8, zorder=1)
    _dress(axis, found)
    return handles


def _dress(axis: Any, found: Sequence[Figure]) -> None:
    slowest = max((one.ratio.median - 1 for one in found), default=0.0)
    fastest = min((one.ratio.median - 1 for one in found), default=0.0)
    room = 0.08 * (min(slowest, MOST) - fastest) + 0.02
    axis.set_ylim(fastest - room, min(slowest, MOST) + room)
    axis.set_xlim(0, 1.05 * max((one.nbytes / MIB for one in found), default=1.0))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:+.0%}")
    if found:
        task = found[0].case.task
        beyond = sum(one.ratio.median - 1 > MOST for one in found)
        title = f"{TITLES.get(task.net, task.net)}, batch {task.batch}"
        axis.set_title(title + (f" ({beyond} beyond {MOST:+.0%} not shown)" if beyond else ""), fontsize=10)
    axis.set_xlabel("process memory over import, MiB", fontsize=9)
    axis.set_ylabel("time of a step", fontsize=9)
    axis.axhline(0.0, color="0.75", linewidth=0.8, zorder=0)
    axis.grid(alpha=0.25)
