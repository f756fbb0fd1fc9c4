"""Attacks on nodes in containers: the same schedules and verdicts, at the cloud's own address."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from commands import CHAOSSPOT
from docked import NEEDS_DAEMON, left_of

from chaosspot import Verdict, schedule
from chaosspot import history as h
from chaosspot.conductor import UnsupportedError
from chaosspot.conductor.rundir import backend_of
from chaosspot.oracles.lineage import Lineage
from chaosspot.schedule import (
    ClusterSpec,
    DnsGone,
    Group,
    Kill,
    Notice,
    OutOfMemory,
    Partition,
    Schedule,
    Target,
    ThrottleCpu,
    Trigger,
)
from chaosspot.trainers import Patterns, Timeouts, Trainer
from chaosspot.verdict import Outcome

Attack = Callable[..., Verdict]

SOON = Trigger(at_step=10)
ONE = Target(count=1)
ISOLATED = [
    Partition(on=SOON, target=ONE),
    OutOfMemory(on=SOON, target=ONE),
    ThrottleCpu(on=SOON, target=ONE),
    DnsGone(on=SOON, target=ONE),
]


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(home))
    return home


def told(verdict: Verdict, kind: type) -> list[Any]:
    records = h.read(Path(verdict.run) / "history.jsonl")
    return [record for record in records if isinstance(record, kind)]


def check_equal(verdict: Verdict) -> None:
    """It passed, and every digest is the undisturbed twin's."""
    assert verdict.outcome is Outcome.PASS, verdict.findings
    attacked = Lineage(h.read(Path(verdict.run) / "history.jsonl")).commits
    twin = Lineage(h.read(Path(verdict.run) / "twin.jsonl")).commits
    assert len(attacked) > 10
    assert all(commit.digest == twin[step].digest for step, commit in attacked.items())


def containers(*marks: pytest.MarkDecorator) -> Callable[[Any], Any]:
    def mark(test: Any) -> Any:
        for each in (*NEEDS_DAEMON, *marks):
            test = each(test)
        return test

    return mark


@pytest.mark.parametrize("fault", ISOLATED, ids=lambda fault: fault.kind)
def test_processes_cannot_suffer_what_needs_a_network_of_their_own(
    attack: Attack, tmp_path: Path, fault: Any
) -> None:
    with pytest.raises(UnsupportedError, match=rf"fault\[0\]: {fault.kind} needs .*containers"):
        attack(fault)
    assert not (tmp_path / "runs").exists()


