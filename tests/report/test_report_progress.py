"""The lines that people see while an attack runs."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from histories import Story
from rich.console import Console

from chaosspot import history as h
from chaosspot.report import progress as module
from chaosspot.report.progress import Progress, awaited
from chaosspot.schedule import Kill, Notice, Schedule, Trigger
from chaosspot.trainers import Trainer

PLAN = Schedule(
    title="[bold]not markup[/]",
    seed=3,
    fault=(Kill(on=Trigger(at_step=400)), Notice(on=Trigger(event="snapshot.local", nth=3))),
)


class Shown:
    """A progress, and what it printed so far."""

    def __init__(self) -> None:
        self._file = io.StringIO()
        self.progress = Progress(Console(file=self._file, width=200))
        self.progress.started(Path("runs/x"), PLAN, Trainer(name="[red]t", command=("x",)))

    def tell(self, kind: type[h.Record], node: str = "node-0", /, **fields: Any) -> str:
        """What a record adds."""
        before = len(self._file.getvalue())
        self.progress.record(Story().tell(kind, 0.0, node, **fields))
        return self._file.getvalue()[before:]

    @property
    def text(self) -> str:
        return self._file.getvalue()


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit is a line, and everything has taken long."""
    monkeypatch.setattr(module, "_QUIET_S", 0.0)
    monkeypatch.setattr(module, "_LONG_S", 0.0)


def test_names_and_titles_are_no_markup(shown: Shown) -> None:
    assert "attacking [red]t, seed 3: [bold]not markup[/]" in shown.text
    assert "[blink]n up (worker, zone [b]" in shown.tell(
        h.NodeUp, "[blink]n", zone="[b]", family="f", pool="spot", role="worker"
    )
    assert "[x] why [/]" in shown.tell(h.FaultMissed, fault=0, reason="[x] why [/]")
    assert "[/red] oops" in shown.tell(h.RunStop, reason="failed", log="[/red] oops")


def test_one_record_is_one_line(shown: Shown) -> None:
    said = shown.tell(h.FaultMissed, fault=0, reason="a\nb\x1b[2Jc")
    assert said.count("\n") == 1
    assert "a\\nb\\x1b[2Jc" in said


@pytest.mark.parametrize(
    ("world", "words"),
    [(0, "step 1 committed\n"), (1, "committed by 1 rank\n"), (2, "committed by 2 ranks\n")],
)
def test_ranks_are_counted_where_they_are_known(shown: Shown, world: int, words: str) -> None:
    assert words in shown.tell(h.Commit, step=1, world=world)


def test_a_fresh_start_is_not_called_a_restore(shown: Shown) -> None:
    assert shown.tell(h.Restore, step=0, source="peer") == ""
    assert "restored step 5 from peer" in shown.tell(h.Restore, step=5, source="peer")


@pytest.mark.usefixtures("eager")
def test_one_node_is_one_node(shown: Shown) -> None:
    shown.tell(h.NodeUp, zone="a", family="f", pool="spot", role="worker")
    assert "step 7, 1 node;" in shown.tell(h.Commit, step=7)


@pytest.mark.usefixtures("eager")
def test_what_faults_wait_for_is_said_until_it_comes(shown: Shown) -> None:
    said = shown.tell(h.Commit, step=1)
    assert "fault 0 (kill) waits for step 400" in said
    assert "fault 1 (notice) waits for 'snapshot.local' number 3" in said
    shown.tell(h.FaultInjected, fault=0, kind="kill", nodes=("node-0",))
    said = shown.tell(h.Commit, step=2)
    assert "fault 0" not in said
    assert "fault 1" in said
    shown.tell(h.FaultMissed, fault=1, reason="x")
    assert "waits" not in shown.tell(h.Commit, step=3)


def test_what_has_not_taken_long_is_not_explained(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUIET_S", 0.0)
    assert "waits" not in shown.tell(h.Commit, step=1)


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (Trigger(at_s=2.5), "2.5 s after every worker has committed"),
        (Trigger(event="x"), "'x'"),
        (Trigger(point="p"), "point 'p'"),
        (Trigger(point="p", nth=2), "point 'p', hit 2"),
    ],
)
def test_a_trigger_in_a_few_words(trigger: Trigger, words: str) -> None:
    assert awaited(trigger) == words


def test_no_line_has_negative_seconds(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)  # before the start
    assert shown.tell(h.NoticeSeen).startswith("     0.0 s  ")


def test_a_twin_that_stops_early_is_told(shown: Shown) -> None:
    told = Story()
    shown.progress.twin(None, 50)
    shown.progress.twin(told.tell(h.Commit, 1.0, "node-0", step=3), 50)
    shown.progress.twin(told.tell(h.NodeGone, 2.0, "node-0", by_itself=False), 50)
    shown.progress.twin(told.tell(h.RunStop, 3.0, reason="nodes were ended from outside"), 50)
    assert "node-0 of the twin gone" in shown.text
    assert "the twin stopped at step 3: nodes were ended from outside" in shown.text
