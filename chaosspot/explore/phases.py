"""What a trainer was doing when a fault struck, from its history."""

from __future__ import annotations

from collections.abc import Iterable

from chaosspot import history as h

__all__ = ["PHASES", "phases"]

PHASES = (
    "calm",
    "write",
    "upload",
    "restore",
    "rejoin",
    "drain",
    "second-notice",
    "recovery",
)

_BEGUN_BY = {"snapshot": "write", "save": "write", "upload": "upload", "restore": "restore"}


def phases(records: Iterable[h.Record]) -> dict[int, tuple[str, ...]]:
    """What was under way when each fault was injected, by the fault's number.

    A snapshot being written to a disk or uploaded, a state being restored, a node that has come and
    not committed yet, a node that has read its notice, another notice that is not over, and a loss
    after which nothing was committed yet; ``calm`` if none of these.
    """
    state = _State()
    found: dict[int, tuple[str, ...]] = {}
    for record in records:
        if isinstance(record, h.FaultInjected):
            under_way = state.under_way(record.kind)
            found[record.fault] = tuple(p for p in PHASES if p in under_way) or ("calm",)
        state.take(record)
    return found


class _State:
    """What is under way, by the process or node that does it."""

    def __init__(self) -> None:
        self._doing: dict[tuple[str, int], str] = {}
        self._joining: set[str] = set()
        self._draining: set[str] = set()
        self._noticed: set[str] = set()
        self._lost = False

    def under_way(self, kind: str) -> set[str]:
        now = set(self._doing.values())
        now |= {"rejoin"} if self._joining else set()
        now |= {"drain"} if self._draining else set()
        now |= {"recovery"} if self._lost else set()
        now |= {"second-notice"} if self._noticed and kind == "notice" else set()
        return now

    def take(self, record: h.Record) -> None:
        node, process = record.node, (record.node, record.pid)
        match record:
            case h.Point():
                self._at(process, record.name)
            case h.Other(name="passed"):
                self._at(process, str(record.extra.get("name", "")))
            case h.Snapshot(stage="staged"):
                self._doing[process] = "write"
            case h.Snapshot(stage="local"):
                self._doing[process] = "upload"
            case h.Snapshot() | h.Restore():
                self._doing.pop(process, None)
            case h.Commit():
                self._joining.discard(node)
                self._lost = False
                if self._doing.get(process) == "restore":
                    del self._doing[process]
            case h.NoticeSeen() | h.Drain():
                self._draining.add(node)
            case h.NodeUp(role="worker", replaces=str()) | h.NodeRestart():
                self._joining.add(node)
            case h.FaultEffect(what="published"):
                self._noticed.add(node)
            case h.FaultEffect(what="withdrawn"):
                self._noticed.discard(node)
            case h.FaultEffect():
                self._lost = True
            case h.NodeGone():
                for those in (self._joining, self._draining, self._noticed):
                    those.discard(node)
                self._doing = {who: did for who, did in self._doing.items() if who[0] != node}

    def _at(self, process: tuple[str, int], point: str) -> None:
        """A point tells what comes next, unless it is one that comes after the deed."""
        for start, doing in (
            ("snapshot.", "write"),
            ("upload.", "upload"),
            ("restore.", "restore"),
        ):
            if point.startswith(start) and ".after-" not in point:
                self._doing[process] = doing
