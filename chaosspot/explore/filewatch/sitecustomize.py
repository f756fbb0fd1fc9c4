"""Makes every file-system event of a Python trainer a point, without changing the trainer.

Python imports a module of this name when it starts, if its folder is on PYTHONPATH. What is
created, written, renamed, removed and synced below ``CHAOSSPOT_STORE`` and ``CHAOSSPOT_FLASH``
stops at the points ``file.before`` and ``file.after``, and a write in its middle at ``file.torn``.
What libraries in C do to files of their own is not seen.

Standard library only, and nothing of ours but the probe, which is loaded from beside it: the
trainer's interpreter need not have chaosspot.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PLAIN = re.compile(r"(?=.*[wxa+])[rwxa]([bt+]){0,2}")

_open, _fspath, _realpath = io.open, os.fspath, os.path.realpath


def _loaded(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _next_sitecustomize() -> None:
    """What this module hides: the one that Python would have imported."""
    others = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.origin:
        _loaded("_hidden_sitecustomize", spec.origin)


class _Files:
    """The files that are watched, and what is told of them."""

    def __init__(self, probe: Any, folders: list[str]) -> None:
        self._probe = probe
        self._folders = [_realpath(folder) for folder in folders]
        self._telling = bool(os.environ.get("CHAOSSPOT_TELL"))
        self._busy = False  # in the probe, whose own files are none of the trainer's

    def named(self, path: Any, dir_fd: int | None = None) -> str:
        """The path below a watched folder that this is; empty for any other."""
        try:
            if isinstance(path, int):
                place = os.readlink(f"/proc/self/fd/{path}")
            else:
                base = f"/proc/self/fd/{dir_fd}" if dir_fd is not None else ""
                place = os.path.join(_realpath(base) if base else "", os.fsdecode(_fspath(path)))
            parent, name = os.path.split(os.path.abspath(place))
            place = os.path.join(_realpath(parent), name)
        except (TypeError, ValueError, OSError):
            return ""
        for folder in self._folders:
            if place == folder or place.startswith(folder + os.sep):
                return os.path.relpath(place, folder)
        return ""

    @contextmanager
    def around(self, deed: str, path: str) -> Iterator[None]:
        if not path or self._busy:
            yield
            return
        if self._telling:
            self.tell(lambda: self._probe.emit("file", deed=deed, path=path))
        self.point("file.before")
        yield
        self.point("file.after")

    def written(self, file: int, data: Any, write: Callable[[Any], int]) -> int:
        """Write in two halves, with a point between them."""
        path = "" if self._busy else self.named(file)
        view = memoryview(data).cast("B")
        with self.around("write", path):
            if not path or len(view) < 2:
                return write(view)
            half = write(view[: len(view) // 2])
            self.point("file.torn")
            return half + write(view[half:])

    def point(self, name: str) -> None:
        self.tell(lambda: self._probe.point(name))

    def tell(self, say: Callable[[], None]) -> None:
        self._busy = True
        try:
            say()
        finally:
            self._busy = False


def _watch(files: _Files) -> None:
    class Raw(io.FileIO):
        """A file whose every write may be torn."""

        def write(self, data: Any) -> int:
            return files.written(self.fileno(), data, super().write)

    def opened(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: Any = None,
        errors: Any = None,
        newline: Any = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        path = "" if isinstance(file, int) else files.named(file)
        text = isinstance(mode, str) and "b" not in mode
        plain = isinstance(mode, str) and _PLAIN.fullmatch(mode) is not None
        if not path or not plain or (text and buffering == 0):
            return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if not text and (encoding is not None or errors is not None or newline is not None):
            return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        there = os.path.exists(file)
        deed = "create" if not there else "empty" if "w" in mode else "open"
        with files.around(deed, path):
            raw = Raw(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        whole = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
        if not text:
            return whole
        wrapped: Any = io.TextIOWrapper(
            whole, io.text_encoding(encoding), errors, newline, line_buffering=buffering == 1
        )
        wrapped.mode = mode
        return wrapped

    builtins.open = io.open = opened

    def wrapped(name: str, deed: str) -> None:
        original = getattr(os, name)

        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            there = kwargs.get("dir_fd", kwargs.get("src_dir_fd"))
            with files.around(deed, files.named(path, there)):
                return original(path, *args, **kwargs)

        call.__name__ = name
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in able:
                able.add(call)
        setattr(os, name, call)

    for name, deed in (
        ("replace", "rename"),
        ("rename", "rename"),
        ("remove", "remove"),
        ("unlink", "remove"),
        ("mkdir", "create"),
        ("rmdir", "remove"),
        ("link", "link"),
        ("truncate", "truncate"),
        ("ftruncate", "truncate"),
        ("fsync", "sync"),
        ("fdatasync", "sync"),
    ):
        wrapped(name, deed)

    low_open, low_write = os.open, os.write

    def low_written(file: int, data: Any) -> int:
        return files.written(file, data, lambda part: low_write(file, part))

    os.write = low_written

    def low_opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        creates = flags & os.O_CREAT and not os.path.exists(path)
        deed = "create" if creates else "empty" if flags & os.O_TRUNC else ""
        with files.around(deed, files.named(path, kwargs.get("dir_fd")) if deed else ""):
            return low_open(path, flags, *args, **kwargs)

    os.supports_dir_fd.add(low_opened)
    os.open = low_opened


_next_sitecustomize()
_folders = [os.environ[k] for k in ("CHAOSSPOT_STORE", "CHAOSSPOT_FLASH") if os.environ.get(k)]
_folders = [folder for folder in _folders if "://" not in folder]
if _folders and os.environ.get("CHAOSSPOT_POINTS"):
    _probe = _loaded("_chaosspot_probe", os.path.join(_HERE, "..", "..", "probe.py"))
    _watch(_Files(_probe, _folders))
