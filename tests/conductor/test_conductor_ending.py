"""Why no worker is left."""

from __future__ import annotations

import pytest
from histories import Story
from hypothesis import given
from hypothesis import strategies as st

from chaosspot import history as h
from chaosspot.conductor.ending import end_of_all, failed_node

codes = st.sampled_from([0, 1, -9])
gone = st.tuples(st.sampled_from("abcd"), st.booleans(), codes)


def ended(*nodes: tuple[str, bool, int], hit: tuple[str, ...] = ()) -> list[h.Record]:
    story = Story()
    if hit:
        story.tell(h.FaultInjected, 0.0, fault=0, kind="kill", nodes=hit, step=1)
    for t, (node, by_itself, code) in enumerate(nodes, 1):
        story.tell(h.NodeGone, float(t), node, by_itself=by_itself, code=code)
    return story.records


@pytest.mark.parametrize(
    ("nodes", "hit", "reason"),
    [
        ([("a", True, 0), ("b", True, 0)], (), "finished"),
        ([("a", True, 0), ("b", True, 1)], (), "exited"),
        ([("a", False, -9)], ("a",), "finished"),
        ([("a", False, -9), ("b", False, -9)], ("a",), "nodes were ended from outside"),
        ([("a", False, -9), ("b", True, 1)], (), "exited"),
        ([], (), "finished"),
    ],
)
def test_the_reason_is_what_happened(
    nodes: list[tuple[str, bool, int]], hit: tuple[str, ...], reason: str
) -> None:
    assert end_of_all(ended(*nodes, hit=hit)) == reason


@given(st.lists(gone), st.lists(st.sampled_from("abcd")).map(tuple))
def test_who_failed_is_the_first_that_ended_by_itself_with_a_code(
    nodes: list[tuple[str, bool, int]], hit: tuple[str, ...]
) -> None:
    records = ended(*nodes, hit=hit)
    failed = [node for node, by_itself, code in nodes if by_itself and code]
    assert failed_node(records) == (failed[0] if failed else "")
    assert (end_of_all(records) == "exited") == bool(failed)
    foreign = {node for node, by_itself, _ in nodes if not by_itself} - set(hit)
    if not failed:
        assert (end_of_all(records) == "finished") == (not foreign)
