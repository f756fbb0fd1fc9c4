import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chaosspot import probe

EMIT_FOR_EVER = """
from chaosspot import probe
print("up", flush=True)
step = 0
while True:
    step += 1
    probe.emit("commit", step=step, loss=1.0, samples=[1] * 2000)
"""


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHAOSSPOT_EVENTS", str(tmp_path))
    monkeypatch.setenv("CHAOSSPOT_NODE", "node-3")
    monkeypatch.setenv("CHAOSSPOT_RANK", "1")
    monkeypatch.setattr(probe, "_file", None)
    monkeypatch.setattr(probe, "_header", {})
    return tmp_path


def read(folder: Path) -> list[dict]:
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_an_event_says_who_and_when(events: Path) -> None:
    probe.emit("commit", step=4, loss=0.5)
    (line,) = read(events)
    assert line.items() >= {
        "event": "commit", "step": 4, "loss": 0.5, "node": "node-3", "rank": 1, "pid": os.getpid(),
    }.items()  # fmt: skip
    assert line["boot"] == probe.boot_id()


def test_without_the_harness_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHAOSSPOT_EVENTS", raising=False)
    monkeypatch.delenv("CHAOSSPOT_POINTS", raising=False)
    monkeypatch.chdir(tmp_path)
    probe.emit("commit", step=1)
    probe.point("anywhere")
    assert not list(tmp_path.iterdir())


def test_a_forked_child_writes_a_file_of_its_own(events: Path) -> None:
    probe.emit("begin", step=1)
    child = os.fork()
    if child == 0:
        probe.emit("begin", step=2)
        os._exit(0)
    os.waitpid(child, 0)
    assert {line["pid"]: line["step"] for line in read(events)} == {os.getpid(): 1, child: 2}
    assert len(list(events.iterdir())) == 2


def test_importing_the_probe_imports_nothing_else_of_ours() -> None:
    code = (
        "import sys, chaosspot.probe\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "{'chaosspot', 'msgspec', 'torch', 'anyio', 'rich', 'typer'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['chaosspot', 'chaosspot.probe']"


def test_a_killed_writer_tears_at_most_its_last_line(tmp_path: Path) -> None:
    env = {**os.environ, "CHAOSSPOT_EVENTS": str(tmp_path), "CHAOSSPOT_NODE": "n"}
    for turn in range(10):
        child = subprocess.Popen(
            [sys.executable, "-c", EMIT_FOR_EVER], env=env, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        with child.stdout:
            child.stdout.readline()
            path = tmp_path / f"n.0.0.{child.pid}.jsonl"
            while not path.exists() or path.stat().st_size < 100_000 + 3_001 * turn:
                assert child.poll() is None
            child.send_signal(signal.SIGKILL)
            child.wait()
        *whole, _ = path.read_bytes().split(b"\n")
        assert [json.loads(line)["step"] for line in whole] == list(range(1, len(whole) + 1))


def test_an_armed_point_holds_until_it_is_answered(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = events / "points"
    points.mkdir()
    monkeypatch.setenv("CHAOSSPOT_POINTS", str(points))
    monkeypatch.setenv("CHAOSSPOT_CONTROL", str(events / "control"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(events / "control"))
        server.listen()
        probe.point("save.before")  # not armed: returns although nobody answers
        (points / "save.before").touch()
        child = os.fork()
        if child == 0:
            probe.point("save.before")
            os._exit(7)
        held, _ = server.accept()
        with held:
            request = json.loads(held.makefile().readline())
            assert (request["point"], request["node"]) == ("save.before", "node-3")
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
            held.sendall(b"\n")
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7


def test_a_point_whose_conductor_is_gone_lets_go(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (events / "save.before").touch()
    monkeypatch.setenv("CHAOSSPOT_POINTS", str(events))
    monkeypatch.setenv("CHAOSSPOT_CONTROL", str(events / "nobody"))
    probe.point("save.before")
