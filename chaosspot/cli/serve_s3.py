"""The command that serves an object store, without any attack."""

from __future__ import annotations

from typing import Annotated

import typer

from chaosspot.cli import serving
from chaosspot.cli.common import guarded, stop

__all__ = ["s3"]


@guarded
def s3(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    beyond_loopback: Annotated[
        bool, typer.Option("--beyond-loopback", help="Allow a host that others may reach.")
    ] = False,
    bucket: Annotated[str, typer.Option(help="The bucket that is there.")] = "chaosspot",
    region: Annotated[str, typer.Option(help="The region it is in.")] = "us-east-1",
    versioned: Annotated[
        bool, typer.Option("--versioned", help="Keep every version of an object.")
    ] = False,
    seed: Annotated[int, typer.Option(help="For misbehaviours that name none.", min=0)] = 0,
    misbehave: Annotated[
        list[str] | None,
        typer.Option(
            help="Such as slow-down,rate=0.5,operations=put+get, or a TOML file; may be repeated."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Serve an object store that speaks S3 until Ctrl-C or SIGTERM; it begins empty.

    Says what its clients need to know, and then each misbehaviour that it makes.
    """
    from chaosspot.services.s3.options import Options, misbehaviours_of
    from chaosspot.services.s3.serve import serve

    options = Options(
        host=host,
        port=port,
        beyond_loopback=beyond_loopback,
        bucket=bucket,
        region=region,
        versioned=versioned,
        misbehaviours=misbehaviours_of(misbehave or (), seed=seed),
        json=json,
    )
    try:
        serving.serve(lambda write: serve(options, write=write))
    except OSError as error:
        if error.strerror is None:  # moto's own trouble, not that of an address
            raise
        stop(error.strerror, 2)
