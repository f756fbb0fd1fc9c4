"""Which provider's service this node has: by what the environment names, or by asking."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

from chaosspot.trainer.watch.aws import AwsWatch
from chaosspot.trainer.watch.azure import AzureWatch
from chaosspot.trainer.watch.core import Core
from chaosspot.trainer.watch.gcp import GcpWatch
from chaosspot.trainer.watch.values import (
    Answer,
    Ask,
    Moment,
    Outcome,
    Pace,
    Report,
    Request,
    Watch,
)

__all__ = ["LINK_LOCAL", "VARIABLES", "DetectWatch", "Provider", "named", "start"]

Provider: TypeAlias = Literal["aws", "gcp", "azure", "auto"]

LINK_LOCAL = "http://169.254.169.254"
"""Where all three clouds have their service; asked only when the user says so."""

VARIABLES: Mapping[str, Literal["aws", "gcp", "azure"]] = {
    "AWS_EC2_METADATA_SERVICE_ENDPOINT": "aws",
    "GCE_METADATA_HOST": "gcp",
    "AZURE_METADATA_SERVICE_ENDPOINT": "azure",
}
"""What names a service in the environment. Azure's own clients know no such variable: it is ours,
named like the first."""


def named(environ: Mapping[str, str]) -> dict[Literal["aws", "gcp", "azure"], str]:
    """The base URL of each provider's service that the environment names."""
    found = {}
    for variable, provider in VARIABLES.items():
        if given := environ.get(variable):
            # Google's names a host alone.
            found[provider] = f"http://{given}" if variable.endswith("_HOST") else given
    return found


def start(provider: Provider, pace: Pace, began: Moment) -> Watch:
    """The provider's state machine; ``auto`` finds out which one it is to be."""
    if provider == "auto":
        return DetectWatch.start(pace, began)
    return _MACHINES[provider](pace, began)


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectWatch:
    """Asks what each provider alone answers, again and again, and becomes that one's watch.

    A service that is not ready yet, or answers nonsense, is no reason to take it for another's.
    """

    core: Core
    ask: Ask
    turn: int = 0
    began_s: float

    @classmethod
    def start(cls, pace: Pace, began: Moment) -> Self:
        core = Core.start("auto", pace, began)
        ask = _ask(_QUESTIONS[0], at_s=began.now_s, timeout_s=core.patience_s)
        return cls(core=core, ask=ask, began_s=began.now_s)

    def hear(self, outcome: Outcome, jitter: float) -> tuple[Watch, tuple[Report, ...]]:
        asked = _QUESTIONS[self.turn]
        if isinstance(outcome, Answer) and outcome.status == 200 and asked.is_ours(outcome):
            found = _MACHINES[asked.provider](self.core.pace, outcome.received)
            core = replace(found.core, seen_s=self.core.seen_s, blind=self.core.blind)
            return replace(found, core=core), ()
        turn = (self.turn + 1) % len(_QUESTIONS)
        core, reports = self.core.heard(outcome), _NOTHING
        at_s, began_s = outcome.received.now_s, self.began_s
        if turn == 0:
            core, reports = self.core.failed(outcome, "no provider's metadata service answers")
            at_s = began_s = core.due_s(began_s, outcome.received, jitter)
        ask = _ask(_QUESTIONS[turn], at_s=at_s, timeout_s=core.patience_s)
        return replace(self, core=core, ask=ask, turn=turn, began_s=began_s), reports


@dataclass(frozen=True, kw_only=True, slots=True)
class _Question:
    provider: Literal["aws", "gcp", "azure"]
    method: str
    path: str
    headers: Mapping[str, str]
    is_ours: Callable[[Answer], bool]


def _has_versions(answer: Answer) -> bool:
    try:
        return isinstance(json.loads(answer.body)["apiVersions"], list)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _ask(question: _Question, *, at_s: float, timeout_s: float) -> Ask:
    request = Request(
        method=question.method,
        path=question.path,
        headers=question.headers,
        timeout_s=timeout_s,
    )
    return Ask(request=request, at_s=at_s)


_NOTHING: tuple[Report, ...] = ()
_TTL = "x-aws-ec2-metadata-token-ttl-seconds"
_QUESTIONS = (
    _Question(
        provider="gcp",
        method="GET",
        path="/",
        headers={"Metadata-Flavor": "Google"},
        is_ours=lambda answer: answer.headers.get("metadata-flavor") == "Google",
    ),
    _Question(
        provider="aws",
        method="PUT",
        path="/latest/api/token",
        headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"},
        is_ours=lambda answer: _TTL in answer.headers,
    ),
    _Question(
        provider="aws",  # behind the hop limit no token arrives
        method="GET",
        path="/latest/meta-data/instance-id",
        headers={},
        is_ours=lambda answer: answer.body.startswith(b"i-"),
    ),
    _Question(
        provider="azure",
        method="GET",
        path="/metadata/versions",
        headers={"Metadata": "true"},
        is_ours=_has_versions,
    ),
)
_MACHINES: Mapping[
    Literal["aws", "gcp", "azure"], Callable[[Pace, Moment], AwsWatch | GcpWatch | AzureWatch]
] = {
    "aws": AwsWatch.start,
    "gcp": GcpWatch.start,
    "azure": AzureWatch.start,
}
