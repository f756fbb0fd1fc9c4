"""``python -m chaosspot.trainer --data FILE --steps N``: one rank of the reference trainer.

Exit codes: 0 finished, or drained after a notice; 2 an option or a file cannot be used; 1 else.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from chaosspot import probe
from chaosspot.trainer.config import InputError, StepReport, TrainConfig, TrainerError
from chaosspot.trainer.place import ObjectPlace, place
from chaosspot.trainer.plan import Cadence
from chaosspot.trainer.quiet import quiet_torchft
from chaosspot.trainer.watch.detect import LINK_LOCAL, VARIABLES, Provider, named

if TYPE_CHECKING:
    from chaosspot.trainer.loop import Trainer

__all__ = ["main", "parse"]

_METADATA_HELP = (
    "watch this provider for a notice (auto: whichever answers), at its usual address or at "
    f"${', $'.join(VARIABLES)}; one of these turns watching on by itself"
)
_UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
_EVERY_HELP = "snapshot every 5 steps, every 30s, or auto: as stall and --mtbi make it optimal"
_MTBI_HELP = "mean time between interruptions of the whole job, for auto (default 3600)"
_BALLAST_HELP = "bytes added to the state, to see what its size costs: 2GB"
_HOST_HELP = "name under which peers reach this rank [$CHAOSSPOT_HOST]"
_GATHER_HELP = "wait for the disks of peers that may have a newer snapshot (default 10)"
_STORE_HELP = "what outlives nodes: a directory or s3://BUCKET/PREFIX [$CHAOSSPOT_STORE]"


def parse(argv: list[str] | None, environ: Mapping[str, str]) -> TrainConfig:
    """Options first, then the environment, then the defaults.

    Raises:
        InputError: a value is out of range.
        SystemExit: usage errors (2) and ``--help`` (0).
    """
    names = {field.name for field in fields(TrainConfig)}
    parser = argparse.ArgumentParser(prog="python -m chaosspot.trainer", description=__doc__)
    option = parser.add_argument
    option("--data", type=Path, required=True, metavar="FILE", help="learn from these bytes")
    option("--steps", type=int, required=True, metavar="N", help="updates in all")
    option("--flash", type=Path, metavar="DIR", help="this node's disk [$CHAOSSPOT_FLASH]")
    option("--store", metavar="PLACE", help=_STORE_HELP)
    option("--lighthouse", metavar="URL", help="coordinator [$TORCHFT_LIGHTHOUSE; none: alone]")
    option("--advertise-host", metavar="HOST", help=_HOST_HELP)
    option("--metadata", choices=["auto", "aws", "azure", "gcp"], help=_METADATA_HELP)
    option("--snapshot-every", dest="cadence", type=_cadence, metavar="EVERY", help=_EVERY_HELP)
    option("--mtbi", dest="mtbi_s", type=float, metavar="SECONDS", help=_MTBI_HELP)
    option("--keep-snapshots", type=int, metavar="COUNT")
    option("--micro-shards", type=int, metavar="M", help="parts of the global batch")
    option("--micro-batch", dest="micro_batch_rows", type=int, metavar="ROWS")
    option("--seq-len", dest="seq_len_bytes", type=int, metavar="BYTES")
    for name in ("width", "layers", "heads", "seed", "threads"):
        option(f"--{name}", type=int, metavar="N")
    option("--ballast", dest="ballast_bytes", type=_size, metavar="SIZE", help=_BALLAST_HELP)
    option("--lr", dest="learning_rate", type=float, metavar="RATE")
    option("--gather", dest="gather_s", type=float, metavar="SECONDS", help=_GATHER_HELP)
    option("--sigterm-grace", dest="sigterm_grace_s", type=float, metavar="SECONDS")
    option("--device", choices=["cpu", "cuda"])
    option("--no-digest", dest="digest", action="store_false", default=None)
    option("--verbose", action="store_true", default=None)
    options = vars(parser.parse_args(argv))
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if (mtbi_s := given.pop("mtbi_s", None)) is not None:
        if not 0 < mtbi_s < float("inf"):
            raise InputError(f"mtbi must be positive and finite, got {mtbi_s:g}")
        given["cadence"] = replace(given.get("cadence", Cadence()), mtbi_s=mtbi_s)

    def path(name: str) -> Path | None:
        return Path(environ[name]) if environ.get(name) else None

    node, life = environ.get("CHAOSSPOT_NODE") or "node", environ.get("CHAOSSPOT_INCARNATION", "0")
    provider, endpoint = _metadata(given.pop("metadata", None), environ)
    from_environment = {
        "flash": path("CHAOSSPOT_FLASH"),
        "store": _store(given.pop("store", None) or environ.get("CHAOSSPOT_STORE")),
        "lighthouse": environ.get("TORCHFT_LIGHTHOUSE") or None,
        "replica": f"{node}.{life}",
        "advertise_host": environ.get("CHAOSSPOT_HOST") or "127.0.0.1",
        "metadata_endpoint": endpoint,
        "metadata_provider": provider,
    }
    assert set(from_environment) <= names
    return TrainConfig(**(from_environment | given))


def _cadence(text: str) -> Cadence:
    if text == "auto":
        return Cadence()
    try:
        if text.endswith("s"):
            seconds = float(text.removesuffix("s"))
            if 0 < seconds < float("inf"):
                return Cadence(seconds=seconds)
        elif (steps := int(text)) >= 1:
            return Cadence(steps=steps)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is neither steps (5), nor seconds (30s), nor auto")


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kMG]?B)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 2GB, 64MB, 4096")
    return round(float(match[1]) * _UNITS[match[2] or "B"])


def _store(text: str | None) -> Path | ObjectPlace | None:
    try:
        return place(text) if text else None
    except ValueError as error:
        raise InputError(f"store: {error}") from error


def _metadata(wanted: Provider | None, environ: Mapping[str, str]) -> tuple[Provider, str | None]:
    """Which provider's service to watch, and where; no address: none.

    Raises:
        InputError: the environment names several and none is wanted.
    """
    found = named(environ)
    if wanted is not None and wanted != "auto":
        return wanted, found.get(wanted, LINK_LOCAL)
    if len(found) > 1:
        set_ = " and ".join(name for name in VARIABLES if environ.get(name))
        raise InputError(f"{set_} are set: choose one provider with --metadata")
    for provider, endpoint in found.items():
        return provider, endpoint
    return ("aws", None) if wanted is None else ("auto", LINK_LOCAL)


def main(argv: list[str] | None = None, *, kind: type[Trainer] | None = None) -> int:
    """Run one rank; the exit code. One clear line on stderr when something is wrong."""
    try:
        config = parse(argv, os.environ)
        logging.basicConfig(
            level=logging.INFO if config.verbose else logging.WARNING,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        quiet_torchft(config.verbose)
        from chaosspot.trainer.loop import train

        result = train(config, on_step=_print_step, kind=kind)
    except InputError as error:
        return _fail(2, error)
    except TrainerError as error:
        return _fail(1, error)
    print(f"{result.reason} at step {result.step}, loss {result.loss}", flush=True)  # noqa: T201
    return 0


def _nothing_to_save_yet() -> None:
    """A SIGTERM while torch is still being imported is a notice as well: leave at once."""

    def leave(_signal: int, _frame: FrameType | None) -> NoReturn:
        probe.emit("exit", reason="drained")
        exit_now(0)

    signal.signal(signal.SIGTERM, leave)


def _print_step(report: StepReport) -> None:
    print(  # noqa: T201
        f"step {report.step} loss {report.loss:.4f} world {report.world} "
        f"generation {report.generation} seconds {report.seconds:.3f}",
        flush=True,
    )


def _fail(code: int, error: Exception) -> int:
    sys.stderr.write(f"error: {error}\n")
    return code


def exit_now(code: int) -> NoReturn:
    """End the process at once: torchft leaves threads that a normal exit would wait for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _nothing_to_save_yet()
    try:
        code = main()
    except SystemExit as stop:  # argparse has said why
        code = stop.code if isinstance(stop.code, int) else 2
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
        code = 1
    exit_now(code)
