"""Read the parts of a snapshot that all ranks have agreed on, from flash or store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Self

import torch
from torch import Tensor

from chaosspot import probe
from chaosspot.trainer.agreement import Holdings, Reading
from chaosspot.trainer.config import InputError
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import Manifest, ManifestError, OtherJobError
from chaosspot.trainer.snapshot.parts import Part, SnapshotId, complete
from chaosspot.trainer.snapshot.staging import Stage
from chaosspot.trainer.snapshot.store import Store
from chaosspot.trainer.snapshot.worker import Worker

__all__ = ["Recovery", "Restored"]

_log = logging.getLogger(__name__)

_LOOK_S = 3.0  # a store that is well answers in tenths of a second
_SUM_ELEMENTS = 8 << 20  # 64 MB at a time
_DIGEST_BITS = 56  # of the digest: they are added up over at most 128 ranks, in 64 bits


class Restored:
    """A snapshot's bytes as far as this rank read them, to be summed over all ranks.

    ``image``: (total_bytes,) uint8, zero where others read. ``marks``: (2, parts) int64; for each
    part whether its reader found it good, and the beginning of the digest in its manifest.
    """

    def __init__(self, reading: Reading, stage: Stage) -> None:
        self.reading = reading
        self._layout = stage.layout
        self.loan = stage.lend()
        self.image = self.loan.buffer
        self.marks = torch.zeros((2, reading.snapshot.count), dtype=torch.int64)

    def sums(self) -> list[Tensor]:
        """What is to be summed over the ranks, in place."""
        return [*torch.split(self.image.view(torch.int64), _SUM_ELEMENTS), self.marks.view(-1)]

    @property
    def whole(self) -> bool:
        """After the sum: every part was read."""
        return bool((self.marks[0] == 1).all())

    @property
    def good(self) -> bool:
        """After the sum: every part was read, and all are of one state."""
        return self.whole and len(set(self.marks[1].tolist())) == 1

    def bytes_of(self, part: Part) -> Tensor:
        """The part's bytes in :attr:`image`."""
        start, end = part.span(len(self.image))
        return self.image[start:end]

    def tensors(self) -> dict[str, Tensor]:
        return self._layout.views(self.image)


