"""Find and load the newest snapshot that is complete and undamaged, from flash or store."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from chaosspot import probe
from chaosspot.trainer.config import TrainerError
from chaosspot.trainer.plan import Candidate, restore_order
from chaosspot.trainer.snapshot.manifest import (
    Manifest,
    ManifestError,
    complete_steps,
    data_key,
    manifest_key,
)
from chaosspot.trainer.snapshot.staging import read_state
from chaosspot.trainer.snapshot.store import Store
from chaosspot.trainer.state import TrainState

__all__ = ["Recovery"]

_log = logging.getLogger(__name__)


class Recovery:
    """The snapshots that a starting rank could load.

    They are listed before the first quorum, so that peers never wait for a slow store, and read
    only when peers turn out to have nothing better.
    """

    def __init__(self, *, local: Store, store: Store | None, job: str) -> None:
        self._tiers: dict[str, Store] = {"local": local} | ({"store": store} if store else {})
        self._job = job
        self._steps: dict[str, list[int]] = {}
        self._rejected: set[Candidate] = set()

    def look(self) -> None:
        """List what there is."""
        self._steps = {name: _steps(tier, name) for name, tier in self._tiers.items()}

    def candidates(self, current_step: int) -> list[Candidate]:
        """Snapshots seen by :meth:`look` that are beyond ``current_step``, best first."""
        order = restore_order(
            current_step=current_step,
            local=self._steps.get("local", ()),
            store=self._steps.get("store", ()),
        )
        return [candidate for candidate in order if candidate not in self._rejected]

    def load(self, state: TrainState, order: list[Candidate]) -> Candidate | None:
        """Load the first good one of ``order`` into ``state``; None when none is.

        A snapshot that is damaged, unreadable or of another job is logged, passed over for the
        next and not offered again. ``state`` is either loaded whole or left alone.
        """
        for candidate in order:
            try:
                _load(state, self._tiers, candidate, self._job)
            except (OSError, ManifestError, TrainerError, KeyError, ValueError) as error:
                _log.warning(
                    "%s snapshot of step %d passed over: %s", candidate.tier, candidate.step, error
                )
                self._rejected.add(candidate)
                continue
            return candidate
        return None


def _steps(store: Store, name: str) -> list[int]:
    try:
        return complete_steps(store.keys())
    except OSError as error:
        _log.warning("%s snapshots cannot be listed: %s", name, error)
        return []


def _load(state: TrainState, tiers: Mapping[str, Store], candidate: Candidate, job: str) -> None:
    files = tiers[candidate.tier]
    manifest = Manifest.decode(files.get(manifest_key(candidate.step)), job=job)
    if manifest.step != candidate.step:
        raise ManifestError(f"manifest says step {manifest.step}")
    data = files.get(data_key(candidate.step))
    manifest.check(data)
    probe.point("restore.before-load")
    read_state(data, manifest, state)
