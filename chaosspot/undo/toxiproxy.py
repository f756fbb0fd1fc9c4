"""The proxies of a run in a Toxiproxy server that is not the run's: found by name, and removed.

Standard library only: the guardian uses it. What it needs of that is imported late, because most
runs have no such proxies.
"""

from __future__ import annotations

import contextlib
import json
import time

__all__ = ["remove"]

_ANSWER_S = 3.0
_WITHIN_S = 5.0
_PAUSE_S = 0.05


def remove(url: str, prefix: str) -> list[str]:
    """Remove the proxies whose names begin with ``prefix`` and see them gone; returns their names.

    A server that is gone has none any more, and neither has another one in its place.

    Raises:
        OSError: they are still there, or the server does not tell.
    """
    deadline = time.monotonic() + _WITHIN_S
    taken: set[str] = set()
    clear = 0
    # Twice: one that the harness asked for just before it died may only now be coming.
    while clear < 2:
        try:
            names = [name for name in _listed(url) if name.startswith(prefix)]
            for name in names:
                _ask(url, "DELETE", name)
                taken.add(name)
        except ConnectionRefusedError:
            break
        except ConnectionError:  # it may be about to be gone
            if time.monotonic() > deadline:
                raise
            names = [""]
        if names and time.monotonic() > deadline:
            raise OSError(f"still there after {_WITHIN_S:g} s: {', '.join(sorted(names))}")
        clear = 0 if names else clear + 1
        time.sleep(_PAUSE_S)
    return sorted(taken)


def _listed(url: str) -> list[str]:
    status, body = _ask(url, "GET")
    if status == 200:
        with contextlib.suppress(ValueError):
            told = json.loads(body)
            return list(told) if isinstance(told, dict) else []
    return []


def _ask(url: str, method: str, name: str = "") -> tuple[int, bytes]:
    """What is answered about all proxies or one of them; who does not speak HTTP answers with 0.

    Raises:
        OSError: nobody answers in time, or it says that it cannot.
    """
    from http import client
    from urllib.parse import quote, urlsplit

    where = url.rstrip("/") + "/proxies" + (f"/{quote(name, safe='')}" if name else "")
    address = urlsplit(where)
    kind = client.HTTPSConnection if address.scheme == "https" else client.HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=_ANSWER_S)
    try:
        connection.request(method, address.path)
        answer = connection.getresponse()
        body = answer.read()
    except TimeoutError:
        raise TimeoutError(f"{method} {where}: no answer within {_ANSWER_S:g} s") from None
    except ConnectionError:
        raise
    except client.HTTPException:
        return 0, b""
    finally:
        connection.close()
    if answer.status >= 500:
        raise OSError(f"{method} {where}: {answer.status}")
    return answer.status, body
