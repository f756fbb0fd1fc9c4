"""Says that it drains, and works on.

Planted bug: a notice and SIGTERM set a flag that nothing reads; nothing is saved.
"""

from __future__ import annotations

from typing import Any

from solo import Solo, main

from chaosspot import probe


class Swallower(Solo):
    stopping = False

    def warn(self, **notice: Any) -> None:
        probe.emit("notice", **notice)
        self.stopping = True


if __name__ == "__main__":
    main(Swallower)
