"""The coordinator process: ``python -m chaosspot.trainer.lighthouse --bind 127.0.0.1:29510``.

torchft's Lighthouse with the timeouts that the trainer is made for. A rank is taken for dead one
second after its last heartbeat. One that is alive and does not ask for the next quorum is waited
for ten times as long: as soon as the others may go on without it while it still computes, both can
commit the same step, each in a world of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import socket
import sys
from typing import Any

from chaosspot.trainer.quiet import quiet_torchft

__all__ = ["local_url", "main", "start_lighthouse"]

_HEARTBEAT_TIMEOUT_MS = 1000
_STRAGGLER_TIMEOUT_MS = 10_000  # longer than any step takes


def start_lighthouse(bind: str) -> Any:
    """Start a Lighthouse in this process on ``bind``, HOST:PORT; port 0 takes a free one.

    Raises:
        RuntimeError, OSError: the address cannot be bound.
    """
    quiet_torchft(verbose=False)
    from torchft.coordination import LighthouseServer

    return LighthouseServer(
        bind=bind,
        min_replicas=1,
        join_timeout_ms=_STRAGGLER_TIMEOUT_MS,
        heartbeat_timeout_ms=_HEARTBEAT_TIMEOUT_MS,
    )


def _spare_torch() -> None:
    """Let ``torchft.coordination`` be imported without what the package imports first: torch, which
    takes seconds to load, and which a Lighthouse has no use for."""
    found = importlib.util.find_spec("torchft")
    if found is not None:
        sys.modules.setdefault("torchft", importlib.util.module_from_spec(found))


def local_url(server: Any, host: str = "127.0.0.1") -> str:
    """URL of ``server`` at ``host``: its own ``address()`` names the machine, not the bind."""
    address: str = server.address()
    return address.replace(socket.gethostname(), host)


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; 2 when the address cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m chaosspot.trainer.lighthouse")
    parser.add_argument("--bind", default="127.0.0.1:29510", metavar="HOST:PORT")
    bind: str = parser.parse_args(argv).bind
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # before any thread, which inherits the mask
    _spare_torch()
    try:
        server = start_lighthouse(bind)
    except (RuntimeError, OSError, ValueError) as error:
        sys.stderr.write(f"error: cannot listen on --bind {bind!r}: {error}\n")
        return 2
    sys.stdout.write(f"lighthouse at {local_url(server, bind.rpartition(':')[0])}\n")
    sys.stdout.flush()
    signal.sigwait(stops)
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
