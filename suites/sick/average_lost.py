"""Restores all but the running average of the weights.

Planted bug: after a resume the average starts again. No loss shows it; what the job ends with does.
"""

from __future__ import annotations

from script import Script, main


class AverageLost(Script):
    def restore(self) -> None:
        super().restore()
        self.average = self.weights


if __name__ == "__main__":
    main(AverageLost)
