"""A newcomer is never let in.

Planted bug: a node whose name is not among those of the start waits for ever instead of joining.
"""

from __future__ import annotations

import os
import signal

from minimal import Trainer, main

FIRST = ("node-0", "node-1", "node-2")


class Outsider(Trainer):
    def run(self) -> str:
        while os.environ.get("CHAOSSPOT_NODE", "node-0") not in FIRST:
            signal.pause()
        return super().run()


if __name__ == "__main__":
    main(Outsider)
