"""What a metadata service that stands alone is told: a value, and its parts as people type them."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable
from typing import Any

import msgspec

from chaosspot.misbehaviour import MisbehaviourKind
from chaosspot.services.metadata.server import LEAD_MAX_S, PROVIDERS
from chaosspot.services.metadata.values import Settings
from chaosspot.services.typed import pairs_of, typed

__all__ = ["Options", "misbehaviour_of", "settings_of"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is served.

    Node n listens on ``port`` + n of ``host``; with ``own_addresses`` on ``port`` of the n-th
    address after ``host``. Port 0 takes free ones. Addresses that other machines may reach need
    ``beyond_loopback``; the control stays on loopback. ``notice_after_s`` after the start,
    ``noticed`` of the nodes (None: all) get notice of ``action``, by default the cloud's usual
    way to take a node; without it, neither has a meaning, and nor has ``lasts_s``.

    Raises:
        ValueError: a bad value, which the message names.
    """

    cloud: str = "aws"
    nodes: int = 1
    host: str = "127.0.0.1"
    port: int = 0
    own_addresses: bool = False
    beyond_loopback: bool = False
    control_port: int = 0
    zones: tuple[str, ...] = ("a",)
    family: str = "p4d.24xlarge"
    pool: str = "spot"
    group: str = ""
    region: str | None = None
    notice_after_s: float | None = None
    noticed: int | None = None
    lead_s: float = 120.0
    action: str | None = None
    lasts_s: float | None = None
    misbehaviours: tuple[MisbehaviourKind, ...] = ()
    settings: Settings | None = None
    json: bool = False

    def __post_init__(self) -> None:
        if self.cloud not in PROVIDERS:
            raise ValueError(f"cloud={self.cloud!r}: expected one of {', '.join(PROVIDERS)}")
        actions = PROVIDERS[self.cloud].ACTIONS
        if self.action is not None and self.action not in actions:
            raise ValueError(f"action={self.action!r}: expected one of {', '.join(actions)}")
        if not 0 <= self.lead_s <= LEAD_MAX_S:
            raise ValueError(f"lead_s={self.lead_s!r}: expected seconds, 0 to {LEAD_MAX_S:.0f}")
        after_s, lasts_s = self.notice_after_s, self.lasts_s
        if after_s is not None and not 0 <= after_s < math.inf:
            raise ValueError(f"notice_after_s={after_s!r}: expected seconds, 0 or more")
        if lasts_s is not None and not 0 < lasts_s < math.inf:
            raise ValueError(f"lasts_s={lasts_s!r}: expected seconds above 0")
        for name in ("noticed", "action", "lasts_s") if after_s is None else ():
            if (value := getattr(self, name)) is not None:
                raise ValueError(f"{name}={value!r}: needs notice_after_s: there is no notice")
        if self.nodes < 1:
            raise ValueError(f"nodes={self.nodes!r}: expected 1 or more")
        if self.noticed is not None and not 1 <= self.noticed <= self.nodes:
            raise ValueError(f"noticed={self.noticed!r}: expected 1 to {self.nodes}")
        if not self.zones:
            raise ValueError("zones=(): expected at least one")
        ports = 1 if self.own_addresses else self.nodes
        if self.port and not 1 <= self.port <= 65536 - ports:
            raise ValueError(f"port={self.port!r}: {ports} ports from there are not to be had")
        if not 0 <= self.control_port <= 65535:
            raise ValueError(f"control_port={self.control_port!r}: expected 0 to 65535")
        try:
            first = ipaddress.ip_address(self.host)
        except ValueError:
            raise ValueError(f"host={self.host!r}: expected an IP address") from None
        last = first + (self.nodes - 1 if self.own_addresses else 0)
        if not self.beyond_loopback and not (first.is_loopback and last.is_loopback):
            raise ValueError(f"host={self.host!r}: expected a loopback address, or beyond_loopback")


def settings_of(cloud: str, pairs: Iterable[str]) -> Settings:
    """The cloud's settings from ``name=value`` words, such as ``tokens_required=false``.

    Raises:
        ValueError: an unknown cloud, name or value.
    """
    if cloud not in PROVIDERS:
        raise ValueError(f"cloud={cloud!r}: expected one of {', '.join(PROVIDERS)}")
    words = list(pairs)
    settings: Settings = _converted(" ".join(words), pairs_of(words), PROVIDERS[cloud].Settings)
    return settings


def misbehaviour_of(text: str) -> MisbehaviourKind:
    """A misbehaviour from its kind and its parameters: ``status,status=503,rate=0.5``.

    Raises:
        ValueError: an unknown kind, parameter or value.
    """
    what: MisbehaviourKind = typed(text, MisbehaviourKind)
    return what


def _converted(text: str, data: dict[str, str], kind: Any) -> Any:
    try:
        return msgspec.convert(data, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{text!r}: {error}") from error
