"""A program that stands in for toxiproxy-server: our own server under that name and its flags."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from chaosspot.services.proxy import real

HEAD = f"#!{sys.executable}\n"
SERVER = (
    HEAD
    + """
import asyncio, sys
from chaosspot.services.proxy.serve import Options, serve
assert sys.argv.pop() == "-proxy-metrics"
given = dict(zip([word.lstrip("-") for word in sys.argv[1::2]], sys.argv[2::2]))
assert sorted(given) == ["host", "port", "seed"], given
host, port, seed = given["host"], int(given["port"]), int(given["seed"])
options = Options(host=host, port=port, seed=seed, metrics=True)
asyncio.run(serve(options, write=print))
"""
)


def program(folder: Path, text: str) -> Mapping[str, str]:
    """An environment with that program on its PATH as toxiproxy-server."""
    found = folder / real.PROGRAM
    found.write_text(text)
    found.chmod(found.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": str(folder)}
