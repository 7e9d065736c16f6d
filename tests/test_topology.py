"""The order of layers: a real sort, the same for any order of adding, with errors that name what is wrong."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from singa_lite import GraphError
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


def test_a_second_layer_of_one_name():
    made = topology({"a": []})
    with pytest.raises(GraphError, match="'a'"):
        made.add("a", ())
    with pytest.raises(GraphError, match=r"cycle.*'b'"):
        made.add("b", (Source("b"),))


def test_an_unknown_source_names_who_wants_it_and_what_there_is():
    made = topology({"x": [], "a": ["x", "nowhere"]})
    with pytest.raises(GraphError, match=r"'a'.*'nowhere'.*'a', 'x'"):
        made.order()
    assert made.order(partial=True) == ["x", "a"]


def test_which_output_goes_where():
    """One output to all who name it, several one by one in the order of adding; by number they take none away."""
    made, counts = Topology(), {"cut": 3, "pair": 2}
    for name in ("x", "cut", "pair"):
        made.add(name, ())
    made.add("a", (Source("cut", 2), Source("cut"), Source("x"), Source("pair"), Source("cut")))
    made.add("b", (Source("x"), Source("x"), Source("pair"), Source("cut"), Source("cut", 0)))
    given = {name: made.resolve(name, lambda one: counts.get(one, 1)) for name in "ab"}
    assert given["a"] == (("cut", 2), ("cut", 0), ("x", 0), ("pair", 0), ("cut", 1))
    assert given["b"] == (("x", 0), ("x", 0), ("pair", 1), ("cut", 2), ("cut", 0))
    assert (made.inputs(), made.outputs()) == (["x", "cut", "pair"], ["a", "b"])


@pytest.mark.parametrize("sources", [[Source("cut", 3)], [Source("cut", -1)], [Source("cut")] * 4])
def test_an_output_that_is_not_there(sources):
    made = Topology()
    made.add("cut", ())
    made.add("a", tuple(sources))
    with pytest.raises(GraphError, match=r"'a'.*3 outputs of 'cut'"):
        made.resolve("a", lambda name: 3 if name == "cut" else 1)
