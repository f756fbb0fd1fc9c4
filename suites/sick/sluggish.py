"""Takes seconds to see that a peer is dead.

Planted bug: a failure is believed only after a timeout that is longer than what was promised.
"""

from __future__ import annotations

import time

from minimal import Trainer, main

TIMEOUT_S = 6.0


class Sluggish(Trainer):
    def on_peer_lost(self) -> None:
        time.sleep(TIMEOUT_S)


if __name__ == "__main__":
    main(Sluggish)
