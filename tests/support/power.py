"""A disk in memory that stops at any event, and what a loss of power may leave of it.

The model, harsher than any one file system so that it holds for all of them:

- Nothing but what was synced is certain. Of the writes and new lengths of a file since its last
  sync, any subset may have arrived, each sector of 512 bytes for itself and in any order; where the
  file's new length arrived and its bytes did not, there are zeros or what the drive held before.
  That the writes were direct makes no difference: drives have caches.
- Of the names made, changed and removed in a directory since it was synced, any subset may have
  arrived, in any order. A rename arrives whole or not. Syncing a file says nothing about its name,
  syncing a directory nothing about its own name or about its files' bytes.

That is all that fsync(2) promises, and Pillai and others found file systems that do no more ("All
File Systems Are Not Created Equal", OSDI 2014,
https://www.usenix.org/conference/osdi14/technical-sessions/presentation/pillai; how ext4 orders
and how that is turned off: https://docs.kernel.org/admin-guide/ext4.html). Not modelled: drives
that lose what they acknowledged as flushed, sectors half written, renames from one directory to
another, hard links.

If only the process dies, what it wrote stays as it was: :meth:`PowerDisk.killed`.
"""

from __future__ import annotations

import copy
import errno
import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np

SECTOR_BYTES = 512
STALE = b"\xa5"  # what the drive held before

When = Literal["before", "within", "after"]


class Crash(BaseException):
    """The process ends here; nothing that it still does reaches the disk."""


