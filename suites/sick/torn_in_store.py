"""Writes every checkpoint over the last one, in the object store.

Planted bug: a kill between the two objects leaves neither the new checkpoint nor the old one.
"""

from __future__ import annotations

from bucket import Bucket, main


class TornInStore(Bucket):
    def state_key(self, step: int) -> str:
        return "step-0/state.bin"

    def manifest_key(self, step: int) -> str:
        return "step-0/manifest.json"


if __name__ == "__main__":
    main(TornInStore)