def test_processes_are_not_limited(attack: Attack) -> None:
    plan = Schedule(
        cluster=ClusterSpec(group=(Group(count=2, memory_bytes=1 << 30),)), fault=(Kill(on=SOON),)
    )
    with pytest.raises(UnsupportedError, match="memory_bytes = 1073741824"):
        attack(schedule=plan)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("unix:///nowhere/docker.sock", "no docker daemon answers at /nowhere/docker.sock"),
        ("tcp://10.0.0.1:2375", "tcp://10.0.0.1:2375"),
    ],
)
def test_without_a_daemon_it_is_said_in_one_line(tmp_path: Path, where: str, said: str) -> None:
    done = subprocess.run(
        [CHAOSSPOT, "attack", "sudden-kill", "--trainer", "minimal", "--cluster", "containers"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin", "DOCKER_HOST": where, "CHAOSSPOT_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_an_image_is_of_containers(attack: Attack) -> None:
    with pytest.raises(ValueError, match=r"image = 'x'.*'processes'"):
        attack(Kill(on=SOON), image="x")


@containers()
def test_an_unknown_image_is_refused(attack: Attack, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="image 'no/such:thing' is not on this machine"):
        attack(Kill(on=SOON), cluster="containers", image="no/such:thing")
    assert not (tmp_path / "runs").exists()


@containers(pytest.mark.timeout(400))
def test_a_kill_and_a_replacement(attack: Attack, state_home: Path) -> None:
    _, plan = schedule.load("suites/schedules/kill-and-replace")
    verdict = attack(schedule=plan, cluster="containers")
    check_equal(verdict)
    assert left_of(state_home) == []
    assert backend_of(Path(verdict.run)) == ("containers", None)


# What any client does that knows the cloud and nothing of us: it is started with no environment.
AWS = r"""
at=http://169.254.169.254/latest
ask() { curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" "$at/meta-data/$1"; }
token=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 600' $at/api/token)
echo "i am $(ask instance-id) in $(ask placement/availability-zone)"
step=0
until told=$(ask spot/instance-action); do step=$((step+1)); echo "step $step"; sleep 0.1; done
echo "told $told"
while :; do step=$((step+1)); echo "step $step"; sleep 0.1; done
"""
GCP = r"""
at=http://metadata.google.internal/computeMetadata/v1/instance
ask() { curl -sf -m 60 -H 'Metadata-Flavor: Google' "$at/$1"; }
echo "i am $(ask id) in $(ask zone)"
step=0
until [ "$(ask preempted)" = TRUE ]; do step=$((step+1)); echo "step $step"; sleep 0.1; done
echo "told {\"action\": \"terminate\", \"time\": \"$(date -u +%Y-%m-%dT%H:%M:%SZ)\"}"
while :; do step=$((step+1)); echo "step $step"; sleep 0.1; done
"""


@containers(pytest.mark.timeout(400))
@pytest.mark.parametrize(
    ("cloud", "text"), [("aws", AWS), pytest.param("gcp", GCP, marks=pytest.mark.soak)]
)
def test_who_knows_nothing_of_us_finds_its_notice_where_the_cloud_has_it(
    attack: Attack, state_home: Path, cloud: Any, text: str
) -> None:
    literal = text.replace("{", "{{").replace("}", "}}")
    stranger = Trainer(
        name="stranger",
        command=("/usr/bin/env", "-i", "/bin/sh", "-c", literal),
        patterns=Patterns(commit=r"^step (?P<step>\d+)$"),
        timeouts=Timeouts(start_s=60.0, stall_s=30.0, run_s=120.0),
    )
    plan = Schedule(
        cluster=ClusterSpec(cloud=cloud, group=(Group(count=2, zones=("a", "b")),)),
        fault=(Notice(on=Trigger(at_step=3), target=Target(nodes=("node-1",)), lead_s=4.0),),
    )
    verdict = attack(schedule=plan, trainer=stranger, cluster="containers", steps=2000)
    logs = {name: (Path(verdict.run) / "logs" / f"{name}.log").read_text() for name in NAMES}
    said = {name: re.search(r"i am (\S+) in (\S+)", log) for name, log in logs.items()}
    assert said["node-0"] is not None
    assert said["node-1"] is not None
    assert said["node-0"][1] != said["node-1"][1]
    assert said["node-0"][2] != said["node-1"][2]
    assert "told" not in logs["node-0"]
    (line,) = re.findall(r"^told (.*)$", logs["node-1"], re.MULTILINE)
    notice = json.loads(line)
    (published,) = [e for e in told(verdict, h.FaultEffect) if e.what == "published"]
    if cloud == "aws":
        at_wall_s = datetime.fromisoformat(notice["time"]).timestamp()
        assert (notice["action"], at_wall_s) == ("terminate", published.deadline_wall_s)
    assert [e.node for e in told(verdict, h.FaultEffect) if e.what == "gone"] == ["node-1"]
    assert left_of(state_home) == []


NAMES = ("node-0", "node-1")


@containers(pytest.mark.long, pytest.mark.timeout(600))
@pytest.mark.parametrize("name", ["zone-loss", pytest.param("spot-notice", marks=pytest.mark.soak)])
def test_the_small_trainer_survives(attack: Attack, state_home: Path, name: str) -> None:
    check_equal(attack(schedule=name, nodes=4, cluster="containers"))
    assert left_of(state_home) == []


@containers(pytest.mark.soak, pytest.mark.timeout(900))
@pytest.mark.parametrize("name", ["sudden-kill", "spot-notice", "zone-loss", "partition"])
def test_the_reference_trainer_survives(attack: Attack, state_home: Path, name: str) -> None:
    check_equal(attack(schedule=name, trainer="reference", nodes=4, cluster="containers"))
    assert left_of(state_home) == []


@containers(pytest.mark.soak, pytest.mark.timeout(600))
@pytest.mark.parametrize(
    ("name", "trainer"),
    [
        ("out-of-memory", "minimal"),
        ("straggler", "reference"),
        ("dns-gone", "minimal"),
        ("metadata-closed", "minimal"),
        ("coordinator-slow", "minimal"),
        ("suites/schedules/store-kill-after-durable", "sharded"),
        ("disk-full", "reference"),
        ("pause", "reference"),
    ],
)
def test_other_faults_of_the_catalogue(
    attack: Attack, state_home: Path, name: str, trainer: str
) -> None:
    verdict = attack(schedule=name, trainer=trainer, cluster="containers")
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert left_of(state_home) == []


PRINTER = (
    "import os, time\n"
    "print('made of', os.environ['MADE_OF'], os.path.exists('/usr/bin/perl'), flush=True)\n"
    "for step in range(1, 10**6): print('step', step, flush=True); time.sleep(0.1)\n"
)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    """An image of Debian's python3 and what it needs, and of nothing else of this machine."""
    name = f"chaosspot-test:{tmp_path.name.lower()}-{os.getpid()}"
    data = tmp_path / "image.tar"
    with tarfile.open(data, "w", dereference=False) as archive:
        for link in ("bin", "lib", "lib64", "sbin"):
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, f"usr/{link}"
            archive.addfile(info)
        for path in ["/usr/bin/python3", os.path.realpath("/usr/bin/python3"), *_libraries()]:
            archive.add(path, arcname=str(path).lstrip("/"))
        archive.add("/usr/lib/python3.11", filter=_standard_library)
    changes = ["--change", "ENV MADE_OF=an-image"]
    subprocess.run(["/usr/bin/docker", "import", *changes, data, name], check=True)
    yield name
    subprocess.run(["/usr/bin/docker", "rmi", "-f", name], check=True)


def _libraries() -> list[str]:
    """What the interpreter is linked with, at the place where it looks for it."""
    modules = Path("/usr/lib/python3.11/lib-dynload").glob("_ctypes.*.so")
    linked = [os.path.realpath("/usr/bin/python3"), *map(str, modules)]
    told = subprocess.run(["ldd", *linked], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(/\S+) \(0x", told)
    paths = [part for path in found for part in (_in_usr(path), _real(path))]
    return list(dict.fromkeys(paths))


def _in_usr(path: str) -> str:
    return path if path.startswith("/usr") else f"/usr{path}"


def _real(path: str) -> str:
    return os.path.realpath(path)


def _standard_library(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    skipped = ("__pycache__", "test", "idlelib", "config-3.11-x86_64-linux-gnu", "dist-packages")
    return None if info.name.rpartition("/")[2] in skipped else info


@containers(pytest.mark.soak, pytest.mark.timeout(400))
@pytest.mark.skipif(
    os.path.realpath("/usr/bin/python3") != "/usr/bin/python3.11", reason="needs Debian's Python"
)
def test_a_real_image_is_all_that_there_is(attack: Attack, image: str) -> None:
    trainer = Trainer(
        name="printer",
        command=("{python}", "-c", PRINTER),
        patterns=Patterns(commit=r"^step (?P<step>\d+)$"),
        timeouts=Timeouts(start_s=60.0, stall_s=30.0, run_s=120.0),
    )
    plan = Schedule(
        cluster=ClusterSpec(group=(Group(count=1),)),
        fault=(Kill(on=SOON, target=ONE, replace_after_s=0.1),),
    )
    verdict = attack(schedule=plan, trainer=trainer, cluster="containers", image=image)
    log = (Path(verdict.run) / "logs" / "node-1.log").read_text()
    assert "made of an-image False" in log
    assert "step 3" in log
    assert backend_of(Path(verdict.run)) == ("containers", image)
