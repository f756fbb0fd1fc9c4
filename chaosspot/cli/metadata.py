"""Commands over a metadata service that is served already: what its HTTP control can do."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import typer
from rich.markup import escape

from chaosspot.cli.common import Json, guarded, out, print_json

__all__ = ["app"]

app = typer.Typer(
    help="Notices of a metadata service that `chaosspot serve metadata` serves.",
    no_args_is_help=True,
)

_ANSWER_S = 10.0

Url = Annotated[str, typer.Argument(help="The control's address, as `serve metadata` says it.")]
Nodes = Annotated[list[str] | None, typer.Argument(help="Names, such as node-0.")]
All = Annotated[bool, typer.Option("--all", help="All nodes.")]
Action = Annotated[str | None, typer.Option(help="Only what announces this; everything.")]


@app.command("list")
@guarded
def list_(url: Url, json: Json = False) -> None:
    """Every node, what is announced to it, and what makes it misbehave."""
    told = {**_ask(url, "GET", "/nodes"), **_ask(url, "GET", "/misbehaviours")}
    if json:
        print_json(told)
        return
    for node in told["nodes"]:
        requests, reads = node["requests"], node["reads"]
        _say(f"{node['node']}  {node['endpoint']}  {requests} requests, {reads} told of a notice")
        for notice in node["notices"]:
            _say(f"  {notice['action']}  {_due(notice['deadline_wall_s'])}")
    for how in told["misbehaviours"]:
        said = ", ".join(f"{key}={value}" for key, value in how.items() if key != "number")
        _say(f"misbehaviour {how['number']}  {said}")


@app.command()
@guarded
def publish(
    url: Url,
    nodes: Nodes = None,
    everyone: All = False,
    lead: Annotated[float, typer.Option(help="Seconds from now to the deadline.")] = 120.0,
    action: Annotated[str | None, typer.Option(help="What is announced; the usual one.")] = None,
    lasts: Annotated[
        float | None, typer.Option(help="Seconds from the deadline until it is over.")
    ] = None,
    json: Json = False,
) -> None:
    """Announce to nodes that they will be taken, or something else; says when."""
    for name, value in (("lead", lead), ("lasts", lasts)):
        if value is not None and not math.isfinite(value):  # no number in JSON
            raise ValueError(f"--{name} {value}: expected seconds")
    wanted = {"nodes": _named(nodes, everyone), "lead_s": lead, "action": action, "lasts_s": lasts}
    told = _ask(url, "POST", "/notices", wanted)
    if json:
        print_json(told)
        return
    for node, deadline_wall_s in told["deadlines"].items():
        _say(f"{node}  {_due(deadline_wall_s)}")


@app.command()
@guarded
def withdraw(
    url: Url, nodes: Nodes = None, everyone: All = False, action: Action = None, json: Json = False
) -> None:
    """Take notices back."""
    _close(url, "withdraw", "withdrawn", _named(nodes, everyone), action, json)


@app.command()
@guarded
def end(
    url: Url, nodes: Nodes = None, everyone: All = False, action: Action = None, json: Json = False
) -> None:
    """What was announced is over."""
    _close(url, "end", "over", _named(nodes, everyone), action, json)


@app.command()
@guarded
def misbehave(
    url: Url,
    how: Annotated[str, typer.Argument(help="Such as status,status=503,rate=0.5,nodes=node-*.")],
    json: Json = False,
) -> None:
    """Make the service misbehave; says the number under which that is stopped."""
    from msgspec import to_builtins

    from chaosspot.services.metadata.options import misbehaviour_of

    told = _ask(url, "POST", "/misbehaviours", to_builtins(misbehaviour_of(how)))
    if json:
        print_json(told)
    else:
        _say(f"misbehaviour {told['number']}")


@app.command()
@guarded
def behave(
    url: Url,
    number: Annotated[int, typer.Argument(min=1, help="As `misbehave` or `list` says it.")],
    json: Json = False,
) -> None:
    """Stop a misbehaviour."""
    told = _ask(url, "DELETE", f"/misbehaviours/{number}")
    if json:
        print_json(told)
    else:
        _say(f"misbehaviour {number} is over")


def _close(
    url: str, how: str, said: str, nodes: list[str] | str, action: str | None, json: bool
) -> None:
    told = _ask(url, "POST", f"/notices/{how}", {"nodes": nodes, "action": action})
    if json:
        print_json(told)
        return
    for node, actions in told["closed"].items():
        what = f"{', '.join(actions)}: {said}" if actions else "nothing was announced"
        _say(f"{node}  {what}")


def _named(nodes: list[str] | None, everyone: bool) -> list[str] | str:
    if bool(nodes) == everyone:
        raise ValueError("name some nodes, or say --all")
    return nodes or "all"


def _ask(url: str, method: str, path: str, body: object = None) -> dict[str, Any]:
    """What the control answers.

    Raises:
        ValueError: it refuses, is none, or nobody listens; the message says which.
    """
    import http.client
    import json
    from urllib.parse import urlsplit

    try:
        address = urlsplit(url)
        host, port = address.hostname, address.port or 80
    except ValueError as error:
        raise ValueError(f"{url!r} is no address: {error}") from None
    if address.scheme != "http" or not host:
        raise ValueError(f"{url!r} is no address: expected http://host:port")
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
    try:
        sent = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, address.path.rstrip("/") + path, sent, headers)
        answer = connection.getresponse()
        status, text = answer.status, answer.read()
    except TimeoutError:
        raise ValueError(f"{url} does not answer within {_ANSWER_S:g} s") from None
    except OSError as error:
        raise ValueError(f"nobody listens at {url}: {error.strerror or error}") from None
    except http.client.HTTPException as error:
        raise ValueError(f"{url} does not speak HTTP: {error!r}") from None
    finally:
        connection.close()
    try:
        told = json.loads(text)
        if status == 200 and isinstance(told, dict):
            return told
        refusal = str(told["error"])
    except (ValueError, TypeError, KeyError):
        refusal = ""
    raise ValueError(refusal or f"{url} is not the control of a metadata service")


def _due(deadline_wall_s: float) -> str:
    at = time.strftime("%H:%M:%S", time.gmtime(deadline_wall_s))
    left_s = deadline_wall_s - time.time()
    return f"due {at} UTC, in {left_s:.0f} s" if left_s >= 0 else f"due {at} UTC, past"


def _say(line: str) -> None:
    out.print(escape(line), highlight=False, soft_wrap=True)
