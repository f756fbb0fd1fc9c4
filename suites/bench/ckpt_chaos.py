"""The same scripts under ckpt-chaos (PyPI, another tool) and under us, side by side.

ckpt-chaos kills a script at every file it opens, renames or removes, starts it again and compares
the files it ends with. We attack each script with one schedule. Both run the same command of the
same description. Exits with 1 if ckpt-chaos finds something in a script that we do not fail, with 3
if ckpt-chaos cannot be installed or does not run.

    python suites/bench/ckpt_chaos.py [--only SCRIPT ...]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

import chaosspot
from chaosspot import schedule, trainers
from chaosspot.schedule import ClusterSpec, Group, Kill, Schedule, Trigger
from chaosspot.trainers import Promises, Trainer
from chaosspot.verdict import Outcome

THEM = "ckpt-chaos==0.1.8"
STEPS = 20  # four checkpoints
POINTS = 200  # more than any script here has
BAD = ("HARD_FAIL", "SILENT_DIVERGENCE", "LOST_WORK", "CONTROL_FAIL")

KILL_IN_SAVE = Schedule(
    title="The only node is killed in the middle of its third checkpoint",
    cluster=ClusterSpec(group=(Group(count=1),)),
    fault=(Kill(on=Trigger(point="save.half", nth=3), replace_after_s=0.3),),
)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What both tools attack; ``result`` is the file in its store that must come out the same."""

    name: str
    trainer: Trainer
    plan: Schedule
    result: str


class Ours(msgspec.Struct, frozen=True, kw_only=True):
    """What we say of a script; ``failed`` are the oracles, the primary one first."""

    outcome: Outcome
    failed: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A script, how often ckpt-chaos gave each of its verdicts, and ours; times in seconds."""

    name: str
    theirs: Mapping[str, int]
    theirs_s: float
    ours: Ours
    ours_s: float

    @property
    def missed(self) -> bool:
        """Whether they found something and we did not."""
        return any(self.theirs.get(bad) for bad in BAD) and self.ours.outcome is not Outcome.FAIL


class TheirsError(RuntimeError):
    """ckpt-chaos did not come to a verdict."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [script.name for script in scripts()]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SCRIPT")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaosspot-compare-") as folder:
        try:
            program = install(Path(folder))
            rows = [
                compare(script, program, Path(folder) / script.name)
                for script in scripts()
                if script.name in options.only
            ]
        except TheirsError as error:
            show(f"no comparison: {error}")
            return 3
    show("\n".join(table(rows)))
    for row in rows:
        if row.missed:
            show(f"{row.name}: ckpt-chaos finds something that we do not")
    return int(any(row.missed for row in rows))


def scripts() -> list[Script]:
    """The overwriting and the renaming loop; then `solo`, and those sick in how they save."""
    saver = Trainer(
        command=(
            *("{python}", "{content}/suites/bench/saver.py"),
            *("--steps", "{steps}", "--step-s", "0.05"),
        ),
        promises=Promises(exact="any-world", recovery_s=10.0),
    )
    renaming = msgspec.structs.replace(saver, command=(*saver.command, "--rename"))
    loops = [
        Script(name=name, trainer=trainer, plan=KILL_IN_SAVE, result="saved.json")
        for name, trainer in (("in-place", saver), ("renaming", renaming))
    ]
    numbered, only = f"checkpoint-{STEPS}/model.json", "checkpoint-0/model.json"
    return [
        *loops,
        _shipped("solo", numbered, plan="suites/schedules/kill-in-snapshot"),
        _shipped("torn", only),
        _shipped("two-files", only),
        _shipped("newest-by-name", numbered),
        _shipped("seed-drift", numbered),
    ]


def _shipped(name: str, result: str, *, plan: str = "") -> Script:
    trainer = trainers.load(name)
    attack = plan or (trainer.sick.schedule if trainer.sick else "")
    return Script(name=name, trainer=trainer, plan=schedule.load(attack)[1], result=result)


def install(folder: Path) -> Path:
    """ckpt-chaos in an environment of its own; returns its program.

    Raises:
        TheirsError: with pip's last lines.
    """
    env = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    pip = [str(env / "bin" / "pip"), "install", "--quiet", THEM]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TheirsError(f"{THEM} cannot be installed:\n{_last(done.stderr)}")
    return env / "bin" / "ckpt-chaos"


def compare(script: Script, program: Path, folder: Path) -> Row:
    show(f"{script.name} ...")
    began_t = time.monotonic()
    counted = theirs(script, program, folder / "theirs")
    between_t = time.monotonic()
    judged = ours(script, folder / "ours")
    return Row(
        name=script.name,
        theirs=counted,
        theirs_s=between_t - began_t,
        ours=judged,
        ours_s=time.monotonic() - between_t,
    )


def theirs(script: Script, program: Path, folder: Path) -> dict[str, int]:
    """Run a script under ckpt-chaos; how often it gave each verdict.

    Raises:
        TheirsError: it gave none.
    """
    values = trainers.values(coordinator="", steps=STEPS)
    argv = script.trainer.argv(script.trainer.command, values)
    command = [
        *(str(program), "run", "--work", str(folder), "--max-points", str(POINTS)),
        *("--step-regex", r"resumed from step (\d+)", "--result-file", f"{{out}}/{script.result}"),
        *("--", "env", "CHAOSSPOT_STORE={out}", *argv),
    ]
    # A step need not last: they strike at files, not at times.
    surroundings = {**script.trainer.surroundings(values), "MINIMAL_STEP_S": "0"}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    return counts(done.stdout, done.stderr)


def counts(output: str, error: str = "") -> dict[str, int]:
    """The line of verdicts at the end of what ckpt-chaos prints, as numbers.

    Raises:
        TheirsError: there is none, or a point was not reached, so that its verdict says nothing.
    """
    last = output.rstrip().rpartition("\n")[2]
    if not re.fullmatch(r"[A-Z_]+: \d+(  [A-Z_]+: \d+)*", last):
        raise TheirsError(f"ckpt-chaos gave no verdict:\n{_last(output + error)}")
    if unreached := re.search(r"^.*\[(DID NOT CRASH|PLAN DRIFT)\]", output, re.MULTILINE):
        raise TheirsError(f"ckpt-chaos did not strike where it meant to: {unreached[0]}")
    return {verdict: int(count) for verdict, count in re.findall(r"([A-Z_]+): (\d+)", last)}


def ours(script: Script, folder: Path) -> Ours:
    """One attack of ours on a script."""
    verdict = chaosspot.attack(
        script.plan, name=script.name, trainer=script.trainer, seed=1, runs=folder
    )
    failed = [f.oracle for f in verdict.findings if f.outcome is Outcome.FAIL]
    if verdict.primary is not None and verdict.primary.outcome is Outcome.FAIL:
        failed.insert(0, verdict.primary.oracle)
    return Ours(outcome=verdict.outcome, failed=tuple(dict.fromkeys(failed)))


def table(rows: Sequence[Row]) -> list[str]:
    """One line a script, as Markdown; the counts include their undisturbed control."""
    lines = ["| script | ckpt-chaos | chaosspot |", "|---|---|---|"]
    for row in rows:
        counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(row.theirs.items()))
        said = f"{row.ours.outcome} ({', '.join(row.ours.failed)})".replace(" ()", "")
        lines.append(
            f"| {row.name} | {counted} in {row.theirs_s:.0f} s | {said} in {row.ours_s:.0f} s |"
        )
    return lines


def show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _last(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-5:])


if __name__ == "__main__":
    sys.exit(main())
