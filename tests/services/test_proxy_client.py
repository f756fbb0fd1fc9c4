"""Our client against a server, and against what is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from proxied import Reader, Writer, connect, proxying, running, server, serving_api

from chaosspot.services.proxy import Client, ProxyControl, ProxyError
from chaosspot.services.proxy.client import BackendError
from chaosspot.services.proxy.toxics.latency import Latency


def with_client(body: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with serving_api() as (_, url), Client(url) as client:
            await body(client)

    running(main)


async def over_everything(control: ProxyControl) -> None:
    """What works the same whichever server is controlled."""
    async with server() as upstream, server() as other:
        made = await control.create("p", upstream=upstream)
        assert (made.enabled, made.upstream, made.toxics) == (True, upstream, ())
        assert await control.proxies() == {"p": made} != {}
        assert await control.proxy("p") == made
        toxic = await control.add_toxic(
            "p", type="latency", stream="upstream", toxicity=0.25, attributes={"latency": 5}
        )
        assert (toxic.name, toxic.attributes) == ("latency_upstream", Latency(latency=5))
        changed = await control.update_toxic("p", toxic.name, attributes={"jitter": 2})
        assert changed.attributes == Latency(latency=5, jitter=2)
        assert changed.toxicity == 0.25
        always = await control.update_toxic("p", toxic.name, toxicity=1.0)
        assert (always.toxicity, always.attributes) == (1.0, changed.attributes)
        assert (await control.proxy("p")).toxics == (always,)
        await control.remove_toxic("p", toxic.name)
        assert not (await control.disable("p")).enabled
        assert (await control.enable("p")).listen == made.listen
        assert (await control.update("p", upstream=other)).upstream == other
        assert (await control.update("p", listen="127.0.0.1:0")).listen != made.listen
        await control.disable("p")
        await control.add_toxic("p", type="noop")
        await control.reset()
        after = await control.proxy("p")
        assert (after.enabled, after.toxics) == (True, ())
        await control.remove("p")
        assert await control.proxies() == {}
        for failing, status in (
            (control.proxy("p"), 404),
            (control.remove_toxic("p", "t"), 404),
            (control.create("bad", upstream="http://h:1"), 400),
            (control.create("a b", upstream=upstream), 400),
            (control.add_toxic("p", type="nothing"), 400),
        ):
            with pytest.raises(ProxyError) as told:
                await failing
            assert told.value.status == status
        await control.create("p", upstream=upstream)
        with pytest.raises(ProxyError, match="proxy already exists") as again:
            await control.create("p", upstream=upstream)
        assert again.value.status == 409


def test_the_client_and_the_service_are_controlled_alike() -> None:
    with_client(over_everything)

    async def main() -> None:
        async with proxying() as (service, _):
            await service.remove("p")
            await over_everything(service)

    running(main)


def test_the_version_in_all_its_forms() -> None:
    async def body() -> None:
        for text in ('{"version": "2.12.0"}\n', '{"version": "2.12.0"}\\n', "2.12.0"):
            async with answering(200, text) as url, Client(url) as client:
                assert await client.version() == "2.12.0"

    running(body)


def test_servers_that_tell_more_are_understood() -> None:
    """The real server leaks a field, and says ``null`` where there are no toxics."""
    told = {"name": "p", "listen": "l", "upstream": "u", "enabled": True, "Logger": {}}

    async def body() -> None:
        answer = json.dumps({"p": {**told, "toxics": None}})
        async with answering(200, answer) as url, Client(url) as client:
            assert (await client.proxies())["p"].toxics == ()

    running(body)


@pytest.mark.parametrize("kind", ["reset_now", "half_close", "corrupt", "refuse"])
def test_what_toxiproxy_does_not_have_is_refused(kind: str) -> None:
    async def body(client: Client) -> None:
        await client.create("p", upstream="127.0.0.1:9")
        with pytest.raises(ProxyError, match=f"type='{kind}': only the embedded proxy has it"):
            await client.add_toxic("p", type=kind)
        assert (await client.proxy("p")).toxics == ()

    with_client(body)


@pytest.mark.parametrize("name", ["victim#1", "victim?x", "a/b", "..", "a b", ""])
def test_names_that_reach_another_proxy_are_refused(name: str) -> None:
    async def body(client: Client) -> None:
        await client.create("victim", upstream="127.0.0.1:9")
        for act in (client.remove, client.proxy, client.disable):
            with pytest.raises(ProxyError, match="name="):
                await act(name)
        with pytest.raises(ProxyError, match="name="):
            await client.remove_toxic("victim", name)
        assert list(await client.proxies()) == ["victim"]

    with_client(body)


def answering(status: int, text: str) -> HttpServer:
    return HttpServer(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n{text}")


class HttpServer:
    """Answers whatever it is asked, as a context; None: not at all."""

    def __init__(self, answer: str | None) -> None:
        async def serve(reader: Reader, writer: Writer) -> None:
            await reader.readuntil(b"\r\n\r\n")
            if answer is None:
                await reader.read()
            else:
                writer.write(answer.encode())

        self._server = server(serve)

    async def __aenter__(self) -> str:
        return f"http://{await self._server.__aenter__()}"

    async def __aexit__(self, *error: object) -> None:
        await self._server.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (
            500,
            '{"error":"listen tcp 127.0.0.1:1: bind: address already in use","status":500}',
            "already in use",
        ),
        (503, "<html><head><title>Timeout</title></head></html>", "503 <html><head><title>Timeout"),
        (200, "<html>", "not Toxiproxy's"),
        (200, '{"name": 5}', "not Toxiproxy's"),
        (301, "", "301"),
    ],
)
def test_a_server_that_fails_is_an_error(status: int, text: str, words: str) -> None:
    async def body() -> None:
        async with answering(status, text) as url, Client(url) as client:
            for act in (client.enable, client.proxy):
                with pytest.raises(BackendError, match=words):
                    await act("p")

    running(body)


def test_a_server_that_hangs_is_said_to_in_time() -> None:
    async def body() -> None:
        async with HttpServer(None) as url, Client(url, timeout_s=0.1) as client:
            with pytest.raises(BackendError, match=r"GET .*/proxies: backend hung for 0\.1 s"):
                await client.proxies()

    running(body)


def test_a_server_that_is_not_there_is_an_error() -> None:
    async def body() -> None:
        async with Client("http://127.0.0.1:1") as client:
            with pytest.raises(BackendError, match=r"GET http://127\.0\.0\.1:1/proxies: "):
                await client.proxies()

    running(body)


def test_clients_have_a_server_each() -> None:
    async def body() -> None:
        async with (
            serving_api() as (_, one),
            serving_api() as (_, two),
            Client(one) as first,
            Client(two) as second,
        ):
            await first.create("p", upstream="127.0.0.1:9")
            assert await second.proxies() == {}

    running(body)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    async def body(client: Client) -> None:
        assert await client.version() == "2.12.0"

    with_client(body)


def test_bad_urls_and_a_client_that_is_not_open() -> None:
    for url in ("127.0.0.1:8474", "ftp://h:1", "http://"):
        with pytest.raises(ValueError, match="url="):
            Client(url)
    with pytest.raises(RuntimeError, match="not open"):
        asyncio.run(Client("http://127.0.0.1:1").proxies())


def test_what_the_client_makes_works() -> None:
    async def body(client: Client) -> None:
        async with server() as upstream:
            made = await client.create("p", upstream=upstream)
            reader, writer = await connect(made.listen)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()

    with_client(body)
