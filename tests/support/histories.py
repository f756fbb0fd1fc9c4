"""Tiny hand-made histories: a story of a run in a few lines."""

from __future__ import annotations

from typing import Any

from chaosspot import history as h
from chaosspot.oracles import ORACLES, Evidence
from chaosspot.oracles.comparison import Comparison
from chaosspot.schedule import ClusterSpec, Expectation, Group, Kill, Notice, Schedule, Trigger
from chaosspot.trainers import Final, InObjectStore, Promises, Trainer
from chaosspot.verdict import Outcome

HERE = "this-boot"


class Story:
    """Records in the order they are told; ``t`` are seconds of one clock."""

    def __init__(self) -> None:
        self.records: list[h.Record] = []

    def tell(self, kind: type[h.Record], t: float, node: str = "", /, **fields: Any) -> h.Record:
        record = kind(
            seq=len(self.records),
            t=t,
            t_seen=fields.pop("t_seen", t),
            wall=1_700_000_000.0 + t,
            boot=fields.pop("boot", HERE),
            node=node,
            rank=fields.pop("rank", 0),
            incarnation=fields.pop("incarnation", 0),
            pid=fields.pop("pid", 1),
            **fields,
        )
        self.records.append(record)
        return record

    def up(self, t: float, *nodes: str, role: str = "worker", replaces: str | None = None) -> None:
        for node in nodes:
            self.tell(
                h.NodeUp,
                t,
                node,
                zone="a",
                family="f",
                pool="spot",
                role=role,
                replaces=replaces,
            )

    def gone(
        self, t: float, node: str, *, by_itself: bool = False, code: int | None = None
    ) -> None:
        self.tell(h.NodeGone, t, node, by_itself=by_itself, code=code)

    def begin(
        self, t: float, step: int, *nodes: str, generation: int | None = 1, **fields: Any
    ) -> None:
        given = {"step": step, "generation": generation, "world": len(nodes)} | fields
        for node in nodes:
            self.tell(h.Begin, t, node, **given)

    def commit(
        self,
        t: float,
        step: int,
        *nodes: str,
        generation: int | None = 1,
        digest: str | None = "",
        parent: str | None = "",
        samples: tuple[int, ...] | None = (1, 1),
        **fields: Any,
    ) -> None:
        """``digest`` and ``parent`` are the true ones (``s<step>``) unless given."""
        for node in nodes:
            self.tell(
                h.Commit,
                t,
                node,
                step=step,
                generation=generation,
                digest=f"s{step}" if digest == "" else digest,
                parent=f"s{step - 1}" if parent == "" else parent,
                samples=samples,
                **({"world": len(nodes)} | fields),
            )

    def step(self, t: float, step: int, *nodes: str, generation: int = 1, **fields: Any) -> None:
        """Begun 0.5 s before it is committed at ``t``."""
        self.begin(t - 0.5, step, *nodes, generation=generation)
        self.commit(t, step, *nodes, generation=generation, **fields)

    def kill(self, t: float, *nodes: str, fault: int = 0, kind: str = "kill") -> None:
        """Injected, effective and healed at ``t``."""
        self.tell(h.FaultInjected, t, fault=fault, kind=kind, nodes=nodes)
        for node in nodes:
            self.gone(t, node)
            self.tell(h.FaultEffect, t, node, fault=fault, what="gone")
        self.tell(h.FaultHealed, t, fault=fault)

    def notice(
        self,
        t: float,
        node: str,
        *,
        lead_s: float,
        gone_t: float,
        by_itself: bool = True,
        fault: int = 0,
    ) -> None:
        """Published at ``t``, gone at ``gone_t``; tell it after the steps in between."""
        self.tell(h.FaultInjected, t, fault=fault, kind="notice", nodes=(node,))
        self.tell(
            h.FaultEffect,
            t,
            node,
            fault=fault,
            what="published",
            deadline_wall_s=1_700_000_000.0 + t + lead_s,
        )
        self.gone(gone_t, node, by_itself=by_itself, code=0)
        self.tell(h.FaultEffect, gone_t, node, fault=fault, what="gone")
        self.tell(h.FaultHealed, gone_t, fault=fault)

    def saved(self, t: float, step: int, node: str, stage: str = "durable", **fields: Any) -> None:
        self.tell(h.Snapshot, t, node, step=step, stage=stage, **fields)

    def restored(
        self, t: float, step: int, node: str, source: str = "store", **fields: Any
    ) -> None:
        self.tell(h.Restore, t, node, step=step, source=source, **fields)

    def stop(self, t: float, reason: str = "decided") -> None:
        self.tell(h.RunStop, t, reason=reason)

    def evidence(
        self,
        *faults: Any,
        twin: Story | None = None,
        twins_agree: bool = True,
        more_twins: tuple[Story, ...] = (),
        final: Final | None = None,
        compared: Comparison | None = None,
        expect: Expectation | None = None,
        min_nodes: int = 1,
        ranks_per_node: int = 1,
        patterns: Any = None,
        object_store: InObjectStore | None = None,
        **promises: Any,
    ) -> Evidence:
        """What the oracles see, with these faults planned and these promises made."""
        return Evidence(
            history=h.ordered(self.records),
            schedule=Schedule(
                seed=1,
                fault=faults,
                expect=expect or Expectation(),
                cluster=ClusterSpec(group=(Group(count=2),)),
            ),
            trainer=Trainer(
                command=("true",),
                min_nodes=min_nodes,
                ranks_per_node=ranks_per_node,
                patterns=patterns,
                promises=Promises(**promises),
                final=final,
                object_store=object_store,
            ),
            twin=h.ordered(twin.records) if twin else None,
            twins_agree=twins_agree,
            more_twins=tuple(h.ordered(story.records) for story in more_twins),
            final=compared,
        )


def ended(story: Story, t: float = 100.0, reason: str = "decided") -> Story:
    story.stop(t, reason)
    return story


def outcome(oracle: str, evidence: Evidence) -> Outcome | None:
    """The worst of one oracle's findings; None when it has nothing to say."""
    findings = list(ORACLES[oracle](evidence))
    return max((f.outcome for f in findings), key=lambda o: o.weight, default=None)


KILL = Kill(on=Trigger(at_s=1.0))
NOTICE = Notice(on=Trigger(at_s=1.0), lead_s=30.0)


def undisturbed(steps: int = 10) -> Story:
    """Two nodes, one step a second, no fault."""
    story = Story()
    story.up(0.0, "node-0", "node-1")
    for step in range(1, steps + 1):
        story.step(float(step), step, "node-0", "node-1")
    return story


def loss(*, recovery_s: float = 1.0, steps: int = 10) -> Story:
    """node-1 is killed in step 6, 0.1 s after step 5; node-0 repeats the step and goes on."""
    story = undisturbed(5)
    story.begin(5.05, 6, "node-0", "node-1")
    story.kill(5.1, "node-1")
    for number, step in enumerate(range(6, steps + 1)):
        t = 5.1 + recovery_s + number
        story.begin(t - min(0.5, recovery_s / 2), step, "node-0", generation=2)
        story.commit(t, step, "node-0", generation=2)
    return story
