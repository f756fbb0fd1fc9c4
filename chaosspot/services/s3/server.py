"""An object store that speaks S3: moto behind a layer that verifies, and misbehaves when told."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from aiohttp import web

from chaosspot.services.listener import Listener
from chaosspot.services.s3.asked import read
from chaosspot.services.s3.changes import Change
from chaosspot.services.s3.commits import Commits
from chaosspot.services.s3.exchange import Exchange, Injection
from chaosspot.services.s3.layer import Layer
from chaosspot.services.s3.misbehaving import Active, Tally, decide
from chaosspot.services.s3.process import Moto
from chaosspot.services.s3.reader import Reader
from chaosspot.services.s3.upstream import Upstream
from chaosspot.store_misbehaviour import StoreMisbehaviourKind

__all__ = ["S3Service", "check_bucket"]

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_TAKEN_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
_TAKEN_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")
_VERSIONED = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


class S3Service:
    """An object store with one bucket, whose state dies with it.

    Use it with ``async with`` on a running asyncio loop; leaving it ends moto's process, verified,
    and closes the listener. All methods are to be called on that loop.

    Args:
        bucket: is made at the start.
        versioned: the bucket keeps every version of its objects.
        host: an address of this machine; port 0 takes any free one.
        on_injection: hears of every misbehaviour in the moment it is made.
        on_change: hears of every change of the bucket before the client that made it does.
        monotonic: misbehaviours end, and rates are counted, by it.
        start_within_s: how long moto may take to serve.

    Raises:
        ValueError: here and from every method, for a bad value, which the message names. Then
            nothing has changed.
        OSError: entering: the address cannot be bound, or moto does not serve.
    """

    def __init__(
        self,
        *,
        bucket: str = "chaosspot",
        region: str = "us-east-1",
        versioned: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        on_injection: Callable[[Injection], None] | None = None,
        on_change: Callable[[Change], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        start_within_s: float = 60.0,
    ) -> None:
        check_bucket(bucket)
        if not _REGION.fullmatch(region):
            raise ValueError(f"region={region!r}: expected one such as 'us-east-1'")
        self.bucket = bucket
        self.region = region
        self._versioned = versioned
        self._address = (host, port)
        self._on_injection = on_injection
        self._on_change = on_change
        self._monotonic = monotonic
        self._moto = Moto(within_s=start_within_s)
        self._stack = AsyncExitStack()
        self._endpoint = ""
        self._reader: Reader | None = None
        self._last = 0
        self._active: list[Active] = []
        self._tallies: dict[tuple[int, str, str], Tally] = {}
        self._injections: dict[int, int] = {}
        self._nodes: dict[str, str] = {}  # by access key
        self._requests: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._moto)
            upstream = Upstream(self._moto.endpoint, region=self.region)
            await stack.enter_async_context(upstream)
            await self._make_bucket(upstream)
            reader = Reader(upstream, self.bucket)
            commits = Commits(upstream, reader, tell=self._on_change or _unheard)
            await stack.enter_async_context(commits)
            layer = Layer(upstream, commits, exchange=self._exchange)
            listener = Listener(layer.answer, resets=lambda: False)
            stack.push_async_callback(listener.close)
            await listener.open(*self._address)
            self._endpoint = listener.endpoint
            self._reader = reader
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader = None
        await self._stack.aclose()

    # --- for clients ------------------------------------------------------------------------

    @property
    def endpoint(self) -> str:
        """The base URL of the layer, which clients use."""
        self._must_run()
        return self._endpoint

    def environment(
        self,
        node: str = "",
        *,
        endpoint: str | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> dict[str, str]:
        """What leads a node's clients here; the credentials tell nodes apart.

        Args:
            endpoint: told instead of the layer's own, where something stands before it.
            environ: what this is added to; its exceptions from a proxy are kept.
        """
        self._must_run()
        key_id, secret = _credentials(node)
        self._nodes[key_id] = node
        endpoint = endpoint or self._endpoint
        host = str(urlsplit(endpoint).hostname)
        direct = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        no_proxy = ",".join(dict.fromkeys([*filter(None, direct.split(",")), host]))
        return {
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",  # or it is Amazon that is asked
            "AWS_ALLOW_HTTP": "true",  # for clients written in Rust
            "AWS_ACCESS_KEY_ID": key_id,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "NO_PROXY": no_proxy,
            "no_proxy": no_proxy,
        }

    def requests(self, node: str = "") -> int:
        """How many requests the node has made; of ``""``, those that no known node has signed."""
        return self._requests.get(node, 0)

    # --- misbehaviour -------------------------------------------------------------------------

    def misbehave(self, what: StoreMisbehaviourKind) -> int:
        """Misbehave from now on; returns the number under which to stop it."""
        self._must_run()
        self._last += 1
        self._active.append(Active(number=self._last, what=what, since_s=self._monotonic()))
        self._injections[self._last] = 0
        return self._last

    def behave(self, number: int) -> None:
        """Stop a misbehaviour; what it has begun to do to a request it ends."""
        numbers = [entry.number for entry in self.misbehaviours()]
        if number not in numbers:
            known = ", ".join(map(str, numbers)) or "none"
            raise ValueError(f"misbehaviour={number!r}: not in force; those in force: {known}")
        self._active = [entry for entry in self._active if entry.number != number]

    def misbehaviours(self) -> tuple[Active, ...]:
        """Those in force, each with its number; ended ones are forgotten here."""
        now_s = self._monotonic()
        self._active = [entry for entry in self._active if not entry.over(now_s)]
        return tuple(self._active)

    def injections(self) -> dict[int, int]:
        """How often each misbehaviour was made, by its number, those that have ended too."""
        return dict(self._injections)

    # --- past all misbehaviour ------------------------------------------------------------------

    @property
    def reader(self) -> Reader:
        """Reads the bucket as it is."""
        self._must_run()
        assert self._reader is not None
        return self._reader

    def check(self) -> None:
        """Raise OSError, with what it said last, when moto has died: it is no fault of a node's."""
        self._must_run()
        self._moto.check()

    # --- inside -----------------------------------------------------------------------------

    def _must_run(self) -> None:
        if self._reader is None:
            raise RuntimeError("the object store is not running: use it with `async with`")

    def _exchange(self, received: web.BaseRequest) -> Exchange:
        asked = read(received.method, received.raw_path, received.headers)
        node = self._nodes.get(asked.access_key, "")
        self._requests[node] = self._requests.get(node, 0) + 1
        plan, changed = decide(
            self._active,
            self._tallies,
            node=node,
            operation=asked.operation,
            key=asked.key,
            now_s=self._monotonic(),
        )
        self._tallies |= changed
        return Exchange(received, asked, node=node, plan=plan, report=self._injected)

    def _injected(self, injection: Injection) -> None:
        self._injections[injection.number] += 1
        if self._on_injection is not None:
            self._on_injection(injection)

    async def _make_bucket(self, upstream: Upstream) -> None:
        place = f"<LocationConstraint>{escape(self.region)}</LocationConstraint>"
        body = f"<CreateBucketConfiguration>{place}</CreateBucketConfiguration>".encode()
        if self.region == "us-east-1":  # which is the one that must not be said
            body = b""
        bodies = [(f"/{self.bucket}", body)]
        if self._versioned:
            bodies.append((f"/{self.bucket}?versioning", _VERSIONED))
        for target, body in bodies:
            async with upstream.ask("PUT", target, body=body) as answer:
                if answer.status != 200:
                    said = (await answer.text())[:500]
                    raise OSError(f"cannot make bucket {self.bucket!r}: {answer.status} {said}")


def _unheard(change: Change) -> None:
    """Nobody wants to know."""


def check_bucket(bucket: str) -> None:
    """Raise ValueError where S3 refuses the name."""
    why = ""
    if not _BUCKET.fullmatch(bucket):
        why = "3 to 63 of a-z 0-9 . and -, with a letter or digit at both ends"
    elif ".." in bucket:
        why = "no two periods side by side"
    elif _is_address(bucket):
        why = "no IP address"
    elif bucket.startswith(_TAKEN_PREFIXES) or bucket.endswith(_TAKEN_SUFFIXES):
        why = "no prefix or suffix that S3 keeps for itself"
    if why:
        raise ValueError(f"bucket={bucket!r}: expected the name of a bucket: {why}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _credentials(node: str) -> tuple[str, str]:
    """An access key and its secret, always the same for a node."""
    digest = hashlib.blake2b(f"chaosspot\0{node}".encode(), digest_size=40).digest()
    return "AKIA" + base64.b32encode(digest[:10]).decode(), base64.b64encode(digest[10:]).decode()
