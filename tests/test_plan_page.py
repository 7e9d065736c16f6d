"""The page of a memory plan, read back: its data against a plan placed by hand, and that it needs nothing else."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from math import inf

import numpy as np
import pytest

from singa_lite import FeedForwardNet, autograd, device, layers, optimizer, tensor
from singa_lite.compiler.ir.operation import Instruction, Operand, Phase, Role
from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.placed import Placed
from singa_lite.compiler.placement.problem import Plan
from singa_lite.compiler.report.memory_plan import MemoryPlan, Row
from singa_lite.compiler.report.plan_page import write

EVIL = "<script>alert(1)</script> & co"

# (kernel, blocks, phase, layer, scratch bytes) of each step. Blocks 0 and 5 are held.
STEPS = [
    ("relu", (0, 1), Phase.FORWARD, "one", 0),
    ("scale", (1, 2), Phase.FORWARD, EVIL, 100),
    ("relu_derivative", (2, 1, 3), Phase.DERIVATIVE, "one", 0),
    ("multiply", (3, 1, 4), Phase.GRADIENT, "one", 0),
    ("scale", (4, 6), Phase.UPDATE, "", 0),
    ("copy", (6, 5), Phase.UPDATE, "", 0),
]
SIZES = {1: 2000, 2: 1000, 3: 700, 4: 300, 6: 64}
OFFSETS = {"b1": 0, "b2": 2048, "b3": 3072, "b4": 2048, "b6": 0, "s1": 3072}
NAMES = ["x", "hidden", "scaled/out", "dx", "dw", "weight", "moved"]
LIVE = [2048, 2048 + 1024 + 128, 2048 + 1024 + 704, 2048 + 704 + 320, 320 + 64, 64]

# {(kind, name): (first step, steps, offset, bytes)}
RECTANGLES = {
    ("forward", "hidden"): (0, 4, 0, 2000),
    ("forward", "scaled/out"): (1, 2, 2048, 1000),
    ("derivative", "dx"): (2, 2, 3072, 700),
    ("gradient", "dw"): (3, 2, 2048, 300),
    ("update", "moved"): (4, 2, 0, 64),
    ("scratch", "scratch of scale"): (1, 1, 3072, 128),
}


def placed_by_hand() -> MemoryPlan:
    """The plan of STEPS."""

    def operand(block: int) -> Operand:
        return Operand(block, (SIZES.get(block, 24),), np.dtype(np.uint8), (1,), 0)

    program = Program(
        tuple(
            Instruction(number, kernel, tuple(map(operand, blocks)), {}, phase, layer, scratch)
            for number, (kernel, blocks, phase, layer, scratch) in enumerate(STEPS)
        ),
        SIZES,
    )
    roles = {0: Role.INPUT, 5: Role.PARAMETER}
    rows = [
        Row(name, "one", roles.get(number, Role.INTERMEDIATE), SIZES.get(number, 24), number)
        for number, name in enumerate(NAMES)
    ]
    return MemoryPlan(placed(program, OFFSETS, 3776), rows, 4096)


def placed(program: Program, offsets: dict[str, int], arena: int) -> Placed:
    """A placement of a program by offsets found by hand."""
    plan = Plan(offsets, arena, floor(program), True, 0.0, "by hand")
    return Placed(program, program, program, plan, {}, {})


class Page(HTMLParser):
    """What a browser would find: data, layout and config of the figure, the text, table cells, and what it loads."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.cells: list[list[str]] = []
        self.layers: dict[str, list[str]] = {}
        self.ids: list[str] = []
        self.links: list[tuple[str, str, str]] = []
        self.loads: list[str] = []
        self._script = False
        self._in_cell = False
        self.feed(source)
        self.words = " ".join(" ".join(self.text).split())
        self.data, self.layout, self.config = figure_of(source)
        self.traces = {trace["name"]: trace for trace in self.data}

    def handle_starttag(self, tag, attributes):
        self._script = tag in ("script", "style")
        self.loads += [f"{tag} {key}={value}" for key, value in attributes if key in ("src", "href", "srcset", "data")]
        told = dict(attributes)
        self.ids += [told["id"]] if "id" in told else []
        if tag == "tr":
            row: list[str] = []
            self.cells.append(row)
            if "id" in told:
                self.layers[told["id"]] = row
        if tag == "a":
            self.links.append((told["href"], told.get("data-layer", ""), ""))
        self._in_cell = tag == "td" or (self._in_cell and tag in ("i", "a"))
        if tag == "td":
            self.cells[-1].append("")

    def handle_endtag(self, tag):
        self._script = False
        self._in_cell = self._in_cell and tag in ("i", "a")

    def handle_data(self, data):
        if not self._script:
            self.text.append(data)
        if self._in_cell:
            self.cells[-1][-1] += data
        if self.links and not self.links[-1][2]:
            self.links[-1] = (*self.links[-1][:2], data)

    @property
    def table(self) -> list[list[str]]:
        """The rows of the tables of blocks and of repeats, their heads left out."""
        return [row for row in self.cells if row and not any(row is other for other in self.layers.values())]


