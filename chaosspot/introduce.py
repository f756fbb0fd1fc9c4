"""Getting to know a trainer: runs it undisturbed, and describes what could be read of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaosspot import history as h
from chaosspot.conductor import attack
from chaosspot.conductor.lines import Lines
from chaosspot.conductor.tail import MOST_OUTPUT_BYTES
from chaosspot.schedule import ClusterSpec, Group, Schedule
from chaosspot.trainers import Patterns, Timeouts, Trainer

__all__ = ["Acquaintance", "description", "first_test", "introduce"]

_STEP = r"(?:global_?step|iteration|iter|step|batch)"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf"
_STEPS = (
    rf"(?i)\b{_STEP}\b[\s:=\[#]*(?P<step>\d+)",
    r"^\s*\[?(?P<step>\d+)\s*/\s*\d+",
)
_LOSS = rf"(?i:.*?\bloss\b)[\s:=]*(?P<loss>{_NUMBER})"
_RESTORE = r"(?i)\b(?:resum|restor|load)\w*\b.*?\b(?:step|iter\w*)\b[\s:=]*(?P<step>\d+)"
_LEAST_STEPS = 3  # fewer rising numbers may be anything
_DRAFTS = (".tmp", ".part", ".partial", ".lock", ".log")  # files that are no checkpoint


class Acquaintance(msgspec.Struct, frozen=True, kw_only=True):
    """What one undisturbed run told.

    ``patterns`` is None when the trainer reports through the probe, or nothing could be read.
    ``steps`` is how many were seen; ``checkpoints`` are files it wrote into its store.
    """

    run: Path
    ended: str
    code: int | None
    steps: int
    losses: int
    probe: bool
    patterns: Patterns | None
    checkpoints: tuple[str, ...]
    log: str


def introduce(command: Sequence[str], *, try_s: float, runs: Path) -> Acquaintance:
    """Run ``command`` on one node for at most ``try_s`` seconds, undisturbed.

    Raises:
        StartError: it cannot be started.
        RunError: no run directory can be made.
    """
    trainer = Trainer(
        command=tuple(_literal(part) for part in command),
        name="new",
        timeouts=Timeouts(start_s=try_s, stall_s=try_s, run_s=try_s),
    )
    plan = Schedule(title="undisturbed", cluster=ClusterSpec(group=(Group(count=1),)))
    verdict = attack(plan, name="init", trainer=trainer, steps=10**9, runs=runs)
    run = Path(verdict.run)
    records = h.read(run / "history.jsonl")
    reported = [record for record in records if isinstance(record, h.Commit)]
    output = (run / "logs" / "node-0.log").read_bytes()
    log, lines = output.decode(errors="replace"), lines_of(output)
    patterns = None if reported else guess(lines)
    parsed = _commits(patterns, lines)
    gone = next((r for r in records if isinstance(r, h.NodeGone)), None)
    return Acquaintance(
        run=run,
        ended=next((r.reason for r in records if isinstance(r, h.RunStop)), "?"),
        code=gone.code if gone else None,
        steps=len(reported) or len(parsed),
        losses=sum(c.loss is not None for c in reported) or sum("loss" in c for c in parsed),
        probe=bool(reported),
        patterns=patterns,
        checkpoints=_checkpoints(run / "store"),
        log=log,
    )


def lines_of(output: bytes) -> list[str]:
    """The lines of an output, cut as they are when an attack reads them by patterns."""
    lines = Lines(returns=True, most_bytes=MOST_OUTPUT_BYTES)
    return [line.data.decode(errors="replace") for line in lines.feed(output + b"\n")]


def guess(lines: Sequence[str]) -> Patterns | None:
    """Patterns under which the output counts steps up; the one that reads most is taken."""
    best: Patterns | None = None
    most = _LEAST_STEPS - 1
    for step in _STEPS:
        for pattern in (step + _LOSS, step):
            patterns = Patterns(commit=pattern)
            steps = [fields["step"] for fields in _commits(patterns, lines)]
            if len(set(steps)) > most and steps == sorted(steps):
                best, most = patterns, len(set(steps))
    if best is None:
        return None
    resumed = any(re.search(_RESTORE, line) for line in lines)
    return Patterns(commit=best.commit, restore=_RESTORE if resumed else None)


def description(command: Sequence[str], known: Acquaintance) -> str:
    """A commented description, as TOML; what is not known is a comment to fill in."""
    argv = ", ".join(msgspec.json.encode(_literal(part)).decode() for part in command)
    lines = [
        "# How chaosspot launches and reads this trainer, and what the trainer promises.",
        f"command = [{argv}]",
        "ranks_per_node = 1",
        "",
        "[timeouts]",
        "start_s = 120.0   # to the first commit of every node",
        "stall_s = 60.0    # between commits",
        "run_s = 900.0     # in all",
        "",
    ]
    if known.patterns is not None and known.patterns.commit is not None:
        lines += [
            f"# Read from the output: {known.steps} steps, {known.losses} of them with a loss.",
            "[patterns]",
            f"commit = '''{known.patterns.commit}'''",
            f"{'' if known.patterns.restore else '# '}restore = '''{_RESTORE}'''",
            "",
        ]
    elif not known.probe:
        lines += [
            "# Nothing could be read from the output. Either say how a step is printed:",
            "# [patterns]",
            "# commit = 'step (?P<step>\\d+) loss (?P<loss>\\S+)'",
            "# or report from the code: chaosspot.probe.emit('commit', step=step)",
            "",
        ]
    lines += [
        "# Only what is promised is judged; the rest is measured and shown.",
        "[promises]",
        "recovery_s = 60.0",
        "# snapshot_every_steps = 50     # bounds rework; needs generations in begin and commit",
        "# drains_on_notice = true       # leaves before a notice's deadline, without rework",
        "# rejoins = true                # a replacement takes part again",
        '# exact = "any-world"           # needs digests: probe.emit("commit", digest=...)',
    ]
    return "\n".join(lines) + "\n"


def first_test(description_path: str) -> str:
    """A pytest file that attacks the described trainer."""
    return f'''"""Does the trainer survive losing a node?"""

import pytest

TRAINER = {description_path!r}


@pytest.mark.chaos
@pytest.mark.parametrize("schedule", ["sudden-kill", "spot-notice"])
def test_the_trainer_survives(attack, schedule):
    attack(schedule, trainer=TRAINER, nodes=1).check()
'''


def _checkpoints(store: Path) -> tuple[str, ...]:
    """What a trainer left in its store, whatever it is called; drafts and hidden files are none."""
    names = [path.relative_to(store) for path in sorted(store.rglob("*")) if path.is_file()]
    return tuple(
        str(name)
        for name in names
        if name.suffix not in _DRAFTS and not any(part.startswith(".") for part in name.parts)
    )


def _commits(patterns: Patterns | None, lines: Sequence[str]) -> list[dict[str, Any]]:
    if patterns is None:
        return []
    parsed = [fields for line in lines if (fields := patterns.parse(line)) is not None]
    return [fields for fields in parsed if isinstance(fields["step"], int)]


def _literal(part: str) -> str:
    return part.replace("{", "{{").replace("}", "}}")
