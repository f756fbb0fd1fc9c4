"""The Docker daemon, by its Python SDK; whatever it answers badly is one clear ``OSError``."""

from __future__ import annotations

import io
import json
import socket
import tarfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from chaosspot.undo.docker import socket_path

__all__ = ["Daemon", "DaemonError"]

T = TypeVar("T")

_ANSWER_S = 120.0
_POOL = 32
_BASE = "chaosspot/host"  # an image of nothing but places where this machine's files are put
_BASE_LABEL = "chaosspot.image"


class DaemonError(OSError):
    """The daemon cannot be asked, or says no; the message says to what, and why."""


class Daemon:
    """One daemon of this machine. Methods block: call them in a thread.

    Raises:
        DaemonError: here and from every method.
    """

    def __init__(self, path: str | None = None) -> None:
        try:
            self.path = socket_path() if path is None else path
        except OSError as error:
            raise DaemonError(str(error)) from error
        import docker  # not at the top: it takes a second to import

        def opened() -> Any:
            # Versions are negotiated: old daemons are as good as new ones.
            return docker.APIClient(
                base_url=f"unix://{self.path}", timeout=_ANSWER_S, num_pools=_POOL, version="auto"
            )

        self._errors: Any = docker.errors
        self._api: Any = self._tried("open it", opened)
        self._group = _group_beside_others(self._tried("ask about it", self._api.info))

    def close(self) -> None:
        self._api.close()

    def watch(self) -> socket.socket:
        """A connection on which the daemon says nothing; it ends when the daemon does."""
        return self._tried("watch it", lambda: opened_for_ever(self.path))

    def version(self) -> str:
        """What the daemon says it is."""
        return str(self._tried("ask its version", self._api.version)["Version"])

    def image(self, name: str) -> dict[str, Any]:
        """What there is to know of an image, which must be there.

        Raises:
            DaemonError: it is not there; nothing is ever pulled.
        """
        try:
            return dict(self._tried(f"find image {name!r}", lambda: self._api.inspect_image(name)))
        except DaemonError as error:
            if isinstance(error.__cause__, self._errors.NotFound):
                raise DaemonError(
                    f"image {name!r} is not on this machine: pull or build it first"
                ) from error
            raise

    def base_image(self, contents: bytes, tag: str) -> str:
        """The name of an image of that tar file, made unless it is there."""
        name = f"{_BASE}:{tag}"
        try:
            self.image(name)
        except DaemonError as error:
            if not isinstance(error.__cause__, DaemonError):
                raise
            self._tried(
                f"make image {name}",
                lambda: self._api.import_image_from_data(
                    contents, repository=_BASE, tag=tag, changes=[f"LABEL {_BASE_LABEL}=1"]
                ),
            )
        return name

    def network(self, name: str, labels: Mapping[str, str]) -> str:
        """The id of a new bridge network from which nothing leads out."""
        try:
            made = self._tried(
                f"make network {name}",
                lambda: self._api.create_network(
                    name, driver="bridge", internal=True, labels=dict(labels), check_duplicate=True
                ),
            )
        except DaemonError as error:
            if "address pool" not in str(error):
                raise
            raise DaemonError(
                f"{error}: its subnets (default-address-pools) are all taken by networks or "
                "routes of this machine; see `docker network ls` and `ip route`"
            ) from error
        return str(made["Id"])

    def remove_network(self, which: str) -> None:
        self._gone(f"remove network {which}", lambda: self._api.remove_network(which))

    def create(self, *, first: str, second: str | None, alias: str, **settings: Any) -> str:
        """The id of a new container on network ``first`` and then on ``second``."""
        host_config = self._api.create_host_config(
            network_mode=first, cgroup_parent=self._group, **settings.pop("host_config")
        )
        ends = {first: self._api.create_endpoint_config(aliases=[alias])}
        name = settings["name"]
        made = self._tried(
            f"create container {name}",
            lambda: self._api.create_container(
                host_config=host_config,
                networking_config=self._api.create_networking_config(ends),
                **settings,
            ),
        )
        which = str(made["Id"])
        if second is not None:
            self._tried(
                f"connect container {name}",
                lambda: self._api.connect_container_to_network(which, second, aliases=[alias]),
            )
        return which

    def start(self, which: str) -> None:
        self._tried("start a container", lambda: self._api.start(which))

    def inspect(self, which: str) -> dict[str, Any] | None:
        """What there is to know of a container; None when it is gone."""
        try:
            return dict(
                self._tried("look at a container", lambda: self._api.inspect_container(which))
            )
        except DaemonError as error:
            if isinstance(error.__cause__, self._errors.NotFound):
                return None
            raise

    def last_words(self, which: str) -> str:
        """The last line that a container said to the daemon; empty if there is none."""
        try:
            told = self._tried("read a container's log", lambda: self._api.logs(which, tail=1))
        except DaemonError:
            return ""
        return bytes(told).decode(errors="replace").strip()

    def pause(self, which: str) -> None:
        self._tried("pause a container", lambda: self._api.pause(which))

    def unpause(self, which: str) -> None:
        self._gone("resume a container", lambda: self._api.unpause(which))

    def update(self, which: str, **limits: int) -> None:
        """Set limits of a running container, by the names of the daemon's API."""
        self._tried("limit a container", lambda: self._api.update_container(which, **limits))

    def remove(self, which: str) -> None:
        """Kill and remove a container with its volumes; nothing if it is gone."""
        self._gone(
            "remove a container", lambda: self._api.remove_container(which, force=True, v=True)
        )

    def _gone(self, what: str, act: Callable[[], object]) -> None:
        try:
            self._tried(what, act)
        except DaemonError as error:
            status = getattr(getattr(error.__cause__, "response", None), "status_code", None)
            if status not in (404, 409):  # 409: it is being removed, or has ended meanwhile
                raise

    def _tried(self, what: str, act: Callable[[], T]) -> T:
        import requests

        try:
            return act()
        except self._errors.APIError as error:
            said = (error.explanation or str(error)).strip()
            raise DaemonError(f"the docker daemon at {self.path} cannot {what}: {said}") from error
        except (self._errors.DockerException, requests.RequestException, OSError) as error:
            said = _reason(error)
            raise DaemonError(
                f"no docker daemon answers at {self.path}: {said}, asked to {what}"
            ) from error


