"""Faults of links and of the object store on real processes, and what refuses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chaosspot import Verdict
from chaosspot import attack as real_attack
from chaosspot import history as h
from chaosspot import store_misbehaviour as m
from chaosspot.conductor import UnsupportedError
from chaosspot.schedule import (
    ClusterSpec,
    FileError,
    Group,
    Kill,
    Network,
    Notice,
    ObjectStore,
    Schedule,
    Target,
    Toxic,
    Trigger,
)
from chaosspot.services.proxy.hosted import hosted
from chaosspot.verdict import Outcome

Attack = Callable[..., Verdict]

SOON = Trigger(at_step=10)
SLOW = Toxic(type="latency", attributes={"latency": 40})
NOTHING_PASSES = (Toxic(type="bandwidth", stream="upstream"), Toxic(type="bandwidth"))  # 0 KB/s


def stored(count: int, *faults: Any) -> Schedule:
    cluster = ClusterSpec(store="s3", group=(Group(count=count),))
    return Schedule(cluster=cluster, fault=faults)


def told(verdict: Verdict, kind: type) -> list[Any]:
    history = h.read(Path(verdict.run) / "history.jsonl")
    return [record for record in history if isinstance(record, kind)]


def outcomes(verdict: Verdict) -> dict[str, Outcome]:
    return {finding.oracle: finding.outcome for finding in verdict.findings}


def test_a_slow_link_slows_each_step_and_nothing_else(attack: Attack) -> None:
    verdict = attack(Network(on=SOON, link="coordinator", toxic=(SLOW,), duration_s=2.0))
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (proxied,) = told(verdict, h.Proxied)
    assert proxied.server.startswith("embedded")
    (injected,), (healed,) = told(verdict, h.FaultInjected), told(verdict, h.FaultHealed)
    assert {e.node for e in told(verdict, h.FaultEffect)} == set(injected.nodes)
    commits = [r.t for r in told(verdict, h.Commit) if r.node == "node-0"]
    during = [t for t in commits if injected.t < t < healed.t]
    assert 2.0 / len(during) > 0.04, "each step asks the coordinator at least once"


def test_recovery_is_owed_when_a_cut_link_is_whole_again(attack: Attack) -> None:
    cut = Network(on=SOON, link="coordinator", toxic=NOTHING_PASSES, duration_s=2.0, cuts=True)
    verdict = attack(cut)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (injected,) = told(verdict, h.FaultInjected)
    begun = [r.t for r in told(verdict, h.Begin) if 0.5 < r.t - injected.t < cut.duration_s]
    assert begun == [], "a step began, though nothing can be agreed on"
    assert verdict.measured["recovery_s"] < 2.0


def test_a_node_that_comes_meanwhile_gets_the_bad_link_of_all(attack: Attack) -> None:
    slow = Network(on=SOON, link="coordinator", toxic=(SLOW,), duration_s=4.0)
    kill = Kill(on=Trigger(at_step=12), target=Target(count=1), replace_after_s=0.2)
    verdict = attack(slow, kill)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert "node-3" in {e.node for e in told(verdict, h.FaultEffect) if e.what == "impaired"}


def test_a_notice_behind_a_cut_link_is_not_seen(attack: Attack) -> None:
    one = Target(nodes=("node-1",))
    cut = Network(on=SOON, target=one, link="metadata", toxic=NOTHING_PASSES, duration_s=4.0)
    notice = Notice(on=Trigger(at_step=12), target=one, lead_s=2.0, shutdown_s=0.2)
    verdict = attack(cut, notice)
    assert outcomes(verdict)["notice"] is Outcome.FAIL
    assert outcomes(verdict)["effect"] is Outcome.PASS


def test_what_happens_in_the_store_is_recorded_and_held_against_what_is_said(
    attack: Attack,
) -> None:
    refused = ObjectStore(
        on=Trigger(at_step=11), how=m.Failure(operations=("put",), nodes="node-0"), duration_s=1.0
    )
    kill = Kill(on=Trigger(at_step=42), replace_after_s=0.2)
    verdict = attack(schedule=stored(1, refused, kill), trainer="bucket")
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert outcomes(verdict)["durability"] is Outcome.PASS
    struck = told(verdict, h.StoreMisbehaved)
    assert {(r.node, r.fault, r.kind, r.operation) for r in struck} == {
        ("node-0", 0, "failure", "put")
    }
    (effect,) = [e for e in told(verdict, h.FaultEffect) if e.fault == 0]
    assert effect.t == struck[0].t
    assert verdict.measured["soft_errors"] > 0
    said = {key for r in told(verdict, h.Snapshot) for key in r.objects}
    assert said <= {r.key for r in told(verdict, h.StorePut)}
    (found,) = told(verdict, h.StoreFound)
    last = max(told(verdict, h.Snapshot), key=lambda r: r.step)
    assert set(last.objects) <= set(found.objects)
    restored = [r for r in told(verdict, h.Restore) if r.source == "store"]
    assert restored


def test_a_throttled_link_to_the_store_reaches_the_store(attack: Attack) -> None:
    slow = Toxic(type="bandwidth", stream="upstream", attributes={"rate": 1})
    link = Network(on=SOON, link="store", toxic=(slow,), duration_s=3.0)
    verdict = attack(schedule=stored(1, link), trainer="bucket")
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert [e.node for e in told(verdict, h.FaultEffect)] == ["node-0"]


def test_a_store_that_nobody_asks_in_vain_had_no_effect(attack: Attack) -> None:
    never = ObjectStore(on=SOON, how=m.Denied(keys="not/there"), duration_s=0.5)
    verdict = attack(schedule=stored(1, never), trainer="bucket")
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.primary is not None
    assert verdict.primary.oracle == "effect"


@pytest.mark.parametrize(
    "idle",
    [
        Toxic(type="noop"),
        Toxic(type="latency"),
        Toxic(type="latency", toxicity=0.0, attributes={"latency": 100}),
        Toxic(type="corrupt", attributes={"every": 10**9}),
        Toxic(type="limit_data", attributes={"bytes": 10**9}),
        Toxic(type="reset_now", attributes={"timeout": 60_000}),
        Toxic(type="half_close", stream="upstream"),
    ],
    ids=lambda toxic: f"{toxic.type}-{toxic.toxicity}",
)
def test_a_toxic_that_does_nothing_had_no_effect(idle: Toxic, attack: Attack) -> None:
    verdict = attack(
        Network(on=SOON, link="coordinator", toxic=(idle,), duration_s=0.5, cuts=True), nodes=2
    )
    assert verdict.outcome is Outcome.UNKNOWN, verdict.findings
    assert outcomes(verdict)["effect"] is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("trainer", "link", "hit"),
    [("minimal", "metadata", True), ("script", "metadata", False)],
    ids=["came-before", "never-came"],
)
def test_a_refusal_hits_whoever_had_come_before(
    attack: Attack, trainer: str, link: Any, hit: bool
) -> None:
    fault = Network(on=SOON, link=link, toxic=(Toxic(type="refuse"),), duration_s=1.0)
    verdict = attack(fault, trainer=trainer, nodes=1 if trainer == "script" else 2)
    assert outcomes(verdict)["effect"] is (Outcome.PASS if hit else Outcome.UNKNOWN)


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a server that stands in for the user's own toxiproxy-server."""
    with hosted(metrics=True) as url:
        monkeypatch.setenv("CHAOSSPOT_TOXIPROXY_URL", url)
        yield url


