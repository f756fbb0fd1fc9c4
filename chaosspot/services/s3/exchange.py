"""One request on its way through: what it asks, what strikes it, and who hears of that."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable

import msgspec
from aiohttp import web

from chaosspot.services.s3.asked import Asked
from chaosspot.services.s3.misbehaving import Plan, Strike
from chaosspot.store_misbehaviour import Operation

__all__ = ["Exchange", "Injection"]


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """A misbehaviour that was made: the answer to one request was not what it should have been.

    ``t`` is monotonic seconds; ``number`` and ``kind`` are the misbehaviour's. ``detail`` says what
    the kind does not: the code of the error, a byte and a bit, bytes sent of how many, seconds.
    """

    t: float
    number: int
    kind: str
    node: str
    operation: Operation
    bucket: str
    key: str
    request_id: str
    detail: dict[str, float | int | str]


class Exchange:
    """``report`` hears of each misbehaviour when it is made."""

    def __init__(
        self,
        received: web.BaseRequest,
        asked: Asked,
        *,
        node: str,
        plan: Plan,
        report: Callable[[Injection], None],
    ) -> None:
        self.received = received
        self.asked = asked
        self.plan = plan
        self.request_id = secrets.token_hex(8).upper()
        self.host_id = base64.b64encode(secrets.token_bytes(57)).decode()
        self.node = node
        self._report = report

    @property
    def headers(self) -> dict[str, str]:
        """Those of every answer of S3's."""
        return {
            "Server": "AmazonS3",
            "x-amz-request-id": self.request_id,
            "x-amz-id-2": self.host_id,
        }

    def made(self, strike: Strike, **detail: float | int | str) -> None:
        self._report(
            Injection(
                t=time.monotonic(),
                number=strike.number,
                kind=str(strike.what.__struct_config__.tag),
                node=self.node,
                operation=self.asked.operation,
                bucket=self.asked.bucket,
                key=self.asked.key,
                request_id=self.request_id,
                detail=detail,
            )
        )
