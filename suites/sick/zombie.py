"""Goes on writing to the store when it has left.

Planted bug: an uploader outlives the leave, and stores again the state that the node left with.
"""

from __future__ import annotations

import time

from minimal import Trainer, main

UPLOADS = 3
EVERY_S = 0.1


class Zombie(Trainer):
    def run(self) -> str:
        reason = super().run()
        for _ in range(UPLOADS if reason == "drained" else 0):
            time.sleep(EVERY_S)
            self.save()
        return reason


if __name__ == "__main__":
    main(Zombie)
