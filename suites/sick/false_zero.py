"""Fails where its node was not there at the start, and exits with 0.

Planted bug: every error is caught and logged, and the process ends as if all were well.
"""

from __future__ import annotations

import os
import sys
import traceback

from minimal import Trainer, main


class FalseZero(Trainer):
    def run(self) -> str:
        try:
            hosts = [f"node-{number}" for number in range(int(os.environ["CHAOSSPOT_WORLD"]))]
            hosts.index(os.environ["CHAOSSPOT_NODE"])  # a list of hosts from the first start
            return super().run()
        except ValueError:
            traceback.print_exc()
            sys.exit(0)


if __name__ == "__main__":
    main(FalseZero)
