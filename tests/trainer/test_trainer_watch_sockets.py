"""The watcher on real sockets: delays, the provider found out, and answers that are no HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from statistics import median

import pytest
from asking import SETTINGS
from waiting import until

from chaosspot.services.metadata import AwsSettings, Instance, MetadataService
from chaosspot.trainer.notice import NoticeBoard
from chaosspot.trainer.watch.detect import Provider
from chaosspot.trainer.watch.exchange import Stopped, Wire
from chaosspot.trainer.watch.values import Answer, Failure, Notice, Outcome, Pace, Report, Request
from chaosspot.trainer.watcher import Watcher

NOTICES = 20


class Stamped(NoticeBoard):
    """A board that knows when its notice came."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s: list[float] = []

    def post(self, report: Report) -> None:
        super().post(report)
        if isinstance(report, Notice):
            self.at_s.append(time.monotonic())


async def nodes(service: MetadataService, count: int) -> dict[str, str]:
    """Names and endpoints; each in a group of its own, so that none sees another's events."""
    return {
        name: await service.add(
            Instance(node=name, zone="a", family="f", pool="spot", group=f"group-{name}")
        )
        for name in (f"node-{number}" for number in range(count))
    }


def run(cloud: str, play: Callable[[MetadataService], Awaitable[None]]) -> None:
    async def main() -> None:
        async with MetadataService(provider=cloud, settings=SETTINGS[cloud]) as service:
            await play(service)

    asyncio.run(main())


@pytest.mark.parametrize(("cloud", "bound_s"), [("aws", 2.0), ("gcp", 0.5), ("azure", 2.0)])
def test_the_median_of_twenty_notices(cloud: Provider, bound_s: float) -> None:
    """Less than the poll interval, also on a busy machine; exact bounds hold in virtual time."""

    async def play(service: MetadataService) -> None:
        pace = Pace()
        found, boards, published_s = await nodes(service, NOTICES), {}, {}
        with ExitStack() as stack:
            for name, endpoint in found.items():
                boards[name] = Stamped()
                stack.enter_context(
                    Watcher(endpoint, boards[name], provider=cloud, jitter=lambda: 0.0)
                )
            for name in found:  # the third of GCP hangs
                await until(lambda name=name: service.requests(name) >= 3)
            for name in found:  # spread over one interval, since all nodes ask together
                published_s[name] = time.monotonic()
                service.publish(name, lead_s=120.0)
                await asyncio.sleep(pace.interval_s / NOTICES)
            for name in found:
                await until(lambda name=name: boards[name].at_s)
        delays = [boards[name].at_s[0] - published_s[name] for name in found]
        assert [len(board.at_s) for board in boards.values()] == [1] * NOTICES
        assert min(delays) > 0.0
        assert median(delays) <= bound_s, sorted(delays)

    run(cloud, play)


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_the_provider_is_found_out(cloud: str) -> None:
    async def play(service: MetadataService) -> None:
        (endpoint,) = (await nodes(service, 1)).values()
        service.publish("node-0", lead_s=120.0)
        board = Stamped()
        with Watcher(endpoint, board, provider="auto", pace=Pace(interval_s=0.2)):
            await until(lambda: board.at_s)
        (notice,) = [found for found in board._standing() if isinstance(found, Notice)]
        assert notice.provider == cloud

    run(cloud, play)


def test_behind_the_hop_limit_aws_is_found_out_as_well() -> None:
    async def main() -> None:
        settings = AwsSettings(tokens_required=False, hops=1)
        async with MetadataService(provider="aws", settings=settings) as service:
            (endpoint,) = (await nodes(service, 1)).values()
            service.publish("node-0", lead_s=120.0)
            board = Stamped()
            pace = Pace(interval_s=0.2, timeout_s=0.3)
            with Watcher(endpoint, board, provider="auto", pace=pace):
                await until(lambda: board.at_s)

    asyncio.run(main())


def test_a_hanging_request_is_broken_off_when_the_watch_ends() -> None:
    async def play(service: MetadataService) -> None:
        (endpoint,) = (await nodes(service, 1)).values()
        with Watcher(endpoint, NoticeBoard(), provider="gcp"):
            await until(lambda: service.requests("node-0") >= 3)
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 0.9

    run("gcp", play)


# --- one exchange ---------------------------------------------------------------------------