class Recovery:
    """The snapshots that this rank could read; a context manager, which ends its thread.

    The store's are listed before the first quorum, so that peers never wait for a slow store.
    """

    def __init__(self, *, flash: Flash, store: Store | None, job: str, stage: Stage) -> None:
        self._flash = flash
        self._store = store
        self._job = job
        self._stage = stage
        self._layout = stage.layout
        self._lister = Worker("list")
        self._listing: Future[list[str]] | None = None  # under way
        self._in_store: list[SnapshotId] = []
        self._blind = store is not None
        self._rejected: set[SnapshotId] = set()
        self._bad: dict[Literal["flash", "store"], set[Part]] = {"flash": set(), "store": set()}

    def __enter__(self) -> Self:
        self._lister.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lister.__exit__()

    def look(self) -> None:
        """List what is in the store.

        One that hangs keeps nobody from peers whose memory holds the state: after a moment the
        rank goes on without, and the next call goes on waiting for the same list.
        """
        if self._store is None:
            return
        if self._listing is None:
            self._listing = self._lister.call(self._store.keys)
        wait([self._listing], timeout=_LOOK_S)
        if not self._listing.done():
            _log.warning("the store has not listed its snapshots for %g s", _LOOK_S)
            self._blind = True
            return
        listing, self._listing = self._listing, None
        try:
            self._in_store, self._blind = complete(listing.result()), False
        except OSError as error:
            _log.warning("snapshots in the store cannot be listed: %s", error)
            self._blind = True

    def holdings(self, step: int) -> Holdings:
        """What this rank could read, for the agreement; its memory is at ``step``."""
        return Holdings(
            step=step,
            flash=frozenset(part for part in self._flash.parts() if self._is_ours(part)),
            store=frozenset(self._in_store) - self._rejected,
            bad=frozenset(self._bad["store"]),
            blind=self._blind,
            rejected=len(self._rejected) + len(self._bad["flash"]) + len(self._bad["store"]),
        )

    def reject(self, snapshot: SnapshotId) -> None:
        """Never offer it again: its parts can be read, but are not of one state."""
        self._rejected.add(snapshot)

    def read(self, reading: Reading, rank: int) -> Restored:
        """Read what is this rank's to read; what cannot be read is marked, and not offered
        again."""
        restored = Restored(reading, self._stage)
        probe.point("restore.before-load")
        for part in reading.snapshot.parts():
            if reading.flash.get(part.index) == rank:
                self._try("flash", self._from_flash, part, restored)
            elif reading.store.get(part.index) == rank:
                self._try("store", self._from_store, part, restored)
            else:
                restored.bytes_of(part).zero_()
        return restored

    def _is_ours(self, part: Part) -> bool:
        if part in self._bad["flash"] or part.of in self._rejected:
            return False
        try:
            manifest = self._flash.manifest(part, job=self._job)
            self._fits(manifest)
        except OtherJobError as error:
            raise self._others(self._flash.root / part.folder, error) from error
        except (OSError, ManifestError) as error:
            self._reject("flash", part, error)
            return False
        return True

    def _try(
        self,
        tier: Literal["flash", "store"],
        read: Callable[[Part, memoryview], Manifest],
        part: Part,
        restored: Restored,
    ) -> None:
        target = restored.bytes_of(part)
        try:
            manifest = read(part, target.numpy().data)
        except OtherJobError as error:
            raise self._others(part.folder, error) from error
        except (OSError, ManifestError) as error:
            target.zero_()
            self._reject(tier, part, error)
            return
        restored.marks[0, part.index] = 1
        restored.marks[1, part.index] = _beginning(manifest.digest)

    def _reject(self, tier: Literal["flash", "store"], part: Part, error: Exception) -> None:
        what = (tier, part.index, part.of, error)
        _log.warning("snapshot in %s passed over: part %d of %s: %s", *what)
        self._bad[tier].add(part)

    def _from_flash(self, part: Part, target: memoryview) -> Manifest:
        manifest = self._flash.manifest(part, job=self._job)
        self._fits(manifest)
        self._flash.read(part, manifest.sums, target)
        return manifest

    def _from_store(self, part: Part, target: memoryview) -> Manifest:
        try:
            return self._once_from_store(part, target)
        except OtherJobError:
            raise
        except (OSError, ManifestError) as error:  # damage may have come on the way
            _log.warning("part %d of %s read once more: %s", part.index, part.of, error)
            return self._once_from_store(part, target)

    def _once_from_store(self, part: Part, target: memoryview) -> Manifest:
        assert self._store is not None
        text = self._store.get(part.manifest_key)
        with _naming(part.manifest_key):
            manifest = Manifest.decode(text, part=part, job=self._job)
            self._fits(manifest)
        data = self._store.get(part.data_key)
        with _naming(part.data_key):
            manifest.check(data)
        target[:] = data
        return manifest

    @staticmethod
    def _others(where: Path | str, error: OtherJobError) -> InputError:
        return InputError(f"{where}: {error}; give this job a place of its own")

    def _fits(self, manifest: Manifest) -> None:
        ours = self._layout.entries
        for name in sorted(manifest.tensors.keys() | ours):
            found, expected = manifest.tensors.get(name), ours.get(name)
            if found != expected:
                raise OtherJobError(f"of another model: {name} is {found}, expected {expected}")
        start, end = manifest.part.span(self._layout.total_bytes)
        if (manifest.start, manifest.sums.file_bytes) != (start, end - start):
            raise ManifestError(
                f"has bytes {manifest.start} to {manifest.start + manifest.sums.file_bytes}, "
                f"expected {start} to {end}"
            )


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Let what is said of a damaged object name it."""
    try:
        yield
    except OtherJobError:  # whoever catches it names the snapshot
        raise
    except ManifestError as error:
        raise ManifestError(f"{key}: {error}") from error


def _beginning(digest: str | None) -> int:
    text = digest.encode() if digest is not None else b""
    return int.from_bytes(blake2b(text, digest_size=8).digest()) >> (64 - _DIGEST_BITS)
