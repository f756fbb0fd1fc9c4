"""Real processes, real torchft: what must hold after kills, cold starts and notices.

The measure is always the same: the digest after every step equals that of one undisturbed rank.
"""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from chaosspot.trainer.snapshot.parts import complete
from chaosspot.trainer.snapshot.store import DirectoryStore

if TYPE_CHECKING:
    from conftest import Cluster, Imds

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

ENDLESS = 100_000
NODES = ("a", "b", "c")


def same(found: dict[int, str], expected: dict[int, str]) -> None:
    common = found.keys() & expected.keys()
    assert len(common) >= 5
    assert {step: found[step] for step in common} == {step: expected[step] for step in common}


def full_world(cluster: Cluster, size: int = len(NODES)) -> None:
    for node in cluster.workers:
        cluster.wait("commit", lambda event: event["world"] == size, node=node)


def test_three_ranks_equal_one_and_all_finish(
    cluster: Cluster, undisturbed: dict[int, str]
) -> None:
    for node in NODES:
        cluster.start(node, steps=40)
    assert [cluster.ended(node) for node in NODES] == [0, 0, 0], cluster.logs()
    digests = cluster.assert_one_trajectory()
    assert max(digests) == 40
    same(digests, undisturbed)
    assert {event["reason"] for event in cluster.events("exit")} == {"finished"}
    last = [event["t"] for event in cluster.events("leave")]
    assert max(last) - min(last) < 2.0, "finishing stalled others"


def test_a_kill_costs_about_a_second_and_nothing_else(
    cluster: Cluster, undisturbed: dict[int, str]
) -> None:
    for node in NODES:
        cluster.start(node, steps=ENDLESS)
    full_world(cluster)
    at = cluster.kill("b")
    resumed = cluster.wait("commit", lambda e: e["t"] > at and e["world"] == 2)
    assert resumed["t"] - at < 5.0
    cluster.start("b", steps=ENDLESS)
    cluster.wait("restore", lambda e: e["source"] == "peer" and e["incarnation"] == 1, node="b")
    cluster.wait("commit", lambda e: e["t"] > at and e["world"] == 3, node="b")
    digests = cluster.assert_one_trajectory()
    assert sorted(digests) == list(range(1, max(digests) + 1)), "a step was lost"
    same(digests, undisturbed)


def test_after_all_are_killed_new_nodes_go_on_from_the_store(
    cluster: Cluster, undisturbed: dict[int, str]
) -> None:
    for node in NODES:
        cluster.start(node, steps=ENDLESS)
    durable = cluster.wait("snapshot", lambda e: e["stage"] == "durable" and e["step"] >= 4)
    at = cluster.kill(*NODES)
    cluster.start("d", steps=ENDLESS)
    restored = cluster.wait("restore", node="d")
    assert (restored["source"], restored["step"] >= durable["step"]) == ("store", True)
    cluster.wait("commit", lambda e: e["step"] > restored["step"], node="d")
    cluster.start("e", steps=ENDLESS)  # seconds later: heals from the first
    assert cluster.wait("restore", node="e")["source"] == "peer"
    joint = cluster.wait("commit", lambda e: e["world"] == 2, node="e")
    cluster.wait("commit", lambda e: e["step"] >= joint["step"] + 3, node="d")
    late = [event for event in cluster.events("commit") if event["t"] > at]
    assert min(event["step"] for event in late) == restored["step"] + 1, "work was repeated"
    same(cluster.assert_one_trajectory(), undisturbed)


def test_what_lies_on_several_disks_is_put_together(
    cluster: Cluster, undisturbed: dict[int, str]
) -> None:
    kept = {node: cluster.root / f"disk-{node}" for node in NODES}
    stores = {node: cluster.root / f"no-store-{node}" for node in NODES}  # a store of one's own

    def start(*nodes: str) -> None:
        for node in nodes:
            cluster.start(
                node, "--gather", "90", steps=ENDLESS, flash=kept[node], store=stores[node]
            )

    start(*NODES)
    full_world(cluster)
    for node in NODES:
        cluster.wait(
            "snapshot",
            lambda e: e["stage"] == "local" and e["shards"] == 3 and e["step"] >= 6,
            node=node,
        )
    cluster.kill(*NODES)
    at = time.monotonic()  # what a rank began before it died is over
    start("a")
    with pytest.raises(AssertionError, match="no such 'begin' event"):  # it waits for the others
        cluster.wait("begin", lambda e: e["t"] > at, timeout_s=5)
    start("b", "c")
    restored = [cluster.wait("restore", lambda e: e["t"] > at, node=node) for node in NODES]
    assert {e["source"] for e in restored} == {"local"}
    assert len({e["step"] for e in restored}) == 1
    assert restored[0]["step"] >= 6
    cluster.wait("commit", lambda e: e["t"] > at and e["step"] > restored[0]["step"] + 2)
    same(cluster.assert_one_trajectory(), undisturbed)


def test_newcomers_wait_for_a_step_that_is_being_computed(
    cluster: Cluster, undisturbed: dict[int, str]
) -> None:
    with cluster.held("a", "step.before-commit", steps=ENDLESS):
        cluster.start("b", steps=ENDLESS)
        cluster.start("c", steps=ENDLESS)
        cluster.asking(2)
        with pytest.raises(AssertionError, match="no such 'begin' event"):  # a majority waits, too
            cluster.wait("begin", lambda e: e["node"] != "a", timeout_s=3)
    full_world(cluster)
    cluster.wait("commit", lambda e: e["step"] >= 6)
    worlds: dict[int, set[int]] = {}
    for event in cluster.events("begin"):
        worlds.setdefault(event["step"], set()).add(event["generation"])
    assert {step for step, generations in worlds.items() if len(generations) > 1} == set()
    same(cluster.assert_one_trajectory(), undisturbed)


