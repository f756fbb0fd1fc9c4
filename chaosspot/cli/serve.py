"""Commands that serve what stands in for a cloud, without any attack."""

from __future__ import annotations

from typing import Annotated

import typer

from chaosspot.cli import serving
from chaosspot.cli.common import guarded, stop

__all__ = ["app"]

app = typer.Typer(help="Serve what stands in for a cloud, without any attack.")


@app.callback()
def _group() -> None:
    """Keeps ``metadata`` a command of its own, though it is the only one."""


@app.command()
@guarded
def metadata(
    cloud: Annotated[str, typer.Option(help="aws, gcp or azure.")] = "aws",
    nodes: Annotated[int, typer.Option(help="How many nodes, each with a listener.")] = 1,
    host: Annotated[str, typer.Option(help="Address of the first node.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the first node; 0 takes free ones.")] = 0,
    own_addresses: Annotated[
        bool, typer.Option("--own-addresses", help="One port, the next address for each node.")
    ] = False,
    beyond_loopback: Annotated[
        bool, typer.Option("--beyond-loopback", help="Allow a host that others may reach.")
    ] = False,
    control_port: Annotated[int, typer.Option(help="Port of the control; 0 takes one.")] = 0,
    zones: Annotated[str, typer.Option(help="Zones, with commas; nodes go round.")] = "a",
    family: Annotated[str, typer.Option(help="Instance type.")] = "p4d.24xlarge",
    pool: Annotated[str, typer.Option(help="spot or reserved.")] = "spot",
    group: Annotated[str, typer.Option(help="Azure: the scale set.")] = "",
    region: Annotated[str | None, typer.Option(help="Where zones do not say it.")] = None,
    notice_after: Annotated[
        float | None, typer.Option(help="Seconds from the start to the notice; without it none.")
    ] = None,
    noticed: Annotated[int | None, typer.Option(help="How many nodes get it; all.")] = None,
    lead: Annotated[float, typer.Option(help="Seconds from the notice to its deadline.")] = 120.0,
    action: Annotated[str | None, typer.Option(help="What is announced; the usual one.")] = None,
    lasts: Annotated[
        float | None, typer.Option(help="Seconds from the deadline until it is over.")
    ] = None,
    misbehave: Annotated[
        list[str] | None, typer.Option(help="Such as status,status=503,rate=0.5; may be repeated.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A cloud's setting: tokens_required=false.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Serve the metadata of nodes until Ctrl-C or SIGTERM; says what their clients need to know.

    Nodes can be noticed and services made to misbehave later, too, at the control's address.
    """
    from chaosspot.services.metadata.options import Options, misbehaviour_of, settings_of
    from chaosspot.services.metadata.serve import serve

    options = Options(
        cloud=cloud,
        nodes=nodes,
        host=host,
        port=port,
        own_addresses=own_addresses,
        beyond_loopback=beyond_loopback,
        control_port=control_port,
        zones=tuple(zones.split(",")),
        family=family,
        pool=pool,
        group=group,
        region=region,
        notice_after_s=notice_after,
        noticed=noticed,
        lead_s=lead,
        action=action,
        lasts_s=lasts,
        misbehaviours=tuple(misbehaviour_of(text) for text in misbehave or ()),
        settings=settings_of(cloud, set_ or ()),
        json=json,
    )
    try:
        serving.serve(lambda write: serve(options, write=write))
    except OSError as error:
        stop(error.strerror or str(error), 2)
