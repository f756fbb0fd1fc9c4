"""Goes on with the next batch when a step was interrupted.

Planted bug: the batch of the aborted step is dropped: it was drawn, and is not drawn again.
"""

from __future__ import annotations

from minimal import Trainer, main


class Skipping(Trainer):
    def on_peer_lost(self) -> None:
        self.position += 1


if __name__ == "__main__":
    main(Skipping)
