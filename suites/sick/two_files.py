"""Saves the model and the optimizer apart, each over its last file.

Planted bug: each file is whole, but a kill between them leaves a model ahead of its optimizer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from solo import Solo, main


class TwoFiles(Solo):
    def checkpoint(self, step: int) -> Path:
        return self.store / "checkpoint-0"

    def newest(self) -> dict[str, Any] | None:
        paths = [self.checkpoint(0) / f"{name}.json" for name in self.parts()]
        if not all(path.exists() for path in paths):
            return None
        return {key: it for path in paths for key, it in json.loads(path.read_text()).items()}


if __name__ == "__main__":
    main(TwoFiles)
