"""What was said to be durable, held against what the store really had."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.oracles.stored import StoreLog

__all__ = ["claims", "left_uploads", "untrue", "visible_too_early"]

_TIDY_S = 2.0  # what is superseded may be removed that long after the newer one was claimed

Wrong = tuple[str, tuple[int, ...]]  # what is wrong, and the lines that prove it


def claims(evidence: Evidence) -> list[h.Snapshot]:
    """The snapshots said to be durable that name their objects."""
    return [s for s in evidence.of(h.Snapshot) if s.stage == "durable" and s.objects]


def untrue(log: StoreLog, made: list[h.Snapshot]) -> Iterator[Wrong]:
    """Claims that did not hold when they were made, or not until a newer one was."""
    newest = max(made, key=lambda claim: claim.step, default=None)
    for claim in made:
        there = {key: log.at(key, claim.t) for key in claim.objects or ()}
        missing = [key for key, put in there.items() if put is None]
        stored = sum(put.bytes for put in there.values() if put is not None)
        if missing:
            yield f"{_said(claim)}, when the store held no {missing[0]}", (claim.seq,)
            continue
        if stored < claim.bytes:
            yield f"{_said(claim)}, of which the store held {stored} bytes", (claim.seq,)
            continue
        for key in there:
            change = log.next_change(key, claim.t)
            if change is not None and not _superseded(claim, change.t, made):
                how = "removed" if isinstance(change, h.StoreDelete) else "overwritten"
                what = f"{_said(claim)}; its {key} was {how} {change.t - claim.t:.1f} s later"
                yield f"{what}, when there was nothing newer", (claim.seq, change.seq)
        if claim is newest and log.found is not None:
            wrong = [k for k, put in there.items() if put and log.found.objects.get(k) != put.sum]
            for key in (key for key in wrong if log.next_change(key, claim.t) is None):
                what = f"{_said(claim)}; at the end the store held other bytes, or none, as {key}"
                yield what, (claim.seq, log.found.seq)


def _said(claim: h.Snapshot) -> str:
    return f"{claim.node} said that step {claim.step} was durable, {claim.bytes} bytes"


def _superseded(claim: h.Snapshot, t: float, made: list[h.Snapshot]) -> bool:
    return any(other.t <= t and other.step > claim.step for other in made)


def visible_too_early(log: StoreLog, complete: str) -> Iterator[Wrong]:
    """Objects that make what lies beside them a snapshot, and were there before all of it was.

    ``complete`` is a pattern of their keys.
    """
    pattern = re.compile(translate(complete))
    for key in filter(pattern.match, log.keys):
        folder = key.rpartition("/")[0] + "/"
        beside = [k for k in log.keys if k.startswith(folder) and not pattern.match(k)]
        for change in log.changes(key):
            if isinstance(change, h.StoreDelete):
                continue
            there = [k for k in beside if log.at(k, change.t)]
            late = [
                later
                for k in beside
                if (later := log.next_change(k, change.t)) is not None
                and isinstance(later, h.StorePut)
                and log.at(key, later.t) is change
            ]
            if late:
                yield f"{key} was there before {late[0].key}", (change.seq, late[0].seq)
            elif not there:
                yield f"{key} was there, and nothing beside it", (change.seq,)


def left_uploads(evidence: Evidence, log: StoreLog, made: list[h.Snapshot]) -> Iterator[Wrong]:
    """Uploads in parts that a newer snapshot made superfluous, and that nobody ended."""
    for begun in log.open_uploads():
        newer = next((c for c in made if c.t > begun.t and evidence.end_t - c.t > _TIDY_S), None)
        if newer is not None:
            what = f"an upload of {begun.key} was left, {evidence.end_t - begun.t:.1f} s old"
            yield (
                f"{what}, though {newer.node} had step {newer.step} durable since",
                (
                    begun.seq,
                    newer.seq,
                ),
            )
