"""The coordinator's process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIGHTHOUSE = (sys.executable, "-m", "chaosspot.trainer.lighthouse", "--bind")


def test_it_starts_without_torch_and_ends_cleanly() -> None:
    with subprocess.Popen([*LIGHTHOUSE, "127.0.0.1:0"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"lighthouse at http://127.0.0.1:")
            loaded = Path(f"/proc/{process.pid}/maps").read_text()
            assert "_torchft" in loaded
            assert "libtorch" not in loaded
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
