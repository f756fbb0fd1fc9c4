"""The command: what it refuses, and whole explorations on real processes."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from commands import CHAOSSPOT, Cli, cli_in, within
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from chaosspot import attack, content, schedule, trainers
from chaosspot.explore import Ground, attacking, preemptions, schedules
from chaosspot.explore.crash_points import crash_points
from chaosspot.explore.journal import Journal
from chaosspot.explore.running import few
from chaosspot.schedule import ClusterSpec, Group, Schedule
from chaosspot.trainers import Trainer
from chaosspot.verdict import Outcome


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("--budget", "0"), "budget '0': nothing can be tried"),
        (("--trainer", "minimal", "--kinds", "kil"), "no kind 'kil'; did you mean 'kill'"),
        (("--nodes", "few"), "--nodes 'few': a number (3) or two (1-4)"),
        (("--resume", "nowhere"), "'nowhere/journal.jsonl' is no exploration"),
        (("--trainer", "bucket", "--crash-points"), "keeps its state in an object store"),
    ],
)
def test_what_cannot_be_explored_is_one_error_and_2(
    cli: Cli, argv: tuple[str, ...], shown: str
) -> None:
    done = cli("explore", *argv)
    assert done.returncode == 2
    assert shown in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_few_clusters_stand_for_all() -> None:
    clusters = few(Ground(kinds=("kill",), min_nodes=1, max_nodes=4))
    assert [len(cluster.nodes()) for cluster in clusters] == [1, 3, 4]
    assert len({node.family for node in clusters[-1].nodes()}) == 2
    assert [len(c.nodes()) for c in few(Ground(kinds=("kill",), max_nodes=1))] == [1]
    (limited,) = few(Ground(kinds=("disk-full",), max_nodes=1))
    assert limited.group[0].flash_bytes is not None


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_save_that_is_torn_is_found_after_a_kill_of_the_harness_too(
    cli: Cli, tmp_path: Path
) -> None:
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    argv = ("explore", "--trainer", "torn", "--kinds", "kill", "--seed", "1", "--budget", "60")
    first = subprocess.Popen([CHAOSSPOT, *argv, "--runs", str(runs)])
    assert within(60.0, lambda: any(runs.glob("*-explore-torn-1/journal.jsonl")))
    (journal,) = runs.glob("2*-explore-torn-1/journal.jsonl")
    assert within(60.0, lambda: journal.read_bytes().count(b"\n") >= 3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = [entry.key for entry in entries(journal)]
    done = cli("explore", "--resume", journal.parent, "--keep", kept, "--json", timeout_s=300)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    found = report["exploration"]["found"]
    assert found["trial"]["oracle"] in ("durability", "rework")
    assert found["failed_again"] >= 4
    assert len(found["schedule"]["fault"]) == 1
    assert [entry.key for entry in entries(journal)][: len(before)] == before
    searched = [e.key for e in entries(journal) if e.purpose == "search" and e.trial.passed]
    assert len(searched) == len(set(searched))
    (file,) = kept.glob("torn-*.toml")
    assert schedule.load(str(file))[1].fault
    ours = [p for p in psutil.process_iter(["environ"]) if str(runs) in str(p.info["environ"])]
    assert ours == []


def entries(journal: Path) -> list:
    with Journal.resume(journal) as opened:
        return list(opened.entries)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "outcome"), [("solo", Outcome.PASS), ("torn", Outcome.FAIL)])
def test_crash_points_tell_a_torn_save_from_a_whole_one(
    tmp_path: Path, name: str, outcome: Outcome
) -> None:
    result = crash_points(name, runs=tmp_path)
    assert not result.undisturbed
    assert len(result.stopped) > 30
    assert result.outcome is outcome, [s for s in result.stopped if s.outcome is not outcome]


@pytest.mark.long
def test_a_plain_test_of_a_trainer_needs_nothing_but_its_settings(tmp_path: Path) -> None:
    @settings(attacking, max_examples=3, database=None, derandomize=True)
    @given(schedules(trainer="solo", kinds=("kill",), max_faults=1))
    def survives(plan: Schedule) -> None:
        assert attack(plan, trainer="solo", runs=tmp_path).outcome is not Outcome.FAIL

    survives()


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_the_reference_trainer_survives_a_hundred_drawn_preemptions(tmp_path: Path) -> None:
    drawn = preemptions(trainer="reference", min_nodes=3, max_nodes=3, max_faults=2, min_lead_s=10)
    outcomes = survived("reference", drawn, examples=100, runs=tmp_path)
    assert outcomes.count(Outcome.UNKNOWN) <= len(outcomes) / 100


def survived(
    trainer: Trainer | str, drawn: SearchStrategy[Schedule], *, examples: int, runs: Path
) -> list[Outcome]:
    """Attack by each; one that fails is shown. Returns what they came to."""
    outcomes: list[Outcome] = []

    @settings(attacking, max_examples=examples, database=None, derandomize=True)
    @given(drawn)
    def survives(plan: Schedule) -> None:
        verdict = attack(plan, trainer=trainer, runs=runs)
        outcomes.append(verdict.outcome)
        if verdict.outcome is Outcome.FAIL:
            verdict.check()

    survives()
    return outcomes


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("examples", [3, pytest.param(10, marks=pytest.mark.soak)])
def test_a_small_reference_trainer_survives_drawn_preemptions(
    tmp_path: Path, examples: int
) -> None:
    """A model of a few thousand numbers on two nodes, and one twin for all."""
    small = ("--width", "32", "--layers", "1", "--heads", "2", "--seq-len", "16")
    reference = trainers.load("reference")
    promises = replace(reference.promises, snapshot_every_steps=40)  # a step takes some 20 ms
    trainer = replace(
        reference, command=(*reference.command, *small, "--micro-batch", "1"), promises=promises
    )
    two = ClusterSpec(group=(Group(count=2, zones=("a", "b")),))

    drawn = preemptions(trainer=trainer, clusters=(two,), max_faults=2, min_lead_s=10)
    outcomes = survived(trainer, drawn, examples=examples, runs=tmp_path)
    assert outcomes == [Outcome.PASS] * len(outcomes)
    assert len(outcomes) >= examples


def test_every_sick_trainer_can_be_explored() -> None:
    for name in content.names("suites/sick"):
        sick = trainers.load(name).sick
        assert sick is not None
        schedules(trainer=name)
