"""Waits for ever after a peer's death.

Planted bug: a collective without a timeout, which still expects the dead peer's part.
"""

from __future__ import annotations

import signal

from minimal import Trainer, main


class Hanging(Trainer):
    def on_peer_lost(self) -> None:
        while True:
            signal.pause()


if __name__ == "__main__":
    main(Hanging)
