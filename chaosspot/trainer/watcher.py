"""Polls the AWS instance metadata service (IMDSv2) for a spot interruption notice.

A watcher that dies, or believes an error page, costs a node its whole warning. So: tokens are
minted anew when refused, only a 200 body is parsed, and anything else is tried again.
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Self
from urllib.parse import urlsplit

from chaosspot.trainer.config import InputError
from chaosspot.trainer.notice import Notice, NoticeBoard

__all__ = ["AwsWatcher", "parse_instance_action"]

_log = logging.getLogger(__name__)

_TOKEN_TTL_S = 21600
_LARGEST_ANSWER_BYTES = 64 * 1024


def parse_instance_action(body: bytes) -> Notice:
    """The notice in a 200 answer of ``spot/instance-action``.

    Raises:
        ValueError: not the documented ``{"action": ..., "time": "2017-09-18T08:22:00Z"}``.
    """
    answer = json.loads(body)
    if not isinstance(answer, dict) or not isinstance(answer.get("action"), str):
        raise ValueError(f"not an instance action: {body[:200]!r}")
    at = datetime.strptime(str(answer.get("time")), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return Notice(provider="aws", action=answer["action"], deadline_wall_s=at.timestamp())


class AwsWatcher:
    """One thread that polls until it has a notice; use as a context manager, which joins it.

    Args:
        endpoint: base URL, as in ``AWS_EC2_METADATA_SERVICE_ENDPOINT``.
        interval_s: time between polls; AWS advises 5 s or less.
        timeout_s: bound for one exchange in all, however slowly the answer trickles.

    Raises:
        InputError: ``endpoint`` is not an http URL.
    """

    def __init__(
        self, endpoint: str, board: NoticeBoard, *, interval_s: float = 2.0, timeout_s: float = 1.5
    ) -> None:
        try:
            url = urlsplit(endpoint)
            self._address = (url.hostname or "", url.port or 80)
        except ValueError as error:
            raise InputError(f"metadata endpoint is not a URL: {endpoint!r}: {error}") from error
        if url.scheme != "http" or not url.hostname:
            raise InputError(f"metadata endpoint must be an http:// URL, got {endpoint!r}")
        self._prefix = url.path.rstrip("/")
        self._board = board
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._token: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metadata", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=self._timeout_s + 1.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if notice := self.poll():
                    self._board.post(notice)
                    return
            except Exception as error:  # noqa: BLE001 - nothing may cost the node its warning
                self._token = None  # whatever it was, start from the beginning
                _log.warning(
                    "metadata service, will ask again: %s: %s", type(error).__name__, error
                )
            self._stop.wait(self._interval_s)

    def poll(self) -> Notice | None:
        """Ask once; None when there is no notice.

        Raises:
            OSError, http.client.HTTPException: no usable answer.
            ValueError: an answer that is not one of the documented ones.
        """
        for _attempt in range(2):
            if self._token is None:
                self._token = self._mint()
            status, body = self._exchange(
                "GET",
                "/latest/meta-data/spot/instance-action",
                {"X-aws-ec2-metadata-token": self._token},
            )
            if status == 200:
                return parse_instance_action(body)
            if status == 404:
                return None
            if status != 401:
                raise ValueError(f"status {status} for spot/instance-action")
            self._token = None  # expired, or minted by another instance of the service
        raise ValueError("status 401 with a fresh token")

    def _mint(self) -> str:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
        status, body = self._exchange("PUT", "/latest/api/token", ttl)
        token = body.decode("ascii").strip()  # a UnicodeError is a ValueError
        if status != 200 or not token or " " in token or not token.isprintable():
            raise ValueError(f"status {status} for a token: {body[:80]!r}")
        return token

    def _exchange(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """One request on a connection of its own (the service closes them); no proxy is used."""
        host, port = self._address
        connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        connection.connect()
        # The timeout of a socket bounds each read, not the whole answer: hang up when it is due.
        sock = connection.sock
        hang_up = threading.Timer(self._timeout_s, _shut, [sock])
        hang_up.daemon = True
        hang_up.start()
        try:
            connection.request(method, self._prefix + path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(_LARGEST_ANSWER_BYTES)
        finally:
            hang_up.cancel()
            connection.close()


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