def opened_for_ever(path: str) -> socket.socket:
    """A request for events that never come: the answer has no end."""
    filters = quote(json.dumps({"label": ["chaosspot.never"]}))
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(_ANSWER_S)
        made.connect(path)
        made.sendall(f"GET /events?filters={filters} HTTP/1.1\r\nHost: docker\r\n\r\n".encode())
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def _reason(error: BaseException) -> str:
    """The system's words, which the SDK wraps several times."""
    inner: Any = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror.lower()
        parts = [part for part in inner.args if isinstance(part, BaseException)]
        inner = getattr(inner, "reason", None) if not parts else parts[0]
        if not isinstance(inner, BaseException):
            break
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror.lower()
    cause = error.__cause__ or error.__context__
    return _reason(cause) if cause is not None else str(error)


def _group_beside_others(told: Mapping[str, Any]) -> str | None:
    """The control group to make containers in, by what the daemon tells of itself; None: its own.

    Where all processes are in the topmost group, the group that the daemon makes for all of its
    containers has the share of one process: on a busy machine nodes would hardly get to run.
    Each gets that share instead. (Version 2 and systemd weigh groups against groups.)
    """
    if told.get("CgroupDriver") == "cgroupfs" and str(told.get("CgroupVersion", "1")) == "1":
        return "/"
    return None


def folders(names: list[str], links: Mapping[str, str]) -> bytes:
    """A tar file of empty folders and of links."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, target in links.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name in names:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
    return data.getvalue()
