"""Puts the manifest of a checkpoint before what it lists.

Planted bug: a kill between the two leaves a checkpoint that looks complete and is not.
"""

from __future__ import annotations

from bucket import Bucket, main

from chaosspot import probe


class Hasty(Bucket):
    def store_checkpoint(self, step: int, body: bytes) -> None:
        self.upload(self.manifest_key(step), self.manifest(step, self.position, body))
        probe.point("upload.before-manifest")
        self.upload(self.state_key(step), body)


if __name__ == "__main__":
    main(Hasty)
