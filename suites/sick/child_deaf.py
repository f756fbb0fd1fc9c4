"""An agent that reads the notice and sends SIGTERM to the training it started.

Planted bug: a shell stands between them. It runs its trap only when the training has ended, and
passes nothing on. (With `exec "$@"` it would not be there any more.)
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import solo
from minimal import METADATA, watch

SHELL = 'trap "echo told to stop" TERM; "$@"; exit $?'


def main() -> None:
    services = [(cloud, os.environ.pop(name, None)) for name, cloud in METADATA.items()]
    training = [sys.executable, solo.__file__, *sys.argv[1:]]
    shell = subprocess.Popen(["sh", "-c", SHELL, "sh", *training])
    for cloud, endpoint in services:
        if endpoint is None:
            continue
        tell = [cloud, endpoint, lambda **_: shell.terminate()]
        threading.Thread(target=watch, args=tell, daemon=True).start()
    sys.exit(shell.wait())


if __name__ == "__main__":
    main()
