"""Every file-system event of an unchanged script is seen, and its files come out the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaosspot.explore.crash_points import Event, Stop, chosen, judged, stops
from chaosspot.schedule import Trigger
from chaosspot.verdict import Finding, Outcome, Verdict

HOOK = Path(__file__).resolve().parents[2] / "chaosspot" / "explore" / "filewatch"
SCRIPT = """
import os, pathlib, shutil, tempfile
import numpy as np
store = pathlib.Path(os.environ["CHAOSSPOT_STORE"])
folder = store / "step-1"
folder.mkdir()
with (folder / "a.tmp").open("w") as file:
    file.write("x" * 10)
    file.flush()
    os.fsync(file.fileno())
(folder / "a.tmp").replace(folder / "a")
with open(folder / "b", "wb") as file:
    np.save(file, np.arange(3))
with open(folder / "b", "rb") as file:
    assert list(np.load(file)) == [0, 1, 2]
number = os.open(folder / "c", os.O_WRONLY | os.O_CREAT, 0o644)
os.write(number, b"12345")
os.close(number)
with open(folder / "c", "r+b") as file:
    assert file.read(2) == b"12"
    file.seek(0)
    file.write(b"9")
assert (folder / "c").read_bytes() == b"92345"
(folder / "a").write_text("shorter")
assert (folder / "a").read_text() == "shorter"
with tempfile.NamedTemporaryFile() as elsewhere:
    elsewhere.write(b"not watched")
shutil.rmtree(folder)
"""


def events(tmp_path: Path, script: str, **more: str) -> list[tuple[str, str]]:
    for name in ("store", "points", "events"):
        (tmp_path / name).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={
            **os.environ,
            "PYTHONPATH": str(HOOK),
            "CHAOSSPOT_STORE": str(tmp_path / "store"),
            "CHAOSSPOT_POINTS": str(tmp_path / "points"),
            "CHAOSSPOT_EVENTS": str(tmp_path / "events"),
            "CHAOSSPOT_TELL": "1",
            **more,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [
        json.loads(line)
        for path in (tmp_path / "events").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [(line["deed"], line["path"]) for line in lines if line["event"] == "file"]


def test_what_a_script_does_to_its_files_is_seen_in_order(tmp_path: Path) -> None:
    seen = events(tmp_path, SCRIPT)
    head = [
        ("create", "step-1"),
        ("create", "step-1/a.tmp"),
        ("write", "step-1/a.tmp"),
        ("sync", "step-1/a.tmp"),
        ("rename", "step-1/a.tmp"),
        ("create", "step-1/b"),
    ]
    assert seen[: len(head)] == head
    rest = seen[len(head) :]
    assert {("write", "step-1/b"), ("create", "step-1/c"), ("write", "step-1/c")} <= set(rest)
    assert ("open", "step-1/c") in rest
    assert ("empty", "step-1/a") in rest
    removed = [path for deed, path in rest if deed == "remove"]
    assert sorted(removed) == ["step-1", "step-1/a", "step-1/b", "step-1/c"]
    assert all(path.startswith("step-1") for _, path in seen)


def test_a_script_that_saves_nothing_is_left_alone(tmp_path: Path) -> None:
    assert events(tmp_path, "print('x', file=open('/dev/null', 'w'))") == []


def test_what_the_hook_hides_is_imported_after_it(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.hidden = 7\n")
    paths = os.pathsep.join([str(HOOK), str(own)])
    assert events(tmp_path, "assert hidden == 7", PYTHONPATH=paths) == []


def made(*deeds: tuple[str, str]) -> list[Event]:
    found: list[Event] = []
    for deed, path in deeds:
        writes = sum(event.deed == "write" for event in found)
        write = writes + 1 if deed == "write" else 0
        found.append(Event(number=len(found) + 1, deed=deed, path=path, write=write))
    return found


SAVE = [("create", "step-{}"), ("write", "step-{}/a"), ("rename", "step-{}/a")]


def test_of_each_sort_the_first_and_the_last_are_tried() -> None:
    listed = made(*((deed, path.format(n)) for n in range(4) for deed, path in SAVE))
    assert [event.number for event in chosen(listed)] == [1, 2, 3, 10, 11, 12]


def test_a_node_is_stopped_before_each_event_in_each_write_and_after_the_last() -> None:
    first, second, third = made(*SAVE)
    assert stops([first, second, third]) == [
        Stop(event=first, where="before"),
        Stop(event=second, where="before"),
        Stop(event=second, where="torn"),
        Stop(event=third, where="before"),
        Stop(event=third, where="after"),
    ]


@pytest.mark.parametrize(("where", "nth"), [("before", 9), ("torn", 4), ("after", 9)])
def test_a_stop_is_a_point(where: str, nth: int) -> None:
    event = Event(number=9, deed="write", path="a", write=4)
    assert Stop(event=event, where=where).trigger == Trigger(point=f"file.{where}", nth=nth)


@pytest.mark.parametrize(
    ("equality", "unknown", "outcome"),
    [
        (Outcome.PASS, ("snapshots",), Outcome.PASS),
        (Outcome.UNKNOWN, ("snapshots",), Outcome.UNKNOWN),
        (Outcome.PASS, ("snapshots", "ending"), Outcome.UNKNOWN),
        (Outcome.PASS, ("ending",), Outcome.UNKNOWN),
    ],
)
def test_a_save_that_was_completed_and_not_reported_is_no_riddle(
    equality: Outcome, unknown: tuple[str, ...], outcome: Outcome
) -> None:
    findings = [Finding(oracle="equality", outcome=equality, message="m")]
    findings += [Finding(oracle=o, outcome=Outcome.UNKNOWN, message="m") for o in unknown]
    verdict = Verdict(
        outcome=Outcome.UNKNOWN, schedule="s", trainer="t", seed=0, findings=tuple(findings)
    )
    stop = Stop(event=Event(number=1, deed="rename", path="a"), where="after")
    assert judged(stop, verdict).outcome is outcome
