"""What the harness costs the trainer it watches, in interleaved pairs.

Two ranks train the reference model for a number of steps, by turns under the harness (events,
points, metadata, the conductor reading along) and alone; each pair gives a ratio of median step
times. Fails only if the lower 95 % bound of the mean ratio exceeds 1.03: a noisy machine cannot
fail it, a harness that slows training does. The cost of the digest, which is the trainer's own, is
shown apart.

    python suites/bench/overhead.py [--pairs 10] [--steps 60]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import chaosspot
from chaosspot import trainers
from chaosspot.cluster.processes import free_loopback_address
from chaosspot.schedule import ClusterSpec, Group, Schedule
from chaosspot.trainers import Coordinator, Timeouts, Trainer

BOUND = 1.03
RANKS = 2
WARM_UP = 15  # steps at the start that are left out
COMMAND = (
    "{python}", "-m", "chaosspot.trainer",
    "--data", "{content}/fixtures/corpus/apache-2.0.txt", "--steps", "{steps}",
)  # fmt: skip
LIGHTHOUSE = ("{python}", "-m", "chaosspot.trainer.lighthouse", "--bind", "{coordinator}")
TRAINER = Trainer(
    command=COMMAND,
    name="timed",
    environment={"TORCHFT_LIGHTHOUSE": "http://{coordinator}"},
    coordinator=Coordinator(command=LIGHTHOUSE),
    timeouts=Timeouts(start_s=120.0, stall_s=60.0, run_s=600.0),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    ratios, bare_s, digest = [], [], []
    for number in range(options.pairs):
        turns = [watched, alone] if number % 2 else [alone, watched]
        took = {turn: turn(options.steps) for turn in turns}
        ratios.append(took[watched] / took[alone])
        bare_s.append(took[alone])
        if number < 3:
            digest.append(took[alone] / alone(options.steps, "--no-digest"))
        show(
            f"pair {number + 1:2}: alone {took[alone] * 1e3:.1f} ms a step, ratio {ratios[-1]:.3f}"
        )
    mean, low, high = interval(ratios)
    report = {
        "step_alone_s": round(statistics.median(bare_s), 4),
        "ratio_mean": round(mean, 4),
        "ratio_95": [round(low, 4), round(high, 4)],
        "digest_ratio": [round(ratio, 3) for ratio in digest],
        "bound": BOUND,
        "load": os.getloadavg(),
    }
    show(json.dumps(report, indent=2))
    return int(low > BOUND)


def watched(steps: int) -> float:
    """Median seconds a step under the harness."""
    with tempfile.TemporaryDirectory() as runs:
        plan = Schedule(cluster=ClusterSpec(group=(Group(count=RANKS),)), seed=1)
        verdict = chaosspot.attack(plan, trainer=TRAINER, steps=steps, runs=runs)
        return median_step_s((Path(verdict.run) / "logs" / "node-0.log").read_text())


def alone(steps: int, *more: str) -> float:
    """Median seconds a step of the same ranks without anything of the harness."""
    values = trainers.values(coordinator=free_loopback_address("bench"), steps=steps)
    base = TRAINER.surroundings(values)
    with tempfile.TemporaryDirectory() as folder:
        lighthouse = subprocess.Popen(
            TRAINER.argv(LIGHTHOUSE, values), env=base, stdout=subprocess.DEVNULL
        )
        ranks = [
            subprocess.Popen(
                (*TRAINER.argv(COMMAND, values), *more),
                env={
                    **base,
                    "CHAOSSPOT_NODE": f"node-{number}",
                    "CHAOSSPOT_FLASH": f"{folder}/flash-{number}",
                    "CHAOSSPOT_STORE": f"{folder}/store",
                },
                stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                text=True,
            )
            for number in range(RANKS)
        ]
        try:
            output, _ = ranks[0].communicate(timeout=600)
            for rank in ranks:
                if rank.wait(timeout=60):
                    sys.exit(f"a rank exited with code {rank.returncode}")
        finally:
            for process in (*ranks, lighthouse):
                process.kill()
                process.wait()
        return median_step_s(output)


def median_step_s(output: str) -> float:
    times = [float(t) for t in re.findall(rf"world {RANKS} .* seconds ([\d.]+)", output)]
    if len(times) <= 2 * WARM_UP:
        sys.exit(f"only {len(times)} steps were made by {RANKS} ranks:\n{output[-2000:]}")
    return statistics.median(times[WARM_UP:])


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean and its two-sided 90 % interval: each end is a 95 % bound."""
    logs = [math.log(ratio) for ratio in ratios]
    # Student's t, 95 %, by degrees of freedom; the normal value beyond 30.
    table = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 9: 1.833, 14: 1.761, 19: 1.729}
    t = table[max(df for df in table if df <= max(1, len(logs) - 1))]
    spread = t * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    mean = statistics.fmean(logs)
    return math.exp(mean), math.exp(mean - spread), math.exp(mean + spread)


def show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