def test_ranks_that_load_different_snapshots_end_up_at_the_newest(
    cluster: Cluster, undisturbed: dict[int, str]
) -> None:
    root = cluster.root
    own = {node: (root / f"flash-{node}", root / f"store-{node}") for node in ("old", "new")}
    for node, steps in (("old", 4), ("new", 8)):
        flash, store = own[node]
        cluster.start(node, steps=steps, alone=True, flash=flash, store=store)
    assert [cluster.ended(node) for node in own] == [0, 0], cluster.logs()
    at = time.monotonic()
    for node, (flash, store) in own.items():
        cluster.start(node, steps=ENDLESS, flash=flash, store=store)
    cluster.start("none", steps=ENDLESS, store=root / "store-none")
    for node in cluster.workers:
        cluster.wait("commit", lambda e: e["t"] > at and e["world"] == 3, node=node)
    restored = [(e["step"], e["source"]) for e in cluster.events("restore", "new") if e["t"] > at]
    assert restored[-1] == (8, "local") or (restored[-1][0] >= 8 and restored[-1][1] == "peer")
    same(cluster.assert_one_trajectory(), undisturbed)


def test_sigterm_drains_in_time_without_rework(
    cluster: Cluster, undisturbed: dict[int, str]
) -> None:
    for node in NODES:
        cluster.start(node, steps=ENDLESS)
    full_world(cluster)
    at, wall = time.monotonic(), time.time()
    cluster.workers["a"].send_signal(signal.SIGTERM)
    assert cluster.ended("a", 10) == 0, cluster.logs()
    assert time.monotonic() - at < 8.0
    notice = cluster.wait("notice", node="a")
    assert wall + 9 < notice["deadline_wall_s"] < time.time() + 10
    order = [e["event"] for e in cluster.events(node="a") if e["t"] > at]
    assert [name for name in order if name in ("notice", "drain", "leave", "exit")] == [
        "notice", "drain", "leave", "exit",
    ]  # fmt: skip
    drained = cluster.wait("drain", node="a")["step"]
    in_store = {s.step for s in complete(DirectoryStore(cluster.root / "store").keys())}
    assert drained in in_store or drained < max(in_store)
    resumed = cluster.wait("commit", lambda e: e["step"] > drained, node="b")
    assert resumed["t"] - cluster.wait("leave", node="a")["t"] < 4.0
    cluster.wait("commit", lambda e: e["step"] > drained + 3, node="b")
    for node in ("b", "c"):
        begun = [e["step"] for e in cluster.events("begin", node) if e["t"] > at - 0.5]
        assert all(after == before + 1 for before, after in pairwise(begun)), "a step was repeated"
    same(cluster.assert_one_trajectory(), undisturbed)


def test_a_metadata_notice_makes_the_last_step_durable(
    cluster: Cluster, imds: Imds, undisturbed: dict[int, str]
) -> None:
    cluster.start("a", "--snapshot-every", "1000", steps=ENDLESS, alone=True, imds=imds.url)
    cluster.wait("commit", lambda e: e["step"] == 5)
    deadline = int(time.time()) + 20
    stamp = datetime.fromtimestamp(deadline, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    imds.notice = json.dumps({"action": "terminate", "time": stamp}).encode()
    assert cluster.ended("a") == 0, cluster.logs()
    assert time.time() < deadline - 5
    notice = cluster.wait("notice")
    assert (notice["provider"], notice["deadline_wall_s"]) == ("aws", deadline)
    drained = cluster.wait("drain")["step"]
    assert [(e["step"], e["stage"]) for e in cluster.events("snapshot")] == [
        (drained, "staged"), (drained, "local"), (drained, "durable"),
    ]  # fmt: skip
    assert cluster.events("exit")[-1]["reason"] == "drained"
    same(cluster.assert_one_trajectory(), undisturbed)


def test_a_notice_is_kept_while_the_coordinator_is_gone(cluster: Cluster) -> None:
    cluster.start("a", steps=ENDLESS)
    cluster.wait("commit")
    cluster.kill_lighthouse()
    at = time.monotonic()
    cluster.workers["a"].send_signal(signal.SIGTERM)
    assert cluster.ended("a", 12) == 0, cluster.logs()
    assert time.monotonic() - at < 9.0
    drained = cluster.wait("drain")["step"]
    cluster.wait("snapshot", lambda e: e["stage"] == "durable" and e["step"] == drained)


def test_a_paused_rank_comes_back_as_one_of_them(
    cluster: Cluster, undisturbed: dict[int, str]
) -> None:
    for node in NODES:
        cluster.start(node, steps=ENDLESS)
    full_world(cluster)
    cluster.workers["c"].send_signal(signal.SIGSTOP)
    at = time.monotonic()
    cluster.wait("commit", lambda e: e["t"] > at + 0.2 and e["world"] == 2, timeout_s=12)
    cluster.workers["c"].send_signal(signal.SIGCONT)
    back = time.monotonic()
    cluster.wait("commit", lambda e: e["t"] > back and e["world"] == 3, node="c")
    same(cluster.assert_one_trajectory(), undisturbed)


def test_the_job_survives_its_coordinator(cluster: Cluster, undisturbed: dict[int, str]) -> None:
    for node in NODES[:2]:
        cluster.start(node, steps=ENDLESS)
    cluster.wait("commit", lambda e: e["world"] == 2 and e["step"] > 9)
    cluster.kill_lighthouse()
    cluster.restart_lighthouse()
    at = time.monotonic()
    for node in NODES[:2]:
        cluster.wait("commit", lambda e: e["t"] > at and e["world"] == 2, node=node, timeout_s=15)
    same(cluster.assert_one_trajectory(), undisturbed)
