"""The values that the server and the providers' pure cores exchange."""

from __future__ import annotations

import msgspec

__all__ = ["Document", "Instance", "Notice", "Request", "Response"]


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the metadata service knows it.

    A zone of a single letter is short for that zone of the service's region.
    """

    node: str
    zone: str
    family: str
    pool: str

    def __post_init__(self) -> None:
        for field in ("node", "zone", "family"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value or not value.isprintable():
                raise ValueError(f"{field}={value!r}: expected a name on one line")
        if self.pool not in ("spot", "reserved"):
            raise ValueError(f"pool={self.pool!r}: expected 'spot' or 'reserved'")


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """An interruption that the provider has announced; its deadline never moves."""

    action: str
    issued_wall_s: float
    deadline_wall_s: float


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one node's answers depend on, but for the request and the time."""

    instance: Instance
    instance_id: str
    region: str
    started_wall_s: float
    tokens_required: bool
    token_key: bytes
    notice: Notice | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the cores see it: names of headers in lower case, no query."""

    method: str
    path: str
    headers: dict[str, str]


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. ``tells_notice`` marks one that told its reader of the notice."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    tells_notice: bool = False