@pytest.mark.parametrize(
    ("impaired", "cuts"), [((SLOW,), False), (NOTHING_PASSES, True)], ids=["slow", "cut"]
)
def test_an_effect_in_the_real_server_is_what_came_to_it(
    attack: Attack, own_server: str, impaired: tuple[Toxic, ...], cuts: bool
) -> None:
    fault = Network(on=SOON, link="coordinator", toxic=impaired, duration_s=2.0, cuts=cuts)
    verdict = attack(fault, nodes=2, proxy_backend="real")
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (proxied,), (injected,) = told(verdict, h.Proxied), told(verdict, h.FaultInjected)
    assert proxied.server == "toxiproxy-server 2.12.0"
    assert {e.node for e in told(verdict, h.FaultEffect)} == set(injected.nodes)


@pytest.mark.parametrize(
    ("trainer", "link", "toxicity"),
    [("minimal", "coordinator", 0.0), ("script", "metadata", 1.0)],
    ids=["toxicity", "unused"],
)
def test_no_effect_in_the_real_server_is_unknown(
    attack: Attack, own_server: str, trainer: str, link: Any, toxicity: float
) -> None:
    impaired = replace(SLOW, toxicity=toxicity)
    fault = Network(on=SOON, link=link, toxic=(impaired,), duration_s=0.5)
    nodes = 1 if trainer == "script" else 2  # which asks nobody
    verdict = attack(fault, trainer=trainer, nodes=nodes, proxy_backend="real")
    assert verdict.outcome is Outcome.UNKNOWN, verdict.findings
    assert outcomes(verdict)["effect"] is Outcome.UNKNOWN
    assert told(verdict, h.FaultEffect) == []


