"""What a Docker daemon has of a run: found by label, removed, and seen gone.

Standard library only: the guardian uses it. What it needs of that is imported late, because most
runs have no containers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from typing import Any

__all__ = ["LEASE", "LEASES", "leases_of", "reachable", "remove", "socket_path"]

LEASE = "chaosspot.lease"  # label of everything that a run makes: the id of its lease
LEASES = "chaosspot.leases"  # the directory where that lease is, or was

_ANSWER_S = 60.0  # a daemon that removes many containers on a busy machine answers late
_WITHIN_S = 60.0
_CLEAR_S = 0.5  # what the harness asked for just before it died may only now be coming
_PAUSE_S = 0.05
_AT_ONCE = 8
_KINDS = ("containers", "networks", "volumes")


def socket_path(environ: dict[str, str] | None = None) -> str:
    """The daemon's socket.

    Raises:
        OSError: the environment names a daemon that is not on this machine.
    """
    where = (os.environ if environ is None else environ).get("DOCKER_HOST") or ""
    if where and not where.startswith("unix://"):
        raise OSError(f"DOCKER_HOST={where!r}: containers need a daemon on this machine (unix://)")
    return where.removeprefix("unix://") or "/var/run/docker.sock"


def reachable(path: str) -> bool:
    """Whether a daemon answers there."""
    try:
        return _ask(path, "GET", "/_ping")[0] == 200
    except OSError:
        return False


def remove(path: str, labels: Iterable[str]) -> list[str]:
    """Remove what has all these labels, and see it gone; returns what it was, for people.

    Raises:
        OSError: something is still there, or the daemon does not tell.
    """
    from concurrent.futures import ThreadPoolExecutor

    wanted = list(labels)
    taken: dict[str, None] = {}
    problems: list[str] = []
    deadline = time.monotonic() + _WITHIN_S
    clear_since: float | None = None
    while clear_since is None or time.monotonic() - clear_since < _CLEAR_S:
        there = False
        for kind in _KINDS:  # a network or volume goes when its last container is gone
            found = _listed(path, kind, wanted)
            there = there or bool(found)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                told = pool.map(lambda item, kind=kind: _delete(path, kind, item[0]), found)
                problems = [text for text in told if text] or problems
            taken |= dict.fromkeys(f"{kind[:-1]} {name}" for _, name in found)
        if there:
            clear_since = None
            if time.monotonic() > deadline:
                raise OSError(f"still there after {_WITHIN_S:g} s: {'; '.join(problems[-1:])}")
        elif clear_since is None:
            clear_since = time.monotonic()
        time.sleep(_PAUSE_S)
    return list(taken)


def leases_of(path: str, home: str) -> set[str]:
    """The leases of that directory of which the daemon still has something.

    Raises:
        OSError: the daemon does not tell.
    """
    label = f"{LEASES}={home}"
    return {
        str(labels[LEASE])
        for kind in _KINDS
        for labels in _labels(path, kind, [label])
        if LEASE in labels
    }


def _listed(path: str, kind: str, labels: list[str]) -> list[tuple[str, str]]:
    """The id and the name of each."""
    found = []
    for item in _all(path, kind, labels):
        name = item.get("Name") or (item.get("Names") or [""])[0].lstrip("/")
        found.append((str(item.get("Id") or name), str(name)))
    return found


def _labels(path: str, kind: str, labels: list[str]) -> list[dict[str, str]]:
    return [dict(item.get("Labels") or {}) for item in _all(path, kind, labels)]


def _all(path: str, kind: str, labels: list[str]) -> list[dict[str, Any]]:
    from urllib.parse import quote

    where = f"/{kind}/json?all=1&" if kind == "containers" else f"/{kind}?"
    filters = quote(json.dumps({"label": labels}))
    status, body = _ask(path, "GET", f"{where}filters={filters}")
    if status != 200:
        raise OSError(f"{path}: GET /{kind}: {status} {_message(body)}")
    told = json.loads(body)
    return list((told["Volumes"] or []) if kind == "volumes" else told)


def _delete(path: str, kind: str, which: str) -> str:
    query = "?force=1&v=1" if kind == "containers" else ""
    status, body = _ask(path, "DELETE", f"/{kind}/{which}{query}")
    return "" if status in (200, 204, 404) else f"{kind[:-1]} {which}: {_message(body)}"


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:200]


def _ask(path: str, method: str, where: str) -> tuple[int, bytes]:
    """The status and the body of an answer.

    Raises:
        OSError: nobody answers in time; names the socket.
    """
    import socket
    from http import client

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.settimeout(_ANSWER_S)
        connection = client.HTTPConnection("docker")
        connection.sock = daemon
        try:
            daemon.connect(path)
            connection.request(method, where)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError as error:
            said = error.strerror or str(error)
            raise OSError(error.errno, f"no docker daemon answers at {path}: {said}") from error
        except client.HTTPException as error:
            raise OSError(f"the docker daemon at {path} went away: {error!r}") from error