@contextmanager
def serving(*parts: bytes, closes: bool = True) -> Iterator[str]:
    """Reads one request, sends the parts, and closes, or waits for the client to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError), listener.accept()[0] as client:
                request = b""
                while b"\r\n\r\n" not in request and (part := client.recv(4096)):
                    request += part
                for part in parts:
                    client.sendall(part)
                while not closes and client.recv(4096):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def exchanged(endpoint: str, timeout_s: float = 5.0) -> Outcome:
    wire = Wire(endpoint)
    try:
        return wire.exchange(Request(path="/x", timeout_s=timeout_s))
    finally:
        wire.close()


HEAD = b"HTTP/1.1 200 OK\r\n"
WHOLE = {
    "a length": [HEAD + b"Content-Length: 4\r\n\r\nTRUE"],
    "a length, in pieces": [HEAD[:7], HEAD[7:] + b"content-length: 4\r\n\r", b"\nTR", b"UE"],
    "chunks": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nTR\r\n", b"2\r\nUE\r\n0\r\n\r\n"],
    "more than its length": [HEAD + b"Content-Length: 4\r\n\r\nTRUE, but"],
}
UNTIL_CLOSED = {
    "no length": [HEAD + b"X: y\r\n\r\nTR", b"UE"],
    "an old protocol": [b"HTTP/1.0 200 OK\r\n\r\nTRUE"],
}


@pytest.mark.parametrize(
    ("name", "closes"),
    [(name, True) for name in [*WHOLE, *UNTIL_CLOSED]] + [(name, False) for name in WHOLE],
)
def test_an_answer_is_read_whole(name: str, closes: bool) -> None:
    with serving(*(WHOLE | UNTIL_CLOSED)[name], closes=closes) as endpoint:
        answer = exchanged(endpoint)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.body) == (200, b"TRUE")
    assert answer.sent.now_s <= answer.received.now_s


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "RemoteDisconnected"),
        ([b"HTTP/1.1 404"], "RemoteDisconnected"),
        ([b"HTTP/1.1 404 Not Found\r\nX: y\r\n"], "RemoteDisconnected"),
        ([HEAD + b"Content-Length: 9\r\n\r\nTRUE"], "IncompleteRead"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nTRUE\r\n"], "IncompleteRead"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "BadStatusLine"),
        ([b"\x00\xff" * 30 + b"\r\n\r\n"], "BadStatusLine"),
        ([HEAD + b"X: y\r\n" * 200 + b"\r\n"], "HTTPException"),
        ([HEAD + b"Content-Length: 9000000\r\n\r\n", b"x" * 2_000_000], "longer than"),
        ([HEAD + b"X: " + b"y" * 2_000_000], "longer than"),
    ],
)
def test_what_is_no_whole_answer_is_a_failure(parts: list[bytes], why: str) -> None:
    with serving(*parts) as endpoint:
        failure = exchanged(endpoint)
    assert isinstance(failure, Failure), failure
    assert not failure.timed_out
    assert why in failure.why


def test_an_exchange_has_a_deadline_and_a_refusal_is_none() -> None:
    with serving(HEAD + b"Content-Length: 9\r\n\r\nTRUE", closes=False) as endpoint:
        began_s = time.monotonic()
        failure = exchanged(endpoint, timeout_s=0.2)
    assert isinstance(failure, Failure)
    assert failure.timed_out
    assert 0.2 <= time.monotonic() - began_s < 2.0
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        refused = exchanged(f"http://127.0.0.1:{reserved.getsockname()[1]}")
    assert isinstance(refused, Failure)
    assert ("Refused" in refused.why, refused.timed_out) == (True, False)


def test_the_prefix_and_the_host_are_those_of_the_endpoint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        wire = Wire(f"http://{host}/mock/")
        thread = threading.Thread(
            target=wire.exchange, args=[Request(method="PUT", path="/latest", timeout_s=5.0)]
        )
        thread.start()
        with listener.accept()[0] as client:
            request = client.recv(4096).decode()
            client.sendall(HEAD + b"Content-Length: 0\r\n\r\n")
        thread.join()
        wire.close()
    assert request.startswith("PUT /mock/latest HTTP/1.1\r\n")
    assert f"Host: {host}\r\n" in request


def test_a_stopped_wire_does_nothing_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire = Wire(f"http://127.0.0.1:{listener.getsockname()[1]}")
        wire.stop()
        for _ in range(2):
            with pytest.raises(Stopped):
                wire.exchange(Request(path="/", timeout_s=5.0))
            with pytest.raises(Stopped):
                wire.sleep_until(time.monotonic() + 60.0)
        wire.close()
