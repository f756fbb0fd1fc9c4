"""``chaosspot metadata``: the commands over the control of a metadata service."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from commands import CHAOSSPOT, cli_in, usual_signals
from typer.testing import CliRunner

from chaosspot import misbehaviour as m
from chaosspot.cli import app
from chaosspot.services.metadata import Instance, MetadataService
from chaosspot.services.metadata.control import Control

Command = Callable[..., Result]


class Served:
    """A service with its control, on a loop of its own; ``gone`` had a listener and has none."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.service: MetadataService
        self.url = ""

    def ask(self, what: Callable[[], object]) -> object:
        async def on_loop() -> object:
            return what()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(timeout=10)


@contextmanager
def on_its_loop() -> Iterator[Served]:
    served = Served()
    thread = threading.Thread(target=served.loop.run_forever)
    thread.start()
    leave = asyncio.Event()
    ready = threading.Event()

    async def serve() -> None:
        async with MetadataService() as served.service, Control(served.service) as control:
            for name in ("node-0", "node-1", "gone"):
                await served.service.add(Instance(node=name, zone="a", family="f", pool="spot"))
            await served.service.remove("gone")
            served.url = control.endpoint
            ready.set()
            await leave.wait()

    serving = asyncio.run_coroutine_threadsafe(serve(), served.loop)
    try:
        assert ready.wait(timeout=10)
        yield served
    finally:
        served.loop.call_soon_threadsafe(leave.set)
        serving.result(timeout=10)
        served.loop.call_soon_threadsafe(served.loop.stop)
        thread.join()
        served.loop.close()


@pytest.fixture
def served() -> Iterator[Served]:
    with on_its_loop() as found:
        yield found


@pytest.fixture
def command() -> Command:
    runner = CliRunner()

    def run(*argv: object) -> Result:
        return runner.invoke(app, ["metadata", *map(str, argv)])

    return run


def notices(served: Served, node: str) -> list[str]:
    found = served.ask(lambda: [notice.action for notice in served.service.notices(node)])
    assert isinstance(found, list)
    return found


def test_notices_are_published_listed_withdrawn_and_ended(served: Served, command: Command) -> None:
    told = command("publish", served.url, "node-1", "--lead", 60, "--action", "stop")
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout.startswith("node-1  due ")
    assert (notices(served, "node-0"), notices(served, "node-1")) == ([], ["stop"])

    first, second, notice = command("list", served.url).stdout.splitlines()
    assert first.startswith("node-0  http://127.0.0.1:")
    assert second.endswith("0 requests, 0 told of a notice")
    assert notice.startswith("  stop  due ")

    told = command("withdraw", served.url, "--all")
    assert told.stdout.splitlines() == [
        "node-0  nothing was announced",
        "node-1  stop: withdrawn",
    ]
    assert notices(served, "node-1") == []

    command("publish", served.url, "--all", "--action", "rebalance")
    command("publish", served.url, "node-0")
    assert notices(served, "node-0") == ["rebalance", "terminate"]
    told = command("end", served.url, "node-0", "--action", "terminate")
    assert told.stdout == "node-0  terminate: over\n"
    assert (notices(served, "node-0"), notices(served, "node-1")) == (["rebalance"], ["rebalance"])


def test_json_says_what_the_control_says(served: Served, command: Command) -> None:
    told = json.loads(command("publish", served.url, "node-0", "--json").stdout)
    (deadline_wall_s,) = told["deadlines"].values()
    listed = json.loads(command("list", served.url, "--json").stdout)
    assert [node["node"] for node in listed["nodes"]] == ["node-0", "node-1"]
    assert listed["nodes"][0]["notices"][0]["deadline_wall_s"] == deadline_wall_s
    assert listed["misbehaviours"] == []
    closed = json.loads(command("end", served.url, "--all", "--json").stdout)
    assert closed == {"closed": {"node-0": ["terminate"], "node-1": []}}


