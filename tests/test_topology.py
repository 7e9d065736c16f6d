"""The order of layers: a real sort, the same for any order of adding, with errors that name what is wrong."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from singa_lite import FeedForwardNet, GraphError, layers
from singa_lite.traversal.topology import Source, Topology

Sources = dict[str, list[str]]


def topology(sources: Sources) -> Topology:
    made = Topology()
    for name, names in sources.items():
        made.add(name, tuple(Source(source) for source in names))
    return made


def shuffled(sources: Sources, seed: int) -> Sources:
    items = list(sources.items())
    random.Random(seed).shuffle(items)
    return dict(items)


@st.composite
def graphs(draw: st.DrawFn) -> Sources:
    """Acyclic graphs: each node's sources are nodes before it."""
    names = draw(st.lists(st.text("abc", min_size=1, max_size=4), unique=True, min_size=1, max_size=12))
    return {
        name: draw(st.lists(st.sampled_from(names[:place]), max_size=4)) if place else []
        for place, name in enumerate(names)
    }


# --- order --------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(graphs())
def test_each_layer_comes_once_and_after_its_sources(sources):
    order = topology(sources).order()
    assert sorted(order) == sorted(sources)
    for name, names in sources.items():
        assert all(order.index(source) < order.index(name) for source in names)


@settings(deadline=None)
@given(graphs(), st.integers())
def test_the_order_does_not_depend_on_the_order_of_adding(sources, seed):
    assert topology(shuffled(sources, seed)).order() == topology(sources).order()


def test_layers_added_against_the_order():
    chain = {f"n{i}": [f"n{i - 1}"] if i else [] for i in range(20)}
    assert topology(dict(reversed(chain.items()))).order() == [f"n{i}" for i in range(20)]


def test_a_branch_is_finished_before_the_next_begins():
    """Depth first: fewer outputs wait at once than if both branches were walked side by side."""
    sources = {"x": [], "a1": ["x"], "b1": ["x"], "a2": ["a1"], "b2": ["b1"], "sum": ["a2", "b2"]}
    assert topology(sources).order() == ["x", "a1", "a2", "b1", "b2", "sum"]


def test_thousands_in_a_row_and_side_by_side():
    count = 5000
    chain = {f"n{i}": [f"n{i - 1}"] if i else [] for i in range(count)}
    assert topology(shuffled(chain, 0)).order() == list(chain)
    star = {"x": [], **{f"n{i}": ["x"] for i in range(count)}, "sum": [f"n{i}" for i in range(count)]}
    order = topology(shuffled(star, 0)).order()
    assert (order[0], order[-1], len(order)) == ("x", "sum", count + 2)


def test_ends_of_the_graph_in_the_order_of_adding():
    made = topology({"y": [], "x": [], "b": ["x", "y"], "a": ["x"], "alone": []})
    assert (made.inputs(), made.outputs()) == (["y", "x", "alone"], ["b", "a", "alone"])


# --- errors -------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(graphs(), st.data())
def test_a_cycle_is_an_error_that_names_it_wherever_it_is_closed(sources, data):
    """A back edge from a node to one of those that lead to it, then all in any order."""
    reach = {name: ancestors(sources, name) for name in sources}
    pairs = [(old, new) for new, before in reach.items() for old in before]
    assume(pairs)
    old, new = data.draw(st.sampled_from(pairs))
    cyclic = {**sources, old: [*sources[old], new]}
    with pytest.raises(GraphError, match="cycle") as caught:
        topology(shuffled(cyclic, data.draw(st.integers()))).order()
    loop = str(caught.value).split("received ")[1].split(" <- ")
    assert loop[0] == loop[-1] and len(set(loop)) == len(loop) - 1 >= 2
    for name, source in pairwise(loop):
        assert source in cyclic[name]


def ancestors(sources: Sources, name: str) -> set[str]:
    found: set[str] = set()
    stack = list(sources[name])
    while stack:
        source = stack.pop()
        if source not in found:
            found.add(source)
            stack += sources[source]
    return found


def test_a_layer_that_feeds_itself():
    with pytest.raises(GraphError, match=r"cycles.*'a'"):
        topology({"a": ["a"]})


def test_a_second_layer_of_one_name():
    made = topology({"a": []})
    with pytest.raises(GraphError, match="'a'"):
        made.add("a", ())


def test_an_unknown_source_names_who_wants_it_and_what_there_is():
    made = topology({"x": [], "a": ["x", "nowhere"]})
    with pytest.raises(GraphError, match=r"'a'.*'nowhere'.*'a', 'x'"):
        made.order()
    assert made.order(partial=True) == ["x", "a"]


# --- which output -------------------------------------------------------------------------------------------


def counts(name: str) -> int:
    return {"cut": 3, "pair": 2}.get(name, 1)


def test_one_output_feeds_all_who_name_it():
    made = topology({"x": [], "a": ["x", "x"], "b": ["x"]})
    assert made.resolve("a", counts) == (("x", 0), ("x", 0))
    assert made.resolve("b", counts) == (("x", 0),)


def test_several_outputs_go_out_one_by_one_in_the_order_of_adding():
    made = topology({"cut": [], "pair": [], "a": ["cut", "pair", "cut"], "b": ["pair", "cut"]})
    assert made.resolve("a", counts) == (("cut", 0), ("pair", 0), ("cut", 1))
    assert made.resolve("b", counts) == (("pair", 1), ("cut", 2))


def test_outputs_by_number_take_none_away():
    made = Topology()
    made.add("cut", ())
    made.add("a", (Source("cut", 2), Source("cut"), Source("cut", 2), Source("cut")))
    made.add("b", (Source("cut"), Source("cut", 0)))
    assert [output for _, output in made.resolve("a", counts)] == [2, 0, 2, 1]
    assert [output for _, output in made.resolve("b", counts)] == [2, 0]


@pytest.mark.parametrize("output", [3, -1])
def test_an_output_that_is_not_there(output):
    made = Topology()
    made.add("cut", ())
    made.add("a", (Source("cut", output),))
    with pytest.raises(GraphError, match=rf"'a'.*3 outputs of 'cut', received number {output}"):
        made.resolve("a", counts)


def test_more_consumers_than_outputs():
    made = topology({"pair": [], "a": ["pair"], "b": ["pair"], "c": ["pair"]})
    with pytest.raises(GraphError, match=r"'c'.*2 outputs of 'pair'"):
        made.resolve("c", counts)


# --- the same through a net ---------------------------------------------------------------------------------


def test_a_net_is_the_same_for_any_order_of_adding():
    plan = {
        "x": (lambda: layers.Dense("x", 4, input_sample_shape=(3,)), []),
        "left": (lambda: layers.Dense("left", 5), ["x"]),
        "right": (lambda: layers.Dense("right", 5), ["x"]),
        "sum": (lambda: layers.Merge("sum"), ["right", "left"]),
        "out": (lambda: layers.Dense("out", 2), ["sum"]),
    }
    names = []
    for seed in range(6):
        order = list(plan)
        random.Random(seed).shuffle(order)
        net = FeedForwardNet(seed=1)
        for name in order:
            make, sources = plan[name]
            net.add(make(), src=sources)
        names.append(net.param_names())
    assert names[0] == [f"{n}/{p}" for n in ("x", "right", "left", "out") for p in ("weight", "bias")]
    assert all(other == names[0] for other in names)
