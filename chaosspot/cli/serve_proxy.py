"""``chaosspot serve proxy``: a Toxiproxy server without Toxiproxy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chaosspot.cli import serving
from chaosspot.cli.common import guarded, stop

__all__ = ["proxy"]


@guarded
def proxy(
    host: Annotated[str, typer.Option("--host", "-host", help="Host of the API.")] = "localhost",
    port: Annotated[
        int, typer.Option("--port", "-port", help="Port of the API; 0 takes a free one.")
    ] = 8474,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-config", help="JSON file of proxies to begin with."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", "-seed", help="Decides what is left to chance.")
    ] = 0,
    proxy_metrics: Annotated[
        bool, typer.Option("--proxy-metrics", "-proxy-metrics", help="Serve /metrics.")
    ] = False,
    beyond_loopback: Annotated[
        bool, typer.Option("--beyond-loopback", help="Allow addresses that others may reach.")
    ] = False,
) -> None:
    """Serve proxies that fail on command until Ctrl-C or SIGTERM, by Toxiproxy's HTTP API.

    Takes the flags of toxiproxy-server, with one dash or two. Where it differs from it on purpose
    is listed in suites/README.md.
    """
    from chaosspot.services.proxy.serve import Options, serve

    options = Options(
        host=host,
        port=port,
        config=config,
        seed=seed,
        metrics=proxy_metrics,
        beyond_loopback=beyond_loopback,
    )
    try:
        serving.serve(lambda write: serve(options, write=write))
    except OSError as error:
        stop(error.strerror or str(error), 2)
