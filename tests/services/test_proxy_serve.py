"""The proxy server that stands alone, as users start it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import CHAOSSPOT, usual_signals

from chaosspot.services.proxy.serve import Options, serve

_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@contextmanager
def serving(*argv: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [CHAOSSPOT, "serve", "proxy", *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=usual_signals,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def get(url: str) -> Any:
    with _open(url, timeout=5) as answer:
        return json.load(answer)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_takes_toxiproxys_flags_and_ends_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    config = tmp_path / "proxies.json"
    config.write_text(
        '[{"name": "one", "upstream": "127.0.0.1:9"},'
        ' {"name": "two", "listen": "127.0.0.1:0", "upstream": "h:1", "enabled": false}]'
    )
    with serving("-host", "127.0.0.1", "-port=0", "-config", config, "-seed", 7) as process:
        said = line(process)
        assert said.startswith("api  http://127.0.0.1:")
        base = said.removeprefix("api  ")
        assert line(process).startswith("one  127.0.0.1:")
        assert line(process) == "two  127.0.0.1:0  ->  h:1"
        proxies = get(base + "/proxies")
        assert {name: each["enabled"] for name, each in proxies.items()} == {
            "one": True,
            "two": False,
        }
        host, _, port = proxies["one"]["listen"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as client:
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
            assert client.recv(1) == b""
    assert (process.returncode, out, err) == (0, "stopped\n", "")


def failing(*argv: object) -> tuple[int, str]:
    with serving(*argv) as process:
        _, err = process.communicate(timeout=30)
    return process.returncode, err


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: address already"):
            asyncio.run(serve(Options(port=port), write=print))
        config = tmp_path / "proxies.json"
        config.write_text(
            f'[{{"name": "p", "listen": "127.0.0.1:{port}", "upstream": "127.0.0.1:9"}}]'
        )
        said = f"{config}: p: listen tcp 127.0.0.1:{port}: bind: address already in use"
        assert failing("-port", 0, "-config", config) == (
            2,
            f"chaosspot: {said} (proxy 1 of 1)\n",
        )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read "),
        ("[", "truncated"),
        ('{"name": "p"}', "Expected `array`"),
        ('[{"name": "p"}]', "missing required field `upstream`"),
        ('[{"name": "p", "upstream": "h:1", "port": 1}]', "unknown field `port`"),
        ('[{"name": "p", "upstream": "http://h"}]', "upstream='http://h': expected host:port"),
        ('[{"name": "a b", "upstream": "h:1"}]', "name='a b'"),
    ],
)
def test_a_bad_configuration_is_said(text: str | None, words: str, tmp_path: Path) -> None:
    config = tmp_path / "proxies.json"
    if text is not None:
        config.write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)) as told:
        asyncio.run(serve(Options(port=0, config=config), write=print))
    assert str(config) in str(told.value)


def test_addresses_that_others_may_reach_must_be_allowed() -> None:
    words = "host='0.0.0.0': expected a loopback address, or beyond_loopback"
    assert failing("-host", "0.0.0.0", "-port", 0) == (2, f"chaosspot: {words}\n")


def test_a_host_that_is_none_is_said() -> None:
    with pytest.raises(OSError, match=r"lookup nowhere\.invalid: no such host"):
        asyncio.run(serve(Options(host="nowhere.invalid", port=0), write=print))


def test_it_is_where_clients_of_toxiproxy_look_for_it() -> None:
    usual = Options()
    assert (usual.host, usual.port, usual.metrics) == ("localhost", 8474, False)


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="port=70000"):
        Options(port=70000)
