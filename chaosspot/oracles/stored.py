"""What the object store held, and when: from the harness's own record of every change."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from chaosspot import history as h

__all__ = ["Change", "StoreLog"]

Change = h.StorePut | h.StoreDelete


class StoreLog:
    """The changes of one run's store, in the order they happened."""

    def __init__(self, history: Iterable[h.Record]) -> None:
        self._changes: dict[str, list[Change]] = defaultdict(list)
        self.uploads: list[h.StoreUpload] = []
        self.found: h.StoreFound | None = None
        for record in history:
            if isinstance(record, h.StorePut | h.StoreDelete):
                self._changes[record.key].append(record)
            elif isinstance(record, h.StoreUpload):
                self.uploads.append(record)
            elif isinstance(record, h.StoreFound):
                self.found = record

    @property
    def keys(self) -> list[str]:
        """All keys that ever were there."""
        return list(self._changes)

    def changes(self, key: str) -> list[Change]:
        return self._changes.get(key, [])

    def at(self, key: str, t: float) -> h.StorePut | None:
        """What was under ``key`` at that time (after what happened at ``t``)."""
        changes = self.changes(key)
        place = bisect_right(changes, t, key=lambda change: change.t)
        last = changes[place - 1] if place else None
        return last if isinstance(last, h.StorePut) else None

    def next_change(self, key: str, t: float) -> Change | None:
        """The first change of ``key`` after that time to other bytes, or to none."""
        now = self.at(key, t)
        return next(
            (
                change
                for change in self.changes(key)
                if change.t > t
                and not (isinstance(change, h.StorePut) and now and change.sum == now.sum)
            ),
            None,
        )

    def open_uploads(self) -> list[h.StoreUpload]:
        """Uploads in parts that were begun, and that the store still had at the end."""
        still = set(self.found.uploads) if self.found is not None else set()
        return [r for r in self.uploads if r.state == "begun" and r.upload in still]