def test_a_real_server_that_counts_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Schedule(fault=(toxic(type="latency", attributes={"latency": 9}),))
    with hosted() as url:
        monkeypatch.setenv("CHAOSSPOT_TOXIPROXY_URL", url)
        with pytest.raises(UnsupportedError, match=r"has no /metrics.*start it with -proxy-"):
            real_attack(slow, trainer="minimal", proxy_backend="real", runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def toxic(**fields: Any) -> Network:
    return Network(on=SOON, link="coordinator", toxic=(Toxic(**fields),))


@pytest.mark.parametrize(
    ("fault", "options", "shown"),
    [
        (toxic(type="bandwith"), {}, "type='bandwith'"),
        (toxic(type="latency", attributes={"latncy": 1}), {}, "latncy"),
        (toxic(type="bandwidth", attributes={"rate": -1}), {}, "rate"),
        (toxic(type="latency"), {"proxy_backend": "other"}, "'other'"),
        (toxic(type="latency"), {"trainer": "solo", "nodes": 1}, "solo has no coordinator"),
        (toxic(type="latency"), {"store": "nfs"}, "store = 'nfs'"),
        (Kill(on=SOON), {"trainer": "bucket", "nodes": 1}, "store = 's3' is needed"),
        (Kill(on=SOON), {"trainer": "solo"}, "4 nodes, but solo runs on 1 at most"),
        (
            Network(on=SOON, link="coordinator", toxic=(SLOW,), target=Target(role="coordinator")),
            {},
            "a network fault is of workers",
        ),
        (Kill(on=SOON), {"store": "s3"}, "minimal keeps its state in a directory"),
        (Network(on=SOON, link="store", toxic=(SLOW,)), {}, "needs cluster.store = 's3'"),
        (ObjectStore(on=SOON, how=m.Denied()), {}, "needs cluster.store = 's3'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    tmp_path: Path, fault: Any, options: dict[str, Any], shown: str
) -> None:
    runs = tmp_path / "runs"
    with pytest.raises((ValueError, FileError), match=shown):
        real_attack(Schedule(fault=(fault,)), **{"trainer": "minimal", **options}, runs=runs)
    assert not runs.exists()


def test_toxiproxys_server_is_not_asked_for_what_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOSSPOT_TOXIPROXY_URL", "http://127.0.0.1:1")
    own = Schedule(fault=(toxic(type="refuse"),))
    with pytest.raises(ValueError, match="type='refuse' is not Toxiproxy's"):
        real_attack(own, trainer="minimal", proxy_backend="real", runs=tmp_path / "runs")


def test_what_takes_no_node_has_none_to_replace() -> None:
    with pytest.raises(ValueError, match="no meaning with kind = 'network', which takes no node"):
        Network(on=SOON, link="coordinator", toxic=(SLOW,), replace_after_s=1.0)


@pytest.mark.parametrize(
    "how",
    [
        {"nodes": "a", "target": True},
        {"lasts_s": 1.0},
    ],
)
def test_whom_and_how_long_is_said_in_one_place(how: dict[str, Any]) -> None:
    target = Target(count=1) if how.pop("target", False) else None
    with pytest.raises(ValueError, match=r"how\.(nodes|lasts_s)"):
        ObjectStore(on=SOON, target=target, how=m.Denied(**how))
