"""What a run is told and what it reports: frozen values, no torch, no I/O."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from chaosspot.trainer.place import ObjectPlace
from chaosspot.trainer.plan import Cadence

__all__ = ["InputError", "StepReport", "TrainConfig", "TrainResult", "TrainerError"]


class TrainerError(Exception):
    """The trainer cannot go on; the message is one line and says what to look at."""


class InputError(TrainerError):
    """An option or a file that the user gave cannot be used; the message shows its value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Everything one rank needs to know.

    Raises:
        InputError: a value is out of range.
    """

    data: Path
    """File to learn from, read as bytes."""
    steps: int
    """Updates to make in all, counted from the first start of the job."""
    flash: Path | None = None
    """Directory on this node's own disk; None keeps local snapshots in a temporary directory."""
    store: Path | ObjectPlace | None = None
    """What outlives nodes; None means that nothing does."""
    cadence: Cadence = field(default_factory=lambda: Cadence(steps=5))
    """How often to snapshot."""
    keep_snapshots: int = 3
    """Complete snapshots kept on flash, and as many in the store."""
    micro_shards: int = 8
    """Parts of the global batch. Fixed for the life of a job: the result depends on it."""
    width: int = 128
    layers: int = 5
    heads: int = 4
    seq_len_bytes: int = 64
    micro_batch_rows: int = 2
    """Sequences in one micro-shard."""
    learning_rate: float = 1e-3
    seed: int = 0
    ballast_bytes: int = 0
    """Added to the state, and to all that is done with it but computing."""
    digest: bool = True
    """Hash the whole state after every step, so that runs can be compared bit for bit."""
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    """CPU threads torch may use."""
    lighthouse: str | None = None
    """URL of torchft's Lighthouse; None starts one in this process and trains alone."""
    replica: str = "node.0"
    """Name of this rank among its peers; a restart must use another one."""
    advertise_host: str = "127.0.0.1"
    """Host name under which peers reach this rank."""
    metadata_endpoint: str | None = None
    """Base URL of a metadata service to watch for notices; None watches nothing."""
    metadata_provider: Literal["aws", "gcp", "azure", "auto"] = "aws"
    """Whose service that is; ``auto`` finds out by asking it."""
    sigterm_grace_s: float = 10.0
    """Time a SIGTERM is taken to leave before SIGKILL follows."""
    collective_timeout_s: float = 5.0
    """Longest wait for one collective, or for one peer's state."""
    gather_s: float = 10.0
    """How long a rank that starts waits for peers whose disks may have what is missing of a newer
    snapshot than any it could restore without them; 0 does not wait."""
    patience_s: float = 180.0
    """How long a rank goes on trying without a single commit before it gives up."""
    verbose: bool = False

    def __post_init__(self) -> None:
        at_least_one = (
            "steps", "keep_snapshots", "micro_shards", "width", "layers",
            "heads", "seq_len_bytes", "micro_batch_rows", "threads",
        )  # fmt: skip
        for name in at_least_one:
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {name}={getattr(self, name)!r}")
        if self.ballast_bytes < 0:
            raise InputError(f"ballast must not be negative, got {self.ballast_bytes} bytes")
        if self.width % self.heads:
            raise InputError(
                f"width must be a multiple of heads, got width={self.width}, heads={self.heads}"
            )
        for name in ("learning_rate", "sigterm_grace_s", "collective_timeout_s", "patience_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(
                    f"{name} must be positive and finite, got {name}={getattr(self, name)!r}"
                )
        if not 0 <= self.gather_s < float("inf"):
            raise InputError(f"gather must be a time, 0 or more, got {self.gather_s:g} s")

    def job_id(self, data_id: str) -> str:
        """Name of the one trajectory these settings lead to, over data named ``data_id``.

        A snapshot with another name belongs to another job and is never loaded.
        """
        names = (
            "micro_shards", "width", "layers", "heads", "seq_len_bytes", "micro_batch_rows",
            "learning_rate", "seed", "device", "ballast_bytes",
        )  # fmt: skip
        values = {name: getattr(self, name) for name in names} | {"data": data_id}
        text = json.dumps(values, sort_keys=True).encode()
        return hashlib.blake2b(text, digest_size=8).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """One committed step, as every survivor sees it."""

    step: int
    loss: float
    """Mean over the global batch, in nats per byte, before the update."""
    generation: int
    world: int
    digest: str | None
    seconds: float
    """Since this rank's previous commit, or since it started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainResult:
    """How a run of :func:`chaosspot.trainer.train` ended."""

    step: int
    loss: float | None
    """None when this process committed no step itself."""
    digest: str | None
    reason: Literal["finished", "drained"]
    restored: tuple[tuple[int, str], ...]
    """(step, source) of every restore, in order."""
