"""Reports a checkpoint durable before it is uploaded.

Planted bug: what is reported durable is uploaded when the next checkpoint is due.
"""

from __future__ import annotations

from bucket import Bucket, main


class LiarInStore(Bucket):
    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.staged: list[tuple[int, bytes, int]] = []

    def store_checkpoint(self, step: int, body: bytes) -> None:
        for at, earlier, position in self.staged:
            self.upload(self.state_key(at), earlier)
            self.upload(self.manifest_key(at), self.manifest(at, position, earlier))
        self.staged = [(step, body, self.position)]


if __name__ == "__main__":
    main(LiarInStore)
