"""Links through a Toxiproxy server that the user runs: it is used, and left as it was found."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from commands import CHAOSSPOT, Cli, attacking, cli_in, of_run, read_until, within

pytestmark = pytest.mark.long

PLAN = """
[[cluster.group]]
count = 2
[[fault]]
kind = "network"
link = "coordinator"
on = { at_step = 7 }
duration_s = %s
toxic = [{ type = "latency", attributes = { latency = 20 } }]
"""
REAL = ("--proxy-backend", "real")
OTHERS = ("mine", "node-0.coordinator", "chaosspot-20260101T000000-1-00000000.node-0.coordinator")


class Server:
    """A Toxiproxy server in a process that has nothing to do with the run."""

    def __init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CHAOSSPOT_")}
        self.process = subprocess.Popen(
            [CHAOSSPOT, "serve", "proxy", "-port", "0", "-proxy-metrics"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout
        self.url = self.process.stdout.readline().split()[1]

    def ask(self, method: str, path: str, given: object = None) -> Any:
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
        connection.request(method, path, None if given is None else json.dumps(given))
        return json.loads(connection.getresponse().read() or "null")

    def names(self) -> set[str]:
        return set(self.ask("GET", "/proxies"))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    found = Server()
    for name in OTHERS:
        found.ask("POST", "/proxies", {"name": name, "upstream": "127.0.0.1:9"})
    monkeypatch.setenv("CHAOSSPOT_TOXIPROXY_URL", found.url)
    yield found
    found.stop()
    assert found.process.stdout
    found.process.stdout.close()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture
def plan(tmp_path: Path) -> Callable[[float], str]:
    def write(duration_s: float) -> str:
        path = tmp_path / "plan.toml"
        path.write_text(PLAN % duration_s)
        return str(path)

    return write


def attack(cli: Cli, plan: str) -> subprocess.CompletedProcess[str]:
    return cli("attack", plan, "--trainer", "minimal", *REAL)


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("127.0.0.1:8474", 2, "CHAOSSPOT_TOXIPROXY_URL='127.0.0.1:8474': expected http://"),
        ("http://127.0.0.1:what", 2, "'http://127.0.0.1:what'"),
        ("http://me:secret@127.0.0.1:1", 2, "expected http://host:port"),
        ("http://127.0.0.1:1", 4, "http://127.0.0.1:1/version"),
        ("", 4, "no toxiproxy-server on PATH"),
    ],
)
def test_a_server_that_cannot_be_used_is_told_before_there_is_a_run(
    cli: Cli,
    plan: Callable[[float], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    code: int,
    words: str,
) -> None:
    monkeypatch.setenv("CHAOSSPOT_TOXIPROXY_URL", url)
    told = attack(cli, plan(1.0))
    assert (told.returncode, words in told.stderr) == (code, True), told.stderr
    assert list((tmp_path / "work").iterdir()) == []


def test_what_is_no_toxiproxy_is_told_before_there_is_a_run(
    cli: Cli, plan: Callable[[float], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(
        [CHAOSSPOT, "serve", "metadata", "--json"], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        url = json.loads(other.stdout.readline())["control"]
        monkeypatch.setenv("CHAOSSPOT_TOXIPROXY_URL", url)
        told = attack(cli, plan(1.0))
        other.kill()
    assert (told.returncode, url in told.stderr) == (4, True), told.stderr
    assert list((tmp_path / "work").iterdir()) == []


def test_a_run_takes_its_proxies_away_and_no_others(
    cli: Cli,
    plan: Callable[[float], str],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # a company's, which is not asked
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    told = attack(cli, plan(1.0))
    assert told.returncode == 0, told.stderr + told.stdout
    history = next((tmp_path / "work" / "runs").glob("*/history.jsonl")).read_text()
    assert "toxiproxy-server 2.12.0" in history
    assert server.names() == set(OTHERS)
    assert not list((tmp_path / "state" / "leases").glob("[!.]*"))


def test_the_guardian_takes_away_what_a_killed_harness_had_there(
    plan: Callable[[float], str], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(state))
    with attacking(tmp_path, *REAL, schedule=plan(60.0)) as process:
        read_until(process, "(step")
        (lease,) = (path.name for path in (state / "leases").glob("[!.]*"))
        ours = {f"chaosspot-{lease}.{node}.coordinator" for node in ("node-0", "node-1")}
        assert server.names() == {*OTHERS, *ours}
        process.kill()
        process.wait()
        assert within(5.0, lambda: of_run(state) == [] and server.names() == set(OTHERS))
    told = subprocess.run([CHAOSSPOT, "cleanup"], capture_output=True, text=True, check=True)
    said = " ".join(told.stdout.split())
    assert f"removed 2 proxies at {server.url}" in said, said
    assert "its guardian cleaned up" in said


def test_ctrl_c_takes_them_away(
    plan: Callable[[float], str], server: Server, tmp_path: Path
) -> None:
    with attacking(tmp_path, *REAL, schedule=plan(60.0)) as process:
        read_until(process, "(step")
        assert len(server.names()) == len(OTHERS) + 2
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "everything is healed" in said
    assert server.names() == set(OTHERS)


@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
def test_the_next_start_takes_away_what_nobody_was_left_to(
    plan: Callable[[float], str],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gone: bool,
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(state))
    with attacking(tmp_path, *REAL, schedule=plan(60.0)) as process:
        read_until(process, "(step")
        everybody = [psutil.Process(process.pid)]
        everybody += everybody[0].children(recursive=True)
        for member in everybody:  # so that none can act on the death of another
            member.suspend()
        for member in everybody:
            member.kill()
        process.wait()
        assert within(5.0, lambda: not any(member.is_running() for member in everybody))
        assert len(server.names()) == len(OTHERS) + 2
        if gone:
            server.stop()
        began_s = time.monotonic()
        told = subprocess.run([CHAOSSPOT, "cleanup"], capture_output=True, text=True, check=False)
        said = " ".join(told.stdout.split())
        assert told.returncode == 0, told.stderr + said
        assert "PROBLEM" not in said
        if gone:
            assert time.monotonic() - began_s < 5.0
        else:
            assert "this start cleaned up" in said
            assert f"removed 2 proxies at {server.url}" in said
            assert server.names() == set(OTHERS)
    assert not list((state / "leases").glob("[!.]*"))
    again = subprocess.run([CHAOSSPOT, "cleanup"], capture_output=True, text=True, check=True)
    assert "proxies" not in again.stdout


@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_a_server_that_fails_in_the_middle_makes_no_pass(
    plan: Callable[[float], str],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(state))
    with attacking(tmp_path, *REAL, schedule=plan(2.0)) as process:
        read_until(process, "(step")
        if how == "dies":
            server.stop()
        else:
            server.process.send_signal(signal.SIGSTOP)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 3, said
        assert server.url in said
        assert of_run(state) == []
    if how == "dies":
        assert not list((state / "leases").glob("[!.]*"))
        return
    server.process.send_signal(signal.SIGCONT)
    assert len(server.names()) == len(OTHERS) + 2
    told = subprocess.run([CHAOSSPOT, "cleanup"], capture_output=True, text=True, check=True)
    assert f"removed 2 proxies at {server.url}" in " ".join(told.stdout.split())
    assert server.names() == set(OTHERS)


def test_two_runs_at_once_share_it(plan: Callable[[float], str], server: Server) -> None:
    path = Path(plan(2.0))
    with (
        attacking(path.parent / "a", *REAL, schedule=str(path)) as one,
        attacking(path.parent / "b", *REAL, schedule=str(path)) as other,
    ):
        assert [each.wait(90) for each in (one, other)] == [0, 0]
    assert server.names() == set(OTHERS)
