"""Restores all but the learning rate, which starts high again.

Planted bug: after a resume the loss is not what it would have been.
"""

from __future__ import annotations

from script import Script, main


class WarmRestart(Script):
    def restore(self) -> None:
        rate = self.rate
        super().restore()
        self.rate = 4 * rate


if __name__ == "__main__":
    main(WarmRestart)
