"""Cold starts: nobody was left who held the state in memory, and training began again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chaosspot import history as h
from chaosspot.oracles.lineage import Process, process_of

if TYPE_CHECKING:
    from chaosspot.oracles.evidence import Evidence

__all__ = ["ColdStart", "cold_starts"]


class ColdStart(msgspec.Struct, frozen=True, kw_only=True):
    """``last``: the end of the last node that held the state.

    ``durable``: the newest snapshot reported durable before that. ``restores``: what was restored
    until ``first``, the first commit after it; None when there was none.
    """

    last: h.NodeGone | h.NodeRestart
    durable: tuple[h.Snapshot, ...]
    restores: tuple[h.Restore, ...]
    first: h.Commit | None

    def newest(self, before_t: float) -> h.Snapshot | None:
        """The newest snapshot that was reported durable before that time."""
        told = [snapshot for snapshot in self.durable if snapshot.t <= before_t]
        return max(told, key=lambda s: s.step, default=None)


def cold_starts(evidence: Evidence) -> tuple[ColdStart, ...]:
    """All of them, in order; oracles take them from ``evidence.cold_starts``.

    A process holds the state from its first commit or restore until
    its node's end. Snapshots of steps that training went back behind count no more.
    """
    found: list[ColdStart] = []
    holders: set[Process] = set()
    durable: list[h.Snapshot] = []
    last: h.NodeGone | h.NodeRestart | None = None
    restores: list[h.Restore] = []
    for record in evidence.of(h.NodeGone, h.NodeRestart, h.Snapshot, h.Restore, h.Commit):
        if isinstance(record, h.NodeGone | h.NodeRestart):
            left = {process for process in holders if process[0] != record.node}
            if holders and not left:
                if last is not None:
                    found.append(_cold(last, durable, restores, None))
                last, restores = record, []
            holders = left
        elif evidence.is_late(record):
            continue
        elif isinstance(record, h.Commit):
            if last is not None:
                found.append(_cold(last, durable, restores, record))
                last = None
            holders.add(process_of(record))
            if durable and durable[-1].step > record.step:
                durable = [s for s in durable if s.step <= record.step]
        elif isinstance(record, h.Restore):
            holders.add(process_of(record))
            restores.append(record)
        elif isinstance(record, h.Snapshot) and record.stage == "durable":
            durable.append(record)
    if last is not None:
        found.append(_cold(last, durable, restores, None))
    return tuple(found)


def _cold(
    last: h.NodeGone | h.NodeRestart,
    durable: list[h.Snapshot],
    restores: list[h.Restore],
    first: h.Commit | None,
) -> ColdStart:
    return ColdStart(last=last, durable=tuple(durable), restores=tuple(restores), first=first)
