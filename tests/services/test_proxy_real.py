"""Which backend is used, and a real server that is started and stopped: here, one of Python."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from proxied import running, serving_api
from standing_in import SERVER, program
from waiting import until

from chaosspot.services.proxy import ProxyError, ProxyService, real
from chaosspot.services.proxy.backend import choose, serving
from chaosspot.services.proxy.client import BackendError


def children() -> list[psutil.Process]:
    """Programs of that name that this process has started."""
    mine = psutil.Process().children()
    return [child for child in mine if any(real.PROGRAM in word for word in child.cmdline())]


def nothing(folder: Path) -> Mapping[str, str]:
    return {"PATH": str(folder)}


def test_the_embedded_one_is_used_unless_told(tmp_path: Path) -> None:
    with_program = program(tmp_path, SERVER)
    assert choose("embedded", with_program).real is None
    assert choose("auto", nothing(tmp_path / "none")).real is None
    for backend in ("real", "auto"):
        assert choose(backend, with_program).real == real.Real(program=tmp_path / real.PROGRAM)
        at_url = {**with_program, real.URL_VARIABLE: "http://h:1"}
        assert choose(backend, at_url).real == real.Real(url="http://h:1")


def test_bad_choices_are_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="'real': no toxiproxy-server on PATH, and CHAOSSPOT_"):
        choose("real", nothing(tmp_path))
    with pytest.raises(ValueError, match="'other': expected one of embedded, real, auto"):
        choose("other", nothing(tmp_path))
    for url in ("h:1", "ftp://h:1", "http://h:99999", "http://h: 1", "http://a:b@h:1", "http://"):
        with pytest.raises(ValueError, match=rf"CHAOSSPOT_TOXIPROXY_URL='{url}': expected http://"):
            choose("real", {real.URL_VARIABLE: url})


def test_the_embedded_one_says_what_it_is(tmp_path: Path) -> None:
    async def body() -> None:
        choice = choose("embedded", nothing(tmp_path))
        async with serving(choice, environ=nothing(tmp_path)) as (control, what):
            assert isinstance(control, ProxyService)
            assert what.startswith("embedded, chaosspot ")

    running(body)


def test_a_program_is_started_used_and_stopped(tmp_path: Path) -> None:
    environ = {**program(tmp_path, SERVER), "MARK": "here"}
    log = tmp_path / "log"

    async def body() -> None:
        choice = choose("real", environ)
        async with serving(choice, environ=environ, log=log) as (control, what):
            assert what == "toxiproxy-server 2.12.0"
            (child,) = children()
            assert child.environ()["MARK"] == "here"
            await control.create("p", upstream="127.0.0.1:9")
            with pytest.raises(ProxyError, match="only the embedded proxy has it"):
                await control.add_toxic("p", type="corrupt", attributes={"every": 100})
        assert not child.is_running()

    running(body, within_s=60.0)
    assert "stopped" in log.read_text()


def test_one_that_runs_is_used_and_left_alone() -> None:
    async def body() -> None:
        async with serving_api() as (service, url):
            environ = {real.URL_VARIABLE: url}
            async with serving(choose("real", environ), environ=environ) as (control, _):
                await control.create("p", upstream="127.0.0.1:9")
            assert list(await service.proxies()) == ["p"]

    running(body)


def test_one_that_is_not_there_is_said_at_once() -> None:
    async def body() -> None:
        environ = {real.URL_VARIABLE: "http://127.0.0.1:1"}
        with pytest.raises(BackendError, match=r"http://127\.0\.0\.1:1/version"):
            async with serving(choose("real", environ), environ=environ):
                pass

    running(body)


def test_one_that_ends_at_once_is_shown_with_its_last_words(tmp_path: Path) -> None:
    environ = program(tmp_path, "#!/bin/sh\necho it does not work >&2\nexit 7\n")

    async def body() -> None:
        with pytest.raises(BackendError, match="exited with 7: it does not work"):
            async with serving(choose("real", environ), environ=environ, log=tmp_path / "log"):
                pass

    running(body)


def test_one_that_cannot_be_executed_is_said(tmp_path: Path) -> None:
    environ = program(tmp_path, "#!/nowhere/interpreter\n")

    async def body() -> None:
        with pytest.raises(BackendError, match=r"cannot start .*toxiproxy-server"):
            async with serving(choose("real", environ), environ=environ):
                pass

    running(body)


def test_one_that_never_answers_is_given_up_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "START_S", 0.2)
    environ = program(tmp_path, "#!/bin/sh\nwhile :; do /bin/sleep 1; done\n")

    async def body() -> None:
        with pytest.raises(BackendError, match=r"does not answer after 0\.2 s"):
            async with serving(choose("real", environ), environ=environ):
                pass
        assert children() == []

    running(body)


def test_one_that_hangs_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle, it neither answers nor heeds SIGTERM: cleaning up still ends."""
    monkeypatch.setattr(real, "STOP_S", 0.2)
    environ = program(tmp_path, SERVER)

    async def body() -> None:
        found = choose("real", environ).real
        assert found is not None
        async with real.running(found, environ=environ, timeout_s=1.0) as client:
            (child,) = children()
            child.send_signal(signal.SIGSTOP)
            with pytest.raises(BackendError, match="backend hung"):
                async with asyncio.timeout(5.0):
                    await client.proxies()
        await until(lambda: not child.is_running())

    running(body, within_s=60.0)


def test_one_that_dies_is_an_error(tmp_path: Path) -> None:
    environ = program(tmp_path, SERVER)

    async def body() -> None:
        async with serving(choose("real", environ), environ=environ) as (control, _):
            (child,) = children()
            child.kill()
            child.wait()
            with pytest.raises(BackendError):
                await control.proxies()

    running(body, within_s=60.0)
