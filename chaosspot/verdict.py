"""What an attack comes to: findings, and a verdict of three values."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["Failed", "Finding", "Outcome", "Unknown", "Verdict", "conclude"]


class Failed(AssertionError):
    """A verdict that is a failure; raised by :meth:`Verdict.check`."""


class Unknown(AssertionError):
    """A verdict that is unknown: nothing was proved, neither way."""


class Outcome(enum.StrEnum):
    """fail > unknown > pass: one failure decides, and what was not seen is not passed."""

    PASS = "pass"
    UNKNOWN = "unknown"
    FAIL = "fail"

    @property
    def weight(self) -> int:
        return list(Outcome).index(self)


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one oracle says about one thing.

    ``evidence`` are sequence numbers of history lines; ``caused_by`` names the oracles whose
    failures this one follows from. ``fault`` is the number of the fault it is about.
    """

    oracle: str
    outcome: Outcome
    message: str
    bound: float | None = None
    measured: float | None = None
    unit: str = ""
    fault: int | None = None
    evidence: tuple[int, ...] = ()
    caused_by: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one attack, with what it rests on.

    ``measured`` holds the figures that are reported whether or not they were promised;
    ``replay`` is the command that runs the same attack again.
    """

    outcome: Outcome
    schedule: str
    trainer: str
    seed: int
    findings: tuple[Finding, ...]
    measured: dict[str, Any] = {}
    run: str = ""
    replay: str = ""

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASS

    def check(self) -> None:
        """Nothing for a pass.

        Raises:
            Failed: the verdict is a failure; with what decided it and how to run it again.
            Unknown: it is unknown.
        """
        if self.passed or self.primary is None:
            return
        kind = Failed if self.outcome is Outcome.FAIL else Unknown
        raise kind(
            f"{self.schedule} on {self.trainer}, seed {self.seed}: {self.outcome}, because of "
            f"{self.primary.oracle}: {self.primary.message}\n"
            f"run directory: {self.run}\nreplay: {self.replay}"
        )

    @property
    def primary(self) -> Finding | None:
        """The first worst finding that follows from no other; None when all passed."""
        worst = [f for f in self.findings if f.outcome is self.outcome is not Outcome.PASS]
        return next((f for f in worst if not f.caused_by), worst[0] if worst else None)


# oracle -> the oracles whose failure explains its own, by way of others too.
_CAUSES = {
    "progress": ("restarts", "exits"),
    "recovery": ("restarts", "exits", "progress"),
    "rejoin": ("restarts", "exits", "progress"),
    "durability": ("membership",),
    "snapshots": ("membership", "durability"),
    "rework": ("restarts", "exits", "progress", "notice", "durability", "snapshots"),
    "gray": ("restarts", "exits", "progress", "recovery"),
    "ledger": ("progress", "membership"),
    "equality": ("progress", "ledger", "snapshots", "membership"),
    "loss": ("progress", "ledger", "snapshots", "membership", "equality"),
    "checkpoint": ("progress", "ledger", "snapshots", "membership", "equality", "loss"),
}


def conclude(findings: Iterable[Finding]) -> tuple[Outcome, tuple[Finding, ...]]:
    """The outcome of all findings together, and the findings with their causes filled in.

    No findings at all are unknown.
    """
    listed = list(findings)
    failed = {finding.oracle for finding in listed if finding.outcome is Outcome.FAIL}
    explained = tuple(
        msgspec.structs.replace(
            finding, caused_by=tuple(c for c in _CAUSES.get(finding.oracle, ()) if c in failed)
        )
        if finding.outcome is not Outcome.PASS
        else finding
        for finding in listed
    )
    outcome = max((f.outcome for f in listed), key=lambda o: o.weight, default=Outcome.UNKNOWN)
    return outcome, explained
