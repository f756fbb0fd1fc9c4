"""The parts of containers that need no daemon: who is cut off from whom, answers, mounts."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from chaosspot.cluster import Cut
from chaosspot.cluster.cgroup import Cgroup
from chaosspot.cluster.daemon import Daemon, DaemonError, _group_beside_others
from chaosspot.cluster.image import _apart
from chaosspot.cluster.partitions import _addition, _removal, apart
from chaosspot.cluster.resolver import refusal
from chaosspot.schedule import COORDINATOR, Node
from chaosspot.undo import Containers
from chaosspot.undo.docker import socket_path

A, B, C = (
    Node(name=name, zone=zone, family="f", pool="spot", role="worker")
    for name, zone in (("a", "x"), ("b", "x"), ("c", "y"))
)


@pytest.mark.parametrize(
    ("off", "together", "others"),
    [
        ("rest", ["a"], ["b", "c", "coordinator"]),
        ("rest", ["a", "c"], ["b", "coordinator"]),
        ("zones", ["a", "b"], ["c"]),
        ("zones", ["a"], ["c"]),
        ("coordinator", ["a"], ["coordinator"]),
    ],
)
def test_who_is_cut_off_from_whom(off: str, together: list[str], others: list[str]) -> None:
    cut = Cut(off=off)  # type: ignore[arg-type]
    assert [n.name for n in (A, B, C, COORDINATOR) if apart(cut, A, n, together)] == others


def test_rules_go_both_ways_or_one() -> None:
    both = _addition(1, ["10.0.0.2"], Cut(off="rest"), first=True)
    one = _addition(1, ["10.0.0.2"], Cut(off="rest", one_way=True), first=False)
    assert "-s 10.0.0.2 -j DROP" in both
    assert "-d 10.0.0.2 -j DROP" in both
    assert one.splitlines() == ["*filter", "-A CHAOSSPOT-1 -s 10.0.0.2 -j DROP", "COMMIT"]
    made = {line.split()[1] for line in both.splitlines() if line.startswith("-I")}
    gone = {line.split()[1] for line in _removal(1).splitlines() if line.startswith("-D")}
    assert made == gone == {"INPUT", "OUTPUT"}


def test_a_question_is_answered_with_no_such_name() -> None:
    name = b"\6nobody\7example\0"
    question = b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + name + b"\0\1\0\1"
    answer = refusal(question + b"more")
    assert answer is not None
    assert answer[:2] == b"\x12\x34"
    assert answer[2] & 0x80  # a response
    assert answer[2] & 0x01  # recursion was asked for
    assert answer[3] & 0x0F == 3  # no such name
    assert answer[4:12] == b"\0\1\0\0\0\0\0\0"
    assert answer[12:] == name + b"\0\1\0\1"


@pytest.mark.parametrize(
    "data", [b"", b"\1\2", bytes(12), b"\x12\x34\x81\0" + bytes(20), bytes(12) + b"\xff" * 30]
)
def test_what_is_no_question_is_not_answered(data: bytes) -> None:
    assert refusal(data) is None


def test_mounts_do_not_hide_one_another(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    wanted = ["/", "/tmp", "/usr", "/usr/lib", str(inner), str(tmp_path / "a"), "/no/such"]
    assert _apart(wanted) == tuple(sorted([str(tmp_path / "a"), "/usr"]))


def test_the_groups_of_a_process_are_found() -> None:
    group = Cgroup(os.getpid())
    assert group.memory_bytes >= 0
    with pytest.raises(OSError, match="says nothing of 'no such key'"):
        group.number("memory", "memory.stat", "memory.stat", "no such key")
    with pytest.raises(OSError, match=r"/proc/\d+/cgroup"):
        Cgroup(2**22 + 1)


@pytest.mark.parametrize(
    ("told", "group"),
    [
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "1"}, "/"),
        ({"CgroupDriver": "cgroupfs"}, "/"),  # a daemon that knows of no other version
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "2"}, None),
        ({"CgroupDriver": "systemd", "CgroupVersion": "2"}, None),
        ({"CgroupDriver": "systemd", "CgroupVersion": "1"}, None),
    ],
)
def test_nodes_share_no_group_where_that_would_weigh_as_one_process(
    told: dict[str, str], group: str | None
) -> None:
    assert _group_beside_others(told) == group


@pytest.mark.parametrize("lease", ["", "*", "x", "20260101T000000-1-abcdef0", "../x"])
def test_a_damaged_record_removes_nothing(lease: str) -> None:
    with pytest.raises(OSError, match="refuses to remove"):
        Containers(socket="/nowhere", lease=lease).heal()


def test_an_undo_without_a_daemon_says_so() -> None:
    with pytest.raises(OSError, match=r"no docker daemon answers at /nowhere/docker\.sock"):
        Containers(socket="/nowhere/docker.sock", lease="20260101T000000-1-abcdef01").heal()


def test_a_daemon_elsewhere_is_refused() -> None:
    with pytest.raises(OSError, match="tcp://h:1"):
        socket_path({"DOCKER_HOST": "tcp://h:1"})
    assert socket_path({"DOCKER_HOST": "unix:///x"}) == "/x"
    assert socket_path({}) == "/var/run/docker.sock"


def test_what_does_not_answer_as_a_daemon_is_named(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(DaemonError, match=f"no docker daemon answers at {path}"):
            Daemon(str(path))
