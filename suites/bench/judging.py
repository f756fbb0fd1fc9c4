"""How fast histories are judged: 1,000 of 1,000 records in under 10 s on one core.

Each history is drawn from its number: a few nodes train, save and are lost one by one or all at
once, and come back. Every oracle looks at each of them, with a twin to compare with. Fails when the
bound is exceeded, or when a history, all of which are good, is not passed.

    python suites/bench/judging.py [--histories 1000] [--records 1000]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from typing import Any

from chaosspot import history as h
from chaosspot.oracles import Evidence, judge
from chaosspot.schedule import ClusterSpec, Group, Kill, Schedule, Trigger, draw
from chaosspot.trainers import Promises, Trainer
from chaosspot.verdict import Outcome

BOUND_S = 10.0  # for 1,000 histories of 1,000 records
STEP_S = 0.1
SNAPSHOT_STEPS = 5
TRAINER = Trainer(
    command=("true",),
    promises=Promises(
        exact="any-world",
        samples="exactly-once",
        snapshot_every_steps=SNAPSHOT_STEPS,
        peers_hold_state=True,
        drains_on_notice=True,
        rejoins=True,
        recovery_s=10.0,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--records", type=int, default=1000)
    options = parser.parse_args()
    count = options.histories
    took_s = 0.0
    outcomes: Counter[str] = Counter()
    opinions: Counter[str] = Counter()
    for number in range(count):
        run = Run(number, options.records)
        given: dict[str, Any] = {
            "history": tuple(run.records),
            "schedule": run.schedule(),
            "trainer": TRAINER,
            "twin": tuple(Run(number, options.records, disturbed=False).records),
        }
        start_s = time.process_time()
        outcome, findings, _ = judge(Evidence(**given))
        took_s += time.process_time() - start_s
        outcomes[outcome] += 1
        opinions.update({finding.oracle for finding in findings})
        if outcome is not Outcome.PASS:
            worst = next(f for f in findings if f.outcome is outcome)
            show(f"history {number}: {outcome}: {worst.oracle}: {worst.message}")
    bound_s = BOUND_S * count * options.records / 1e6
    report = {
        "judged_s": round(took_s, 2),
        "bound_s": bound_s,
        "records": options.records,
        "histories": count,
        "outcomes": outcomes,
        "opinions": opinions,
        "load": os.getloadavg(),
    }
    show(json.dumps(report, indent=2))
    return int(took_s > bound_s or outcomes[Outcome.PASS] < count)


class Run:
    """One drawn history of about ``records`` lines, with a loss every 20 to 60 steps."""

    def __init__(self, number: int, records: int, *, disturbed: bool = True) -> None:
        self.records: list[h.Record] = []
        self._number = number
        self._t = 0.0
        self._faults = 0
        self._named = 2 + int(draw(number, "nodes") * 5)
        self._nodes = [f"node-{index}" for index in range(self._named)]
        self._first = len(self._nodes)
        self._generation = 1
        self._step = 0
        self._saved = 0
        self._tell(h.RunStart, schedule="drawn", trainer="drawn", seed=number)
        for node in self._nodes:
            self._up(node, None)
        next_loss = self._until_loss()
        # A twin needs more steps than the attacked run, and fewer lines a step.
        while len(self.records) < records or not disturbed:
            self._train()
            if not disturbed and self._step * 2 >= records // self._first:
                break
            if disturbed and self._step == next_loss and len(self.records) < records * 0.9:
                self._lose()
                next_loss = self._step + self._until_loss()
        self._tell(h.RunStop, reason="decided")

    def schedule(self) -> Schedule:
        fault = Kill(on=Trigger(at_s=1.0), replace_after_s=0.5)
        cluster = ClusterSpec(group=(Group(count=self._first),))
        return Schedule(seed=self._number, cluster=cluster, fault=(fault,) * self._faults)

    def _until_loss(self) -> int:
        return 20 + int(40 * draw(self._number, "loss", len(self.records)))

    def _train(self) -> None:
        """One step of all, which rank 0 may save."""
        step = self._step + 1
        at = {"step": step, "generation": self._generation, "world": len(self._nodes)}
        self._begin(at)
        self._t += STEP_S
        for node in self._nodes:
            self._tell(
                h.Commit,
                node,
                **at,
                loss=1.0 / step,
                digest=f"{step:016x}",
                parent=f"{step - 1:016x}",
                samples=(1,) * 8,
            )
        self._step = step
        if step % SNAPSHOT_STEPS == 0:
            self._tell(h.Snapshot, self._nodes[0], step=step, stage="durable", bytes=1000)
            self._saved = step

    def _begin(self, at: dict[str, Any]) -> None:
        for node in self._nodes:
            self._tell(h.Begin, node, **at)

    def _lose(self) -> None:
        """One node, or all of them, are killed in the middle of a step, and replaced."""
        everyone = draw(self._number, "everyone", self._faults) < 0.3
        victims = self._nodes if everyone else self._nodes[-1:]
        world = len(self._nodes)
        self._begin({"step": self._step + 1, "generation": self._generation, "world": world})
        self._t += STEP_S / 2
        fault = self._faults
        self._faults += 1
        self._tell(h.FaultInjected, fault=fault, kind="kill", nodes=tuple(victims))
        for node in victims:
            self._tell(h.NodeGone, node, by_itself=False, code=-9)
            self._tell(h.FaultEffect, node, fault=fault, what="gone")
        self._tell(h.FaultHealed, fault=fault)
        fresh = [f"node-{self._named + index}" for index in range(len(victims))]
        self._named += len(fresh)
        self._nodes = [*self._nodes[: len(self._nodes) - len(victims)], *fresh]
        for node, lost in zip(fresh, victims, strict=True):
            self._t += 1.0
            self._up(node, lost)
        self._generation = 1 if everyone else self._generation + 1
        if everyone:
            self._step = self._saved
        for node in fresh:
            self._tell(h.Restore, node, step=self._step, source="store" if everyone else "peer")

    def _up(self, node: str, replaces: str | None) -> None:
        kind = {"zone": "a", "family": "drawn", "pool": "spot", "role": "worker"}
        self._tell(h.NodeUp, node, **kind, replaces=replaces)

    def _tell(self, kind: type[h.Record], node: str = "", /, **fields: Any) -> None:
        self._t += 1e-4
        header = {"seq": len(self.records), "t": self._t, "t_seen": self._t, "wall": self._t}
        who = {"boot": "here", "node": node, "rank": 0, "incarnation": 0, "pid": 1}
        self.records.append(kind(**header, **who, **fields))


def show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
