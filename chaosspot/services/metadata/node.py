"""One node of the service: what it serves, who waits for a change, how a request is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from chaosspot.services.listener import Listener, cut, for_ever
from chaosspot.services.metadata.misbehaving import (
    Active,
    Plan,
    Tally,
    bend,
    decide,
    resets_accept,
    spoil,
)
from chaosspot.services.metadata.values import (
    Document,
    Moment,
    Notice,
    Provider,
    Request,
    Response,
    Wait,
)

__all__ = ["Node"]

_BODY_MAX_BYTES = 64 * 1024
_BODY_S = 10.0  # for a client to send its body in
_LOOK_AGAIN_S = 0.001  # timers may be early by the clock that decides


class Node:
    """One node's listener and what it serves.

    ``active`` are the misbehaviours in force, the service's own list. ``noticed`` is called with
    the document when a request has changed the notices in it.
    """

    def __init__(
        self,
        document: Document,
        provider: Provider,
        active: Sequence[Active],
        moment: Callable[[], Moment],
        noticed: Callable[[Document], None],
    ) -> None:
        self.document = document
        self.reads = 0
        self.requests = 0
        self.tallies: dict[int, Tally] = {}
        self.listener = Listener(self._answer, resets=self._resets)
        self._provider = provider
        self._active = active
        self._moment = moment
        self._noticed = noticed
        self._changed: asyncio.Event | None = None  # made by the first that waits

    def show(self, notices: tuple[Notice, ...]) -> None:
        """These are the notices now; who waits for a change looks again."""
        self.document = msgspec.structs.replace(self.document, notices=notices)
        self.stir()

    def stir(self) -> None:
        """Something is new: requests that wait are looked at again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def struck(self, number: int) -> int:
        """How many of the node's requests that misbehaviour has struck."""
        return self.tallies.get(number, Tally()).struck

    def _resets(self) -> bool:
        if not self._active:
            return False
        struck, tallies = resets_accept(
            self._active,
            self.tallies,
            node=self.document.instance.node,
            now_s=self._moment().now_s,
        )
        self.tallies |= tallies
        return struck

    async def _answer(self, received: web.BaseRequest) -> web.StreamResponse:
        self.requests += 1
        asked = self._moment()
        request = await _read(received, asked_s=asked.now_s)
        if request is None:
            return self._sent(self._provider.refusal(HTTPStatus.BAD_REQUEST))
        response, plan = await self._respond(request)
        response = spoil(response, plan, self._provider)
        self.reads += response.tells_notice
        answer = self._sent(response)
        if plan.reset is not None:
            await cut(received, _beginning(answer, plan))
        return answer

    async def _respond(self, request: Request) -> tuple[Response, Plan]:
        """The answer, and what is to be done to it.

        One that waits is struck by what begins meanwhile as if it came then.
        """
        plan, known, waits = Plan(), -1, False
        while True:
            begun, known = self._decide(request.path, after=known)
            plan = plan.and_then(begun)
            if begun.delay_s:
                await asyncio.sleep(begun.delay_s)
            if plan.black_hole:
                await for_ever()
            if plan.status is not None:  # a refused request has no effect
                return self._provider.refusal(plan.status), plan
            if not waits:
                request, waits = self._seen(request, plan), True
            moment = self._moment()
            document = bend(self.document, plan.bends)
            response = self._provider.respond(request, document, moment)
            if not isinstance(response, Wait):
                return response, plan
            await self._change(response.until_s - moment.now_s)

    def _decide(self, path: str, *, after: int) -> tuple[Plan, int]:
        """What strikes now of all that began after that number, and the latest number."""
        if not self._active or self._active[-1].number <= after:
            return Plan(), after
        plan, tallies = decide(
            self._active,
            self.tallies,
            node=self.document.instance.node,
            path=path,
            now_s=self._moment().now_s,
            after=after,
        )
        self.tallies |= tallies
        return plan, self._active[-1].number

    def _seen(self, request: Request, plan: Plan) -> Request:
        """The request has been read: it may have changed something."""
        after = self._provider.seen(request, self.document, self._moment())
        changed = after.notices is not self.document.notices
        self.document = after
        if changed:
            self._noticed(after)
        asked_notices = bend(self.document, plan.bends).notices
        return msgspec.structs.replace(request, asked_notices=asked_notices)

    async def _change(self, within_s: float) -> None:
        """Wait until the notices change, or so long."""
        if self._changed is None:
            self._changed = asyncio.Event()
        wait = self._changed.wait()
        if within_s == float("inf"):
            await wait
            return
        try:
            async with asyncio.timeout(max(within_s, 0.0) + _LOOK_AGAIN_S):
                await wait
        except TimeoutError:
            pass

    def _sent(self, response: Response) -> web.Response:
        date = formatdate(self._moment().wall_s, usegmt=True)
        headers = {"Date": date, **response.headers}
        answer = web.Response(status=response.status, headers=headers, body=response.body)
        if response.headers.get("Connection") == "close":
            answer.force_close()
        return answer


async def _read(received: web.BaseRequest, *, asked_s: float) -> Request | None:
    """The request as the cores see it; None when it is too large or never comes to its end."""
    body = bytearray()
    if received.method not in ("GET", "HEAD") and received.can_read_body:
        try:
            async with asyncio.timeout(_BODY_S):
                while chunk := await received.content.readany():
                    body += chunk
                    if len(body) > _BODY_MAX_BYTES:
                        return None
        except (TimeoutError, web.RequestPayloadError):
            return None
    return Request(
        method=received.method,
        path=received.path,
        # Of repeated headers the last one counts: a known client adds a second token.
        headers={name.lower(): value for name, value in received.headers.items()},
        query=tuple(parse_qsl(received.query_string, keep_blank_values=True)),
        body=bytes(body),
        asked_s=asked_s,
    )


def _beginning(answer: web.Response, plan: Plan) -> bytes:
    """As much of the answer as is sent before the reset."""
    body = answer.body if isinstance(answer.body, bytes) else b""
    lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if plan.reset == "head":
        return "\r\n".join(lines[:2]).encode()
    lines += [f"Content-Length: {max(len(body), 2)}", "", ""]
    return "\r\n".join(lines).encode() + (body[: len(body) // 2] or b"x")
