"""Ignores the notice and SIGTERM: works on until it is killed.

Planted bug: a drain that is never begun. It breaks the promise `drains_on_notice`.
"""

from __future__ import annotations

from typing import Any

from minimal import Trainer, main


class Deaf(Trainer):
    def noticed(self) -> dict[str, Any] | None:
        return None


if __name__ == "__main__":
    main(Deaf)