@dataclass(eq=False)
class _File:
    durable: bytes = b""
    now: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Since the last sync, in order: writes as offset and bytes, new lengths without bytes."""

    def change(self, at: int, data: bytes | None) -> None:
        self.pending.append((at, data))
        if data is None:
            _resize(self.now, at)
        else:
            _put(self.now, at, data)

    def sync(self) -> None:
        self.durable, self.pending = bytes(self.now), []


@dataclass(eq=False)
class _Directory:
    durable: dict[str, _File | _Directory] = field(default_factory=dict)
    now: dict[str, _File | _Directory] = field(default_factory=dict)
    pending: list[dict[str, _File | _Directory | None]] = field(default_factory=list)
    """Since the last sync, in order: names with what they mean from then on."""

    def change(self, names: dict[str, _File | _Directory | None]) -> None:
        self.pending.append(names)
        _rename(self.now, names)

    def sync(self) -> None:
        self.durable, self.pending = dict(self.now), []


class PowerDisk:
    """A :class:`~chaosspot.trainer.snapshot.disk.Disk` whose only directory at first is ``/``.

    Args:
        stop: raise :class:`Crash` at the event of that number (from 1), and at all after it;
            ``within`` does half of a write.
        errors: raise an OSError of that number at those events, which then do nothing.
        no_direct: what refuses direct I/O with EINVAL; else unaligned direct I/O is refused.
        io_bytes: the most that one write or read moves.
    """

    def __init__(
        self,
        *,
        stop: tuple[int, When] | None = None,
        errors: Mapping[int, int] | None = None,
        no_direct: Literal["", "open", "io"] = "",
        io_bytes: int = 1 << 30,
    ) -> None:
        self.events: list[str] = []
        """What changed something or made it durable; opening, reading and closing are none."""
        self.dead = False
        self.open_files: dict[int, tuple[Path, _File, bool]] = {}
        self._stop = stop
        self._errors = errors or {}
        self._no_direct = no_direct
        self._io_bytes = io_bytes
        self._root = _Directory()
        self._lock = threading.Lock()
        self._descriptors = itertools.count(1000)

    def again(self, stop: tuple[int, When] | None = None) -> PowerDisk:
        """A copy with the same files, synced or not, and no open ones; it begins with no events."""
        other = PowerDisk(stop=stop)
        other._root = copy.deepcopy(self._root)
        return other

    def killed(self) -> PowerDisk:
        """What the next process finds."""
        return self.again()

    def survivors(self, limit: int = 32, seed: int = 0) -> Iterator[PowerDisk]:
        """What may be found when power is back.

        Of each file nothing new, all of it, only its length, some of its changes or a drawn part;
        of each name the old or the new. All combinations if they are at most ``limit``; else all
        but one thing lost or kept, and a sample of ``limit``.
        """
        stream = random.Random(seed)
        axes: list[tuple[_File | _Directory, int, int]] = []  # whose, which change, choices
        contents: dict[_File, list[bytes]] = {}
        for node in _all(self._root):
            if isinstance(node, _File):
                contents[node] = _contents(node, stream)
                axes.append((node, 0, len(contents[node])))
            else:
                axes += [(node, index, 2) for index in range(len(node.pending))]
        for choice in _choices([count for *_, count in axes], limit, stream):
            chosen = {
                (node, index): number
                for (node, index, _), number in zip(axes, choice, strict=True)
            }  # fmt: skip
            other = PowerDisk()
            other._root = _survived(self._root, chosen, contents)
            yield other

    def pour(self, directory: Path) -> None:
        """Make the files as they are now in a real directory."""
        for name, node in self._root.now.items():
            _pour(node, directory / name)

    def create(self, path: Path, *, direct: bool = False) -> int:
        with self._event(f"create {path}"):
            directory, name = self._parent(path)
            file = directory.now.get(name)
            if isinstance(file, _Directory):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if file is None:
                file = _File()
                directory.change({name: file})
            else:
                file.change(0, None)
        return self._opened(path, file, direct)

    def open(self, path: Path, *, direct: bool = False) -> int:
        file = self._find(path)
        assert isinstance(file, _File)
        return self._opened(path, file, direct)

    def close(self, descriptor: int) -> None:
        del self.open_files[descriptor]

    def size(self, descriptor: int) -> int:
        return len(self.open_files[descriptor][1].now)

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        path, file, direct = self.open_files[descriptor]
        self._check(direct, data, offset)
        data = data[: self._io_bytes]
        with self._event(f"pwrite {path} {offset}+{len(data)}") as within:
            file.change(offset, bytes(data[: len(data) // 2] if within else data))
        return len(data)

    def pread(self, descriptor: int, into: memoryview, offset: int) -> int:
        _, file, direct = self.open_files[descriptor]
        self._check(direct, into, offset)
        data = file.now[offset : offset + min(len(into), self._io_bytes)]
        into[: len(data)] = data
        return len(data)

    def reserve(self, descriptor: int, length: int) -> None:
        self._resize("reserve", descriptor, length)

    def truncate(self, descriptor: int, length: int) -> None:
        self._resize("truncate", descriptor, length)

    def sync(self, descriptor: int) -> None:
        path, file, _ = self.open_files[descriptor]
        with self._event(f"sync {path}"):
            file.sync()

    def sync_directory(self, path: Path) -> None:
        with self._event(f"sync_directory {path}"):
            self._directory(path).sync()

    def rename(self, old: Path, new: Path) -> None:
        if old.parent != new.parent:
            raise ValueError(f"not modelled: a rename from {old.parent} to {new.parent}")
        with self._event(f"rename {old} {new.name}"):
            node = self._find(old)
            self._directory(old.parent).change({old.name: None, new.name: node})

    def unlink(self, path: Path) -> None:
        with self._event(f"unlink {path}"):
            assert isinstance(self._find(path), _File)
            self._directory(path.parent).change({path.name: None})

    def mkdir(self, path: Path) -> None:
        with self._event(f"mkdir {path}"):
            directory, name = self._parent(path)
            if name in directory.now:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            directory.change({name: _Directory()})

    def rmdir(self, path: Path) -> None:
        with self._event(f"rmdir {path}"):
            if self._directory(path).now:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
            self._directory(path.parent).change({path.name: None})

    def listdir(self, path: Path) -> list[str]:
        return sorted(self._directory(path).now)

    def free_bytes(self, path: Path) -> int:
        self._directory(path)
        return 1 << 40

    @contextmanager
    def _event(self, text: str) -> Iterator[bool]:
        """Count one; the block does it, half of it if this is true."""
        with self._lock:
            if self.dead:
                raise Crash(text)
            self.events.append(text)
            number, when = self._stop or (0, "before")
            stops = number == len(self.events)
            if stops and when == "before":
                self.dead = True
                raise Crash(text)
            if code := self._errors.get(len(self.events)):
                raise OSError(code, os.strerror(code))
            yield stops and when == "within"
            if stops:
                self.dead = True
                raise Crash(text)

    def _opened(self, path: Path, file: _File, direct: bool) -> int:
        if direct and self._no_direct == "open":
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        descriptor = next(self._descriptors)
        self.open_files[descriptor] = (path, file, direct)
        return descriptor

    def _check(self, direct: bool, data: memoryview, offset: int) -> None:
        if not direct:
            return
        address = np.frombuffer(data, np.uint8).ctypes.data
        if self._no_direct == "io" or any(at % 4096 for at in (address, offset, len(data))):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def _resize(self, what: str, descriptor: int, length: int) -> None:
        path, file, _ = self.open_files[descriptor]
        with self._event(f"{what} {path} {length}"):
            file.change(length, None)

    def _find(self, path: Path) -> _File | _Directory:
        node: _File | _Directory = self._root
        for name in path.parts[1:]:
            if not isinstance(node, _Directory) or name not in node.now:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            node = node.now[name]
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._find(path)
        assert isinstance(node, _Directory), path
        return node

    def _parent(self, path: Path) -> tuple[_Directory, str]:
        return self._directory(path.parent), path.name


def crashes(start: PowerDisk, protocol: Callable[[PowerDisk], None]) -> Iterator[PowerDisk]:
    """Run the protocol on copies of ``start``: whole at first, then stopped at each event.

    ``events[-1]`` of what is yielded is where it stopped.
    """
    whole = start.again()
    protocol(whole)
    yield whole
    moments: tuple[When, ...] = ("before", "within", "after")
    for number, when in itertools.product(range(1, len(whole.events) + 1), moments):
        if when == "within" and not whole.events[number - 1].startswith("pwrite"):
            continue  # all others are whole or not at all
        disk = start.again(stop=(number, when))
        try:
            protocol(disk)
        except Crash:
            yield disk
        else:
            raise AssertionError(f"not stopped {when} event {number}: {disk.events}")


def _resize(content: bytearray, length: int, fill: bytes = b"\0") -> None:
    content += fill * (length - len(content))
    del content[length:]


def _put(content: bytearray, at: int, data: bytes, fill: bytes = b"\0") -> None:
    content += fill * (at - len(content))
    content[at : at + len(data)] = data


def _rename(
    names: dict[str, _File | _Directory], change: Mapping[str, _File | _Directory | None]
) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _all(node: _File | _Directory) -> list[_File | _Directory]:
    """The node, and what is in it or was since it was synced; each once."""
    found = {node: None}
    for here in (queue := [node]):
        if isinstance(here, _Directory):
            changed = (part for change in here.pending for part in change.values() if part)
            for part in (*here.durable.values(), *here.now.values(), *changed):
                if part not in found:
                    found[part] = None
                    queue.append(part)
    return list(found)


def _contents(file: _File, stream: random.Random) -> list[bytes]:
    """What the file may contain: nothing new first, all of it last, each once."""
    if not file.pending:
        return [file.durable]

    def drawn(share: float) -> bytes:
        return _arrived(file, lambda _: stream.random() < share)

    changes = len(file.pending)
    only_length = [bytearray(file.durable), bytearray(file.durable)]
    for content, fill in zip(only_length, (b"\0", STALE), strict=True):
        _resize(content, len(file.now), fill)
    middle = [
        _arrived(file, lambda index: index < changes // 2),
        _arrived(file, lambda index: index == changes - 1),
        _arrived(file, lambda index: index == changes - 1, fill=STALE),
    ]
    possible = [file.durable, *map(bytes, only_length), *middle]
    possible += [drawn(0.9), drawn(0.5), drawn(0.1), bytes(file.now)]
    return list(dict.fromkeys(possible))


def _arrived(file: _File, arrives: Callable[[int], bool], fill: bytes = b"\0") -> bytes:
    """Its content if of each change, a write's sectors one by one, that arrives which is asked."""
    content = bytearray(file.durable)
    for index, (at, data) in enumerate(file.pending):
        if data is None:
            if arrives(index):
                _resize(content, at, fill)
            continue
        for start in range(0, len(data), SECTOR_BYTES):
            if arrives(index):
                _put(content, at + start, data[start : start + SECTOR_BYTES], fill)
    return bytes(content)


