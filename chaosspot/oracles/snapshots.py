"""Nothing incomplete is restored, and nothing old while a newer snapshot is there.

A process may die between completing a snapshot and saying so. What such a process may have
completed is unknown, unless it was held at a point of the snapshot or upload that does not come
after the deed. A trainer that saves out of band says so first: it reports the stage before.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "snapshots"

_STAGE = {"local": "local", "store": "durable"}
_EARLIER = {"local": ("staged",), "store": ("staged", "local")}
_REPORT_S = 1.0  # a report may come that much after the deed


def check(evidence: Evidence) -> Iterator[Finding]:
    """Only for trainers that report snapshots of the stage that is restored from.

    Fail for a restore of a step that nobody had reported, and for one that another process showed
    to be older than what could be restored; unknown where the reporter may have died too early.
    """
    stages = {snapshot.stage for snapshot in evidence.of(h.Snapshot)}
    judged = [r for r in evidence.of(h.Restore) if _STAGE.get(r.source) in stages]
    wrong = [finding for r in judged if (finding := _unreported(evidence, r)) is not None]
    wrong += _older(evidence)
    yield from wrong
    if judged and not wrong:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.PASS,
            message=f"each of {len(judged)} restores was of a snapshot reported complete",
            measured=len(judged),
            unit="restores",
            evidence=tuple(restore.seq for restore in judged)[:20],
        )


def _unreported(evidence: Evidence, restore: h.Restore) -> Finding | None:
    """A finding for a restore of what was not reported complete."""
    stage = _STAGE[restore.source]
    for snapshot in evidence.of(h.Snapshot):
        mine = snapshot.step == restore.step and snapshot.stage == stage
        near = stage == "durable" or snapshot.node == restore.node
        if mine and near and snapshot.t <= restore.t + _REPORT_S:
            return None
    what = f"{restore.node} restored step {restore.step} from {restore.source}"
    silenced = [
        records[-1]
        for records in evidence.told.values()
        if (stage == "durable" or records[-1].node == restore.node)
        and _may_have_completed(evidence, records, restore)
    ]
    if silenced:
        node = silenced[0].node
        message = f"{what}; {node} may have completed it, and ended before it could say so"
    else:
        message = f"{what}, which nobody had reported {stage}"
    return Finding(
        oracle=NAME,
        outcome=Outcome.UNKNOWN if silenced else Outcome.FAIL,
        message=message,
        evidence=(restore.seq, *(record.seq for record in silenced)),
    )


def _may_have_completed(evidence: Evidence, records: list[h.Record], restore: h.Restore) -> bool:
    """Whether a process may have completed the restored snapshot and ended without a word."""
    end = evidence.end_of(records[-1])
    step = restore.step
    if end is None or end.t > restore.t:
        return False
    if not any(isinstance(r, h.Commit | h.Restore) and r.step == step for r in records):
        return False
    earlier = _EARLIER[restore.source]
    under_way = any(
        isinstance(r, h.Snapshot) and r.step == step and r.stage in earlier for r in records
    )
    went_on = any(isinstance(r, h.Begin | h.Commit) and r.step > step for r in records)
    return (under_way or not went_on) and not _held_before_it(records)


def _held_before_it(records: list[h.Record]) -> bool:
    """Whether the last word about snapshots was from a point before the deed."""
    for record in reversed(records):
        if isinstance(record, h.Snapshot):
            return False
        if isinstance(record, h.Point) and record.name.startswith(("snapshot.", "upload.")):
            return ".after-" not in record.name
    return False


def _older(evidence: Evidence) -> list[Finding]:
    """Restores of cold starts that passed over a snapshot which another restore shows was good."""
    good = {r.step for r in evidence.of(h.Restore) if r.source == "store"}
    found = []
    for cold in evidence.cold_starts:
        for restore in cold.restores:
            newest = cold.newest(_up_t(evidence, restore) - _REPORT_S)
            if restore.source != "store" or newest is None or newest.step not in good:
                continue
            if restore.step < newest.step:
                found.append(
                    Finding(
                        oracle=NAME,
                        outcome=Outcome.FAIL,
                        message=(
                            f"{restore.node} restored step {restore.step} from store, although "
                            f"step {newest.step} had been durable before it was up"
                        ),
                        bound=newest.step,
                        measured=restore.step,
                        unit="step",
                        evidence=(newest.seq, restore.seq),
                    )
                )
    return found


def _up_t(evidence: Evidence, restore: h.Restore) -> float:
    """When the restoring node, or its present life, was started."""
    starts = [*evidence.of(h.NodeUp), *evidence.of(h.NodeRestart)]
    mine = [up.t for up in starts if up.node == restore.node and up.t <= restore.t]
    return max(mine, default=restore.t)