def figure_of(source: str) -> list:
    """The three JSON arguments of the page's one call that draws."""
    rest = source[source.rindex("Plotly.newPlot(") :]
    found = []
    rest = rest[rest.index("[") :]
    for _ in range(3):
        value, end = json.JSONDecoder().raw_decode(rest)
        found.append(value)
        rest = rest[end:].lstrip(", \n")
    return found


def page_of(plan: MemoryPlan, folder) -> Page:
    """The page of a plan, written and read."""
    write(plan, folder / "plan.html")
    return Page((folder / "plan.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    return page_of(placed_by_hand(), tmp_path_factory.mktemp("page"))


def rectangles(page: Page, scale: int) -> dict:
    """As RECTANGLES, from the bars of the page."""
    found = {}
    for bars in (trace for trace in page.data if trace["type"] == "bar"):
        assert bars["offset"] == 0, "a bar starts at its x"
        assert len({len(bars[key]) for key in ("x", "width", "base", "y", "customdata")}) == 1
        for x, width, base, y, told in zip(*(bars[k] for k in ("x", "width", "base", "y", "customdata")), strict=True):
            found[bars["name"], told[0]] = x, width, base * scale, y * scale
    return found


# --- the figure ---------------------------------------------------------------------------------------------


def test_a_rectangle_for_each_block_and_scratch(page):
    assert rectangles(page, 1024) == RECTANGLES
    assert page.layout["barmode"] == "overlay"
    assert page.layout["yaxis"]["title"]["text"] == "offset (KiB)"


def test_live_bytes_floor_and_arena_above(page):
    curve, arena, low = (page.traces[name] for name in ("live bytes", "arena", "floor"))
    assert curve["x"] == list(range(7))
    assert [y * 1024 for y in curve["y"]] == [*LIVE, LIVE[-1]]
    assert curve["line"]["shape"] == "hv"
    assert [y * 1024 for y in arena["y"]] == [3776, 3776] == [y * 1024 for y in low["y"]]
    assert {trace["yaxis"] for trace in (curve, arena, low)} == {"y2"}
    assert all("xaxis" not in trace for trace in page.data), "one x axis for all"
    assert page.layout["yaxis"]["domain"][1] < page.layout["yaxis2"]["domain"][0]


# --- the text -----------------------------------------------------------------------------------------------


def test_the_table_of_the_peak(page):
    assert page.table == [
        ["hidden", "one", "forward", "1.95 KiB", "2,000", "0 to 3", "0"],
        ["scaled/out", "one", "forward", "1000 bytes", "1,000", "1 to 2", "2,048"],
        ["dx", "one", "derivative", "700 bytes", "700", "2 to 3", "3,072"],
    ]


def test_names_are_text_and_not_markup(tmp_path):
    plan = placed_by_hand()
    plan.rows = [replace(row, name=EVIL) for row in plan.rows]
    write(plan, tmp_path / "plan.html")
    source = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in source
    page = Page(source)
    (told,) = page.traces["scratch"]["customdata"]
    assert told[0] == told[1] == "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co"
    assert [row[0] for row in page.table] == [EVIL] * 3


# --- links --------------------------------------------------------------------------------------------------


def test_a_rectangle_leads_to_its_layer_and_a_layer_to_its_rectangles(page):
    assert page.layers == {
        "layer-0": ["one", "5", "4,064", "2,000", "3,700", "0 to 5"],
        "layer-1": [EVIL, "1", "128", "128", "0", "1 to 1"],
    }
    for bars in (trace for trace in page.data if trace["type"] == "bar"):
        assert bars["unselected"]["marker"]["opacity"] < 0.5
        for told in bars["customdata"]:
            assert page.layers[told[-1]][0] == unescape(told[1])
    curve = page.traces["live bytes"]["customdata"]
    assert [told[-1] for told in curve] == ["layer-0", "layer-1", "layer-0", "layer-0", "", "", ""]
    assert {(link, name) for _, link, name in page.links if link} == {("layer-0", "one"), ("layer-1", EVIL)}


def test_anchors_are_there_and_once(page):
    assert len(set(page.ids)) == len(page.ids)
    assert "plan" in page.ids
    for target, layer, _ in page.links:
        assert target[0] == "#" and target[1:] in page.ids
        assert not layer or layer in page.layers


def test_the_drawn_net_leads_to_its_layers(tmp_path):
    net = FeedForwardNet("squared_error", device=device.new_cpu())
    net.add(layers.Dense("<b>one", 5, input_sample_shape=(3,)))
    net.add(layers.Residual("block", [layers.Dense("inner", 5), layers.Activation("act")]))
    net.compile(optimizer.SGD(0.1))
    net.train_one_batch(np.ones((4, 3), "f"), np.ones((4, 5), "f"))
    net.memory_plan.to_html(str(tmp_path / "net.html"), net)
    page = Page((tmp_path / "net.html").read_text(encoding="utf-8"))
    boxes = {name: page.layers[target[1:]][0] for target, _, name in page.links if "(" in name}
    assert boxes == {"<b>one (Dense)": "<b>one", "block (Residual)": "block/inner"}
    with pytest.raises(TypeError, match="net"):
        net.memory_plan.to_html(str(tmp_path / "none.html"), 3)
    assert not (tmp_path / "none.html").exists()


# --- repeats ------------------------------------------------------------------------------------------------


def test_what_is_done_again_is_drawn_apart_and_in_a_table(tmp_path):
    net = FeedForwardNet("squared_error", device=device.new_cpu())
    net.add(layers.Dense("first", 64, input_sample_shape=(3,)))
    for number in range(6):
        net.add(layers.Activation(f"act{number}", "tanh"))
        net.add(layers.LayerNormalization(f"norm{number}"))
    net.compile(optimizer.SGD(0.1))
    plan = net.plan_batch(64, memory_budget=net.budget_curve(64)[-1][0])
    page, again = page_of(plan, tmp_path), [row for row in plan.rows if row.kind == "again"]
    assert plan.recomputed and len(page.traces["again"]["x"]) == len(again) > 0
    assert sorted(page.traces["again"]["x"]) == sorted(row.lower for row in again)
    assert len(page.table) == min(20, len(page.table) - plan.recomputed) + plan.recomputed
    assert f"{plan.recomputed} repeated operations" in page.words


# --- the file -----------------------------------------------------------------------------------------------


def test_the_page_loads_nothing_and_sends_nothing(page):
    assert {told.split("=")[0] for told in page.loads} == {"a href"}
    assert all("=#" in told for told in page.loads), "links within the page alone"
    assert "sendChartToCloud" in page.config["modeBarButtonsToRemove"]


def test_without_plotly_the_error_names_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.io", None)
    with pytest.raises(ImportError, match="plotly"):
        write(placed_by_hand(), tmp_path / "plan.html")
    assert not (tmp_path / "plan.html").exists()


def test_a_step_without_intermediates(tmp_path):
    copy = Instruction(
        0,
        "copy",
        (Operand(0, (3,), np.dtype("f4"), (4,), 0), Operand(1, (3,), np.dtype("f4"), (4,), 0)),
        {},
        Phase.FORWARD,
        "",
        0,
    )
    rows = [Row("x", "", Role.INPUT, 12, 0), Row("y", "", Role.OUTPUT, 12, 1)]
    page = page_of(MemoryPlan(placed(Program((copy,), {}), {}, 0), rows, 12), tmp_path)
    assert "Nothing lies in the arena" in page.words
    assert rectangles(page, 1) == {} == dict(enumerate(page.table))
    assert page.layout["yaxis"]["range"][1] > 0 and page.layout["xaxis"]["range"] == [0, 1]


def test_the_page_of_a_recorded_graph(tmp_path):
    cpu = device.new_cpu()
    x, w = (tensor.from_numpy(np.full(shape, 0.5, np.float32), cpu) for shape in ((5, 3), (3, 4)))
    w.stores_grad = True
    with cpu.recording() as graph:
        for value, gradient in autograd.backward(autograd.reduce_sum(autograd.relu(autograd.matmul(x, w)))):
            cpu.run("scale", gradient, value, alpha=-inf, beta=0.0)
    plan = graph.memory_plan
    plan.to_html(str(tmp_path / "plan.html"))
    page = Page((tmp_path / "plan.html").read_text(encoding="utf-8"))
    bars = [trace for trace in page.data if trace["type"] == "bar"]
    assert sorted(told[0] for trace in bars for told in trace["customdata"]) == sorted(row.name for row in plan.rows)
    assert len(plan.rows) > 2