def _choices(counts: list[int], limit: int, stream: random.Random) -> Iterator[tuple[int, ...]]:
    """For every axis one of its choices; the first stands for nothing new, the last for all."""
    if prod(counts) <= limit:
        yield from itertools.product(*map(range, counts))
        return
    least, most = tuple(0 for _ in counts), tuple(count - 1 for count in counts)
    found = {least: None, most: None}
    for base in (least, most):
        for axis, count in enumerate(counts):
            for number in range(count):
                found[(*base[:axis], number, *base[axis + 1 :])] = None
    for _ in range(limit):
        found[tuple(stream.randrange(count) for count in counts)] = None
    yield from found


def _survived(
    directory: _Directory,
    chosen: Mapping[tuple[_File | _Directory, int], int],
    contents: Mapping[_File, list[bytes]],
) -> _Directory:
    names = dict(directory.durable)
    for index, change in enumerate(directory.pending):
        if chosen[directory, index]:
            _rename(names, change)
    found: dict[str, _File | _Directory] = {}
    for name, node in names.items():
        if isinstance(node, _File):
            content = contents[node][chosen[node, 0]]
            found[name] = _File(durable=content, now=bytearray(content))
        else:
            found[name] = _survived(node, chosen, contents)
    return _Directory(durable=found, now=dict(found))


def _pour(node: _File | _Directory, path: Path) -> None:
    if isinstance(node, _File):
        path.write_bytes(node.now)
        return
    path.mkdir(exist_ok=True)
    for name, part in node.now.items():
        _pour(part, path / name)
