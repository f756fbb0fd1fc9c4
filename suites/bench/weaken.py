"""Whether the oracles' tests would notice: each oracle is weakened in three ways, one at a time.

A *mutant* is a copy of the package with one piece of text, which must be there exactly once,
replaced by another. The tests of the oracles are run against every mutant; one that they let pass
has survived, and is a failure.

    python suites/bench/weaken.py [--jobs 2] [--only NAME]
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ORACLES = Path("chaosspot/oracles")
TIMEOUT_S = 300.0

# Of each file, the text and what it becomes.
MUTANTS: dict[str, list[tuple[str, str]]] = {
    "checkpoint": [
        ("elif compared.problem:", "elif False:"),
        ("wrong = (*other, *found.unequal)", "wrong = other"),
        ("if not found.distance <= within", "if found.distance > within"),
    ],
    "claims": [
        ("if stored < claim.bytes:", "if False:"),
        ("other.t <= t and other.step > claim.step", "other.step > claim.step"),
        ("and log.at(key, later.t) is change", ""),
    ],
    "cold": [
        ("if process[0] != record.node}", "if process[0] == record.node}"),
        ("elif evidence.is_late(record):", "elif False:"),
        ("if s.step <= record.step]", "if s.step < record.step]"),
    ],
    "durability": [
        ("_WELL_S = 1.0", "_WELL_S = 2.0"),
        ("kept = resumed >= newest.step", "kept = resumed >= newest.step - 2"),
        ("resumed = cold.first.step - 1", "resumed = cold.first.step"),
    ],
    "effect": [
        ("if not view.complete:", "if not view.hit:"),
        ("if view.injected is None:", "if False:"),
        ("if view.missed is not None:", "if False:"),
    ],
    "ending": [
        ("if stop is None:", "if False:"),
        ('_WHOLE = ("decided", "steps", "finished")', '_WHOLE = ("decided", "steps", "exited")'),
        ("elif stop.reason not in _WHOLE:", "elif False:"),
    ],
    "episodes": [
        ("if begin_t is not None and begin_t > t:", "if begin_t is not None:"),
        ("return max(0.0, self.recovered.t - self.start_t)", "return 0.0"),
        ("last.recovered is None or last.recovered.t > effect_t", "last.recovered is None"),
    ],
    "equality": [
        ("if len(digests) > 1:", "if len(digests) > 2:"),
        ("for commit in lineage.breaks[:1]:", "for commit in lineage.breaks[:0]:"),
        ("if differing and not evidence.twins_agree:", "if differing:"),
    ],
    "evidence": [
        ("bool(self.nodes) and not set(self.nodes) - set(self.hit)", "bool(self.hit)"),
        ("return end is not None and end.t < record.t", "return end is not None"),
        ("effect.t <= t and (view.healed is None or view.healed.t > t)", "effect.t > t"),
    ],
    "exits": [
        ("if end.by_itself and end.code is not None", "if end.code is not None"),
        (
            "len(good) == len(reasons) >= evidence.trainer.ranks_per_node",
            "len(good) == len(reasons) > evidence.trainer.ranks_per_node",
        ),
        ("if begins and begins[-1] not in commits:", "if False:"),
    ],
    "figures": [
        ("max(recoveries, default=None)", "min(recoveries, default=None)"),
        ("len(lineage.abandoned)", "0"),
        ("if r.source == source)", "if r.source != source)"),
    ],
    "goodput": [
        ("useful[node], lost[node], restarts, stalls", "useful[node], lost[node], stalls, stalls"),
        ("if id(attempt) in kept and committed:", "if committed:"),
        ("default=then.t)))", "default=begin.t)))"),
    ],
    "gray": [
        ("over = bound is not None and worst.measured > bound", "over = False"),
        ("own = sum(step[0] for step in window) - longest[0]", "own = sum(s[0] for s in window)"),
        ("own_s = commit.busy_s if told else", "own_s ="),
        ("kinds = (h.Drain, h.Leave, h.Exit)", "kinds = ()"),
        ("*(t - a for a, b in cut if a <= t < b)", "*(t - a for a, b in cut if a <= t)"),
        ("isinstance(view.spec, Pause) or _cuts_off(view.spec)", "True"),
    ],
    "leaks": [
        ("outcome=Outcome.FAIL,", "outcome=Outcome.PASS,"),
        ("if v.injected and not v.healed]", "if False]"),
        ("elif unhealed:", "elif False:"),
    ],
    "ledger": [
        ("n < 1 or", "n < 0 or"),
        ('(n > 1 and promise == "exactly-once")', '(n > 2 and promise == "exactly-once")'),
        ("sorted({*silent, *lineage.holes})", "sorted({*silent})"),
    ],
    "lineage": [
        ("or self._own.get((who, key)) is attempt", "or False"),
        ("or 0 < attempt.committed < self._born[who]", "or False"),
        ("if c.digest == child.parent]", "if c.digest != child.parent]"),
    ],
    "loss": [
        ("_SIGMAS = 4.0", "_SIGMAS = 5.0"),
        ("if commit.t >= begin}", "if commit.t >= 0}"),
        ("key=lambda block: abs(block.off)", "key=lambda block: block.last"),
    ],
    "membership": [
        ("if len(worlds) > 1:", "if len(worlds) > 2:"),
        ("and record.step not in saved", ""),
        ("lineage.attempt_of(commit).first > last", "lineage.attempt_of(commit).first > 0"),
    ],
    "notice": [
        ("kept = gone.by_itself and took_s <= lead_s", "kept = took_s <= lead_s"),
        ("if node not in withdrawn:", "if True:"),
        ("(repeated := owed.get(view.index))", "(repeated := owed.get(None))"),
    ],
    "population": [
        ('and record.role == "worker":', "and True:"),
        ("if record.t > evidence.end_t and isinstance", "if False and isinstance"),
        ("elif count != merged[-1][1] or", "elif"),
    ],
    "progress": [
        ("if loss.recovered is None:", "if False:"),
        ("if loss.caught_up is None:", "if False:"),
        ("if not evidence.commits:", "if False:"),
        ("if not losses or not stalled or", "if True or"),
    ],
    "recovery": [
        ("late = measured > bound", "late = measured > bound + 1"),
        ("if waited_s > bound else Outcome.UNKNOWN", "if False else Outcome.UNKNOWN"),
        ("if (bound := bound_s(evidence)) is not None:", "if (bound := None) is not None:"),
    ],
    "rejoin": [
        ("took_s <= bound_s else Outcome.FAIL", "took_s <= bound_s + 1 else Outcome.FAIL"),
        ("elif end is not None and not end.by_itself:", "elif end is not None:"),
        ("if view.impairs and view.healed is not None:", "if False:"),
    ],
    "reports": [
        ("if bad:", "if False:"),
        ("outcome=Outcome.UNKNOWN,", "outcome=Outcome.PASS,"),
        ("len(bad)} such lines", "0} such lines"),
    ],
    "restarts": [
        ("LOOP = 3  #", "LOOP = 4  #"),
        ("record.by_itself and record.code", "record.code"),
        ("origin.get(replaced, replaced)", "record.node"),
    ],
    "rework": [
        ("if repeated > bound else Outcome.PASS", "if repeated > bound + 1 else Outcome.PASS"),
        ("return promised + lost", "return promised + lost + 1"),
        ("if left and evidence.promises.snapshot_every_steps is not None:", "if False:"),
    ],
    "snapshots": [
        ("_REPORT_S = 1.0", "_REPORT_S = 2.0"),
        ('return ".after-" not in record.name', "return False"),
        ("or newest.step not in good:", "or False:"),
    ],
    "stored": [
        ("and not (isinstance(change, h.StorePut) and now and change.sum == now.sum)", ""),
        ("return last if isinstance(last, h.StorePut) else None", "return None"),
        ("and r.upload in still", ""),
    ],
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=sorted(MUTANTS))
    options = parser.parse_args()
    oracles = {path.stem for path in (ROOT / ORACLES).glob("*.py")} - {"__init__", "comparison"}
    if oracles != set(MUTANTS):
        sys.exit(f"not as the files in {ORACLES}: {sorted(oracles ^ set(MUTANTS))}")
    chosen = [
        (name, *change)
        for name, changes in MUTANTS.items()
        for change in changes
        if options.only in (None, name)
    ]
    with tempfile.TemporaryDirectory() as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(options.jobs):
            copies.put(copy(Path(folder) / str(number)))
        first = copies.get()
        if code := tested(first):
            sys.exit(f"the tests end with code {code} without any change")
        copies.put(first)

        def survives(mutant: tuple[str, str, str]) -> bool:
            place = copies.get()
            try:
                return lives(place, *mutant)
            finally:
                copies.put(place)

        with ThreadPoolExecutor(options.jobs) as pool:
            left = list(pool.map(survives, chosen))
    survivors = [mutant for mutant, alive in zip(chosen, left, strict=True) if alive]
    for name, old, new in survivors:
        show(f"survived in {name}: {old!r} -> {new!r}")
    show(f"{len(survivors)} of {len(chosen)} mutants survived")
    return int(bool(survivors))


def copy(place: Path) -> Path:
    """A copy of the package alone, which is imported instead of the checkout's."""
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "chaosspot", place / "chaosspot", ignore=leave)
    where = python(place, "-c", "import chaosspot; print(chaosspot.__file__)").stdout.strip()
    if where != str(place / "chaosspot" / "__init__.py"):
        sys.exit(f"the tests would import {where}")
    return place


def lives(place: Path, name: str, old: str, new: str) -> bool:
    """Whether the tests pass with that change."""
    path = place / ORACLES / f"{name}.py"
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"{path.name}: {old!r} is there {text.count(old)} times")
    path.write_text(text.replace(old, new))
    try:
        compile(path.read_text(), path.name, "exec")
        code = tested(place)
    finally:
        path.write_text(text)
    if code not in (0, 1):
        sys.exit(f"{path.name}: {old!r} -> {new!r}: the tests could not be run (code {code})")
    return code == 0


def tested(place: Path) -> int:
    """The exit code of pytest: 0 all passed, 1 a test failed."""
    cache = f"cache_dir={place / 'cache'}"
    return python(
        place, "-m", "pytest", "-x", "-q", "-o", cache, str(ROOT / "tests/oracles")
    ).returncode


def python(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
