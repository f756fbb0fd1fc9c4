"""toxiproxy-python 0.1.1, unchanged, over its whole surface; and the fixture that hands it out."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from toxiproxy import Toxiproxy
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from chaosspot.services.proxy.hosted import hosted, toxiproxy_client

pytest_plugins = ["pytester"]


@pytest.fixture
def upstream() -> Iterator[str]:
    """HOST:PORT of an echo in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    while data := client.recv(4096):
                        client.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def echoed(listen: str) -> float:
    """How long an echo takes through there, in seconds."""
    host, _, port = listen.rpartition(":")
    began_s = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        return time.monotonic() - began_s


def test_servers_and_proxies(toxiproxy: Any, upstream: str) -> None:
    assert isinstance(toxiproxy, Toxiproxy)
    assert toxiproxy.running()
    assert toxiproxy.version() == b'{"version": "2.12.0"}\n'
    assert toxiproxy.proxies() == {}
    made = toxiproxy.create(upstream=upstream, name="one")
    assert (made.name, made.upstream, made.enabled) == ("one", upstream, True)
    echoed(made.listen)
    off = toxiproxy.create(upstream=upstream, name="two", listen="127.0.0.1:0", enabled=False)
    assert (off.enabled, off.listen) == (False, "127.0.0.1:0")
    assert sorted(toxiproxy.proxies()) == ["one", "two"]
    assert toxiproxy.get_proxy("one").listen == made.listen
    assert toxiproxy.get_proxy("three") is None
    with pytest.raises(ProxyExists):
        toxiproxy.create(upstream=upstream, name="one")
    assert toxiproxy.reset() is True
    assert toxiproxy.get_proxy("two").enabled
    assert toxiproxy.destroy(made) is True
    assert toxiproxy.destroy("no proxy") is False
    with pytest.raises(NotFound):
        made.destroy()
    toxiproxy.destroy_all()
    assert toxiproxy.proxies() == {}


def test_populate(toxiproxy: Any, upstream: str) -> None:
    given = [
        {"name": "one", "upstream": upstream, "listen": "127.0.0.1:0"},
        {"name": "two", "upstream": upstream, "listen": "127.0.0.1:0"},
    ]
    one, two = toxiproxy.populate(given)
    assert (one.name, two.name) == ("one", "two")
    same = [{"name": "one", "upstream": upstream, "listen": one.listen}]
    assert toxiproxy.populate(same) == []
    (moved,) = toxiproxy.populate([{**same[0], "upstream": "127.0.0.1:9"}])
    assert (moved.upstream, moved.listen) == ("127.0.0.1:9", one.listen)


def test_down_enable_disable(toxiproxy: Any, upstream: str) -> None:
    proxy = toxiproxy.create(upstream=upstream, name="p")
    with proxy.down():
        assert not toxiproxy.get_proxy("p").enabled
        with pytest.raises(ConnectionRefusedError):
            echoed(proxy.listen)
    echoed(proxy.listen)
    proxy.disable()
    assert not proxy.enabled
    proxy.enable()
    echoed(proxy.listen)


def test_toxics(toxiproxy: Any, upstream: str) -> None:
    proxy = toxiproxy.create(upstream=upstream, name="p")
    assert proxy.toxics() == {}
    proxy.add_toxic(type="latency", attributes={"latency": 50})
    proxy.add_toxic(
        type="bandwidth", stream="upstream", name="b", toxicity=0.5, attributes={"rate": 9}
    )
    assert sorted(proxy.toxics()) == ["b", "latency_downstream"]
    found = proxy.get_toxic("b")
    assert (found.type, found.stream, found.toxicity) == ("bandwidth", "upstream", 0.5)
    assert found.attributes == {"rate": 9}
    assert proxy.get_toxic("other") is None
    assert echoed(proxy.listen) >= 0.05
    with pytest.raises(ProxyExists):
        proxy.add_toxic(type="latency")
    for bad in (
        {"type": "latency", "name": "f", "attributes": {"latency": 0.05 * 1000}},
        {"type": "nothing"},
        {"type": "latency", "stream": "sideways"},
    ):
        with pytest.raises(InvalidToxic):
            proxy.add_toxic(**bad)
    assert proxy.destroy_toxic("latency_downstream") is True
    with pytest.raises(NotFound):
        proxy.destroy_toxic("latency_downstream")
    toxiproxy.reset()
    assert proxy.toxics() == {}


def test_what_the_client_makes_of_a_busy_port_changes_nothing(
    toxiproxy: Any, upstream: str
) -> None:
    with pytest.raises(KeyError, match="name"):
        toxiproxy.create(upstream=upstream, name="p", listen=upstream)
    assert toxiproxy.proxies() == {}


def test_an_upstream_that_is_no_address_is_accepted_by_http(toxiproxy: Any) -> None:
    proxy = toxiproxy.create(upstream="http://127.0.0.1", name="p")
    host, _, port = proxy.listen.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        assert client.recv(1) == b""


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "example.com")
    monkeypatch.delenv("no_proxy", raising=False)
    with toxiproxy_client() as client:
        assert client.proxies() == {}
        assert os.environ["NO_PROXY"] == "example.com,127.0.0.1"
    assert os.environ["NO_PROXY"] == "example.com"
    assert "no_proxy" not in os.environ


def test_what_the_class_knew_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(APIConsumer, "host", "10.0.0.1")
    monkeypatch.setattr(APIConsumer, "port", 1234)
    with toxiproxy_client() as client:
        assert APIConsumer.host == "127.0.0.1"
        assert client.running()
        with toxiproxy_client() as inner:
            inner.create(upstream="127.0.0.1:9", name="p")
        assert client.proxies() == {}
    assert (APIConsumer.host, APIConsumer.port) == ("10.0.0.1", 1234)
    with pytest.raises(ZeroDivisionError), toxiproxy_client():
        raise ZeroDivisionError
    assert (APIConsumer.host, APIConsumer.port) == ("10.0.0.1", 1234)


def test_a_hosted_server_leaves_no_thread_and_no_port() -> None:
    before = threading.active_count()
    with hosted() as url:
        port = int(url.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_the_fixture_in_somebodys_own_tests(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider")
    pytester.makepyfile("""
        def test_one(toxiproxy):
            toxiproxy.create(upstream="127.0.0.1:9", name="p")

        def test_two(toxiproxy):
            assert toxiproxy.proxies() == {}
    """)
    pytester.runpytest_subprocess("--chaos-seed", "3", timeout=60).assert_outcomes(passed=2)
