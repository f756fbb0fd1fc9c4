"""What an object store that stands alone is told: a value, and its parts as people type them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path

import msgspec

from chaosspot import toml
from chaosspot.services.s3.server import check_bucket
from chaosspot.services.typed import typed
from chaosspot.store_misbehaviour import StoreMisbehaviourKind

__all__ = ["Options", "misbehaviours_of"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is served. Addresses that other machines may reach need ``beyond_loopback``.

    Raises:
        ValueError: a bad value, which the message names.
    """

    host: str = "127.0.0.1"
    port: int = 0
    beyond_loopback: bool = False
    bucket: str = "chaosspot"
    region: str = "us-east-1"
    versioned: bool = False
    misbehaviours: tuple[StoreMisbehaviourKind, ...] = ()
    json: bool = False

    def __post_init__(self) -> None:
        check_bucket(self.bucket)
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port={self.port!r}: expected 0 to 65535")
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            raise ValueError(f"host={self.host!r}: expected an IP address") from None
        if not self.beyond_loopback and not address.is_loopback:
            raise ValueError(f"host={self.host!r}: expected a loopback address, or beyond_loopback")


class _File(toml.Value, frozen=True, kw_only=True):
    misbehaviour: tuple[StoreMisbehaviourKind, ...]


def misbehaviours_of(texts: Iterable[str], *, seed: int) -> tuple[StoreMisbehaviourKind, ...]:
    """Misbehaviours from how people give them; ``seed`` is for those that name none.

    A text is a kind and its parameters, ``slow-down,rate=0.5,operations=put+get``, or the path of
    a TOML file (``*.toml``) with a table ``[[misbehaviour]]`` for each.

    Raises:
        ValueError: an unknown kind, parameter or value, or a file that cannot be read.
    """
    found: list[StoreMisbehaviourKind] = []
    for text in texts:
        if text.endswith(".toml"):
            found += toml.read(Path(text), _File).misbehaviour
        else:
            found.append(typed(text, StoreMisbehaviourKind, lists=("operations",)))
    return tuple(msgspec.structs.replace(what, seed=what.seed or seed) for what in found)
