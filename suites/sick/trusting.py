"""Restores what it reads without verifying it.

Planted bug: a bit that was read wrong goes on in the weights for ever.
"""

from __future__ import annotations

from typing import Any

from bucket import Bucket, main


class Trusting(Bucket):
    def whole(self, body: bytes, manifest: dict[str, Any]) -> bool:
        return True


if __name__ == "__main__":
    main(Trusting)
