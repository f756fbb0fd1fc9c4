"""Restores the checkpoint with the highest number.

Planted bug: whether that checkpoint is whole is not looked at; what it lacks stays as it was.
"""

from __future__ import annotations

import json
from typing import Any

from solo import Solo, main


class NewestByName(Solo):
    def newest(self) -> dict[str, Any] | None:
        if not self.saved():
            return None
        folder = self.checkpoint(self.saved()[0])
        fresh = [json.dumps(part) for part in self.parts().values()]
        found = [(folder / f"{name}.json") for name in self.parts()]
        texts = fresh + [path.read_text() for path in found if path.exists()]
        return {key: value for text in texts for key, value in json.loads(text).items()}


if __name__ == "__main__":
    main(NewestByName)
