"""A loop that saves one file every five steps: over the last one, or with ``--rename`` beside it.

``ckpt_chaos.py`` runs both ways under both tools. Its state is a number that each step changes, so
that a wrong resume shows in every digest after it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from chaosspot import probe

SAVE_STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-s", type=float, default=0.0)
    parser.add_argument("--rename", action="store_true")
    options = parser.parse_args()
    path = Path(os.environ["CHAOSSPOT_STORE"]) / "saved.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"step": 0, "number": 1}
    if path.exists():
        state = json.loads(path.read_text())
        print(f"resumed from step {state['step']}")  # noqa: T201 - ckpt-chaos reads it
    while state["step"] < options.steps:
        time.sleep(options.step_s)
        state = {"step": state["step"] + 1, "number": state["number"] * 48271 % (2**31 - 1)}
        probe.emit("commit", step=state["step"], digest=str(state["number"]))
        if state["step"] % SAVE_STEPS == 0:
            save(json.dumps(state), path, rename=options.rename)


def save(text: str, path: Path, *, rename: bool) -> None:
    target = path.with_suffix(".new") if rename else path
    half = len(text) // 2
    with target.open("w") as file:
        file.write(text[:half])
        file.flush()
        probe.point("save.half")
        file.write(text[half:])
        file.flush()
        os.fsync(file.fileno())
    if rename:
        target.replace(path)


if __name__ == "__main__":
    main()
