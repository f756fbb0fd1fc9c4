"""Dies whenever it has something to restore.

Planted bug: what is saved lacks a key that the loading needs. No restart mends that.
"""

from __future__ import annotations

from solo import Parts, Solo, main


class CrashLoop(Solo):
    def parts(self) -> Parts:
        parts = super().parts()
        del parts["random"]
        return parts


if __name__ == "__main__":
    main(CrashLoop)
