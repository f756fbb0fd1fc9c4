"""Saves on a notice, but slowly.

Planted bug: the store is slow while a zone drains, and the last checkpoint ends after the deadline.
"""

from __future__ import annotations

import time
from pathlib import Path

from solo import Solo, main

FILE_S = 2.0


class Late(Solo):
    def put(self, path: Path, text: str) -> None:
        if self.notice:
            time.sleep(FILE_S)
        super().put(path, text)


if __name__ == "__main__":
    main(Late)
