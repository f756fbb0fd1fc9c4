"""Makes room for a checkpoint by removing those there are.

Planted bug: until the new one is there, nothing is: a kill meanwhile loses everything.
"""

from __future__ import annotations

from bucket import Bucket, main


class Pruner(Bucket):
    def store_checkpoint(self, step: int, body: bytes) -> None:
        for old in self.saved():
            self.remove(old)
        super().store_checkpoint(step, body)


if __name__ == "__main__":
    main(Pruner)