def test_a_service_misbehaves_until_it_is_told_to_stop(served: Served, command: Command) -> None:
    how = "status,status=503,rate=0.5,nodes=node-0"
    assert command("misbehave", served.url, how).stdout == "misbehaviour 1\n"
    (active,) = served.ask(served.service.misbehaviours)  # type: ignore[misc]
    assert active.what == m.Status(status=503, rate=0.5, nodes="node-0")
    last = command("list", served.url).stdout.splitlines()[-1]
    assert last == "misbehaviour 1  kind=status, nodes=node-0, rate=0.5, status=503"
    assert json.loads(command("behave", served.url, 1, "--json").stdout) == {}
    assert served.ask(served.service.misbehaviours) == ()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["publish", "URL"], "name some nodes, or say --all"),
        (["publish", "URL", "node-0", "--all"], "name some nodes, or say --all"),
        (["publish", "URL", "node-9"], "node='node-9': it has no listener; nodes with one: node-0"),
        (["publish", "URL", "node-1", "gone"], "node='gone': it is gone"),
        (["publish", "URL", "node-1", "--lead", "-1"], "lead_s=-1.0: expected seconds, 0 to 86400"),
        (["publish", "URL", "node-1", "--lead", "86401"], "lead_s=86401.0: expected seconds"),
        (["publish", "URL", "node-1", "--lead", "nan"], "--lead nan: expected seconds"),
        (["publish", "URL", "node-1", "--lasts", "0"], "lasts_s=0.0: expected seconds above 0"),
        (["publish", "URL", "node-1", "--action", "preempt"], "action='preempt': expected one of"),
        (["publish", "URL", "node-0", "--action", "stop"], "withdraw that first"),
        (["withdraw", "URL", "node-0", "node-9"], "node='node-9': it has no listener"),
        (["end", "URL", "--all", "--action", "preempt"], "action='preempt': expected one of"),
        (["misbehave", "URL", "rude"], "'rude': no kind 'rude'; valid: latency, "),
        (["misbehave", "URL", "status,status=299"], "Invalid enum value 299"),
        (["behave", "URL", "7"], "misbehaviour=7: not in force; those in force: none"),
        (["list", "URL/nothing"], "no such path: /nothing/nodes"),
        (["list", "127.0.0.1:80"], "is no address: expected http://host:port"),
        (["list", "http://127.0.0.1:no"], "is no address"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    served: Served, command: Command, argv: list[str], why: str
) -> None:
    served.ask(lambda: served.service.publish("node-0", lead_s=60.0))
    told = command(*(word.replace("URL", served.url) for word in argv))
    assert (told.exit_code, told.stdout) == (2, "")
    (line,) = told.stderr.splitlines()
    assert line.startswith("chaosspot: ")
    assert why in line
    assert (notices(served, "node-0"), notices(served, "node-1")) == (["terminate"], [])
    assert served.ask(served.service.misbehaviours) == ()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "nobody listens at http://127.0.0.1:"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "is not the control of a metadata service"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "is not the control of a metadata service"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "is not the control of a metadata service"),
        (b"SSH-2.0-x\r\n", "does not speak HTTP"),
    ],
)
def test_who_is_no_control_is_named(command: Command, answer: bytes | None, why: str) -> None:
    def serve() -> None:
        peer, _ = listening.accept()
        with peer:
            peer.recv(65536)
            peer.sendall(answer or b"")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        if answer is None:
            listening.close()
            told = command("list", url)
        else:
            thread = threading.Thread(target=serve)
            thread.start()
            told = command("list", url)
            thread.join()
    assert told.exit_code == 2
    (line,) = told.stderr.splitlines()
    assert why in line


def test_what_serve_says_is_what_the_commands_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = cli_in(tmp_path, monkeypatch)
    argv = [CHAOSSPOT, "serve", "metadata", "--cloud", "azure", "--nodes", "2", "--json"]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, preexec_fn=usual_signals
    ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["control"]
            told = cli("metadata", "publish", url, "node-1", "--lead", 30)
            assert (told.returncode, told.stderr) == (0, "")
            assert told.stdout.startswith("node-1  due ")
            told = cli("metadata", "publish", url, "node-2")
            assert (told.returncode, told.stderr.count("\n")) == (2, 1)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)
