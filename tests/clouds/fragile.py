"""The small trainer with a watcher that the first thing it does not expect ends.

It shows that the schedules with a notice under misbehaviour can be failed.
"""

from __future__ import annotations

import sys
from urllib.error import HTTPError

import minimal
from minimal import Ask, Cloud, Told


def once(cloud: Cloud) -> Cloud:
    def ask_or_end(ask: Ask) -> Told:
        try:
            return cloud(ask)
        except HTTPError as error:
            if error.code != 404:
                sys.exit()  # ends this thread alone
            return None
        except Exception:  # noqa: BLE001 - that is the bug
            sys.exit()

    ask_or_end.__name__ = cloud.__name__
    return ask_or_end


if __name__ == "__main__":
    minimal.METADATA = {name: once(cloud) for name, cloud in minimal.METADATA.items()}
    minimal.main()
