"""One snapshot as one safetensors file.

The format (https://github.com/huggingface/safetensors): the length of a JSON header in 8 bytes, the
header, and behind it the tensors without gaps. It is written here past the page cache, from where
the state lies in memory, which the library would copy.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from chaosspot.cli.shelves import Found, ReadDisk
from chaosspot.trainer.snapshot.direct import aligned_buffer, padded, write_file
from chaosspot.trainer.snapshot.disk import RealDisk
from chaosspot.trainer.snapshot.entries import Entry
from chaosspot.trainer.snapshot.manifest import Manifest, ManifestError

__all__ = ["DamagedError", "ExportError", "export", "refuse"]

_AT_ONCE = 4  # parts that are read in parallel


class ExportError(ValueError):
    """The file cannot be written."""


class DamagedError(Exception):
    """No copy of some part is good; names each."""


def refuse(out: Path, size: int) -> None:
    """Raises ExportError if a file of ``size`` bytes and a header cannot be made there."""
    name = f"--out {str(out)!r}"
    if out.exists() or out.is_symlink():
        raise ExportError(f"{name} is there already; choose another name or remove it")
    if not out.parent.is_dir():
        raise ExportError(f"{name}: there is no directory {str(out.parent)!r}")
    if (free := RealDisk().free_bytes(out.parent)) < size:
        raise ExportError(f"{name}: no space for {size:,} bytes, {free:,} are left")


def export(snapshot: Found, out: Path, disk: ReadDisk) -> None:
    """Read the snapshot, verified, into memory and write it.

    Raises:
        DamagedError: a part is damaged in every place that has it.
        ExportError: the file cannot be written; nothing is left of it.
    """
    manifest = snapshot.manifests[0]
    image = aligned_buffer(max(padded(manifest.total_bytes), 1)).data
    _read(snapshot, image, disk)
    entries = _in_order(manifest.tensors, manifest.total_bytes)
    chunks = [memoryview(_header(manifest, entries))]
    chunks += [image[entry.start : entry.stop] for entry in entries.values()]
    beside = out.with_name(f".{out.name}.{os.urandom(4).hex()}.tmp")
    try:
        write_file(RealDisk(), beside, chunks)
        try:
            _publish(beside, out)
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()
        RealDisk().sync_directory(out.parent)
    except OSError as error:
        raise ExportError(f"--out {str(out)!r}: {error.strerror or error}") from error


def _read(snapshot: Found, image: memoryview, disk: ReadDisk) -> None:
    def fill(index: int) -> list[str]:
        """What is wrong with each copy; nothing once one was good."""
        wrong = []
        for copy in snapshot.good[index]:
            assert copy.manifest is not None
            start = copy.manifest.start
            target = image[start : start + copy.manifest.sums.file_bytes]
            try:
                copy.shelf.fill(copy.part, copy.manifest, target, disk)
            except ManifestError as error:
                wrong.append(str(error))
            except OSError as error:
                if error.errno == errno.ECANCELED:
                    raise
                where = error.filename or f"{copy.shelf.name}: {copy.part.data_key}"
                wrong.append(f"{where}: {error.strerror or error}")
            else:
                return []
        return wrong

    with ThreadPoolExecutor(_AT_ONCE, "restore") as threads:
        try:
            futures = [threads.submit(fill, index) for index in snapshot.good]
            wrong = [text for future in as_completed(futures) for text in future.result()]
        except BaseException:  # Ctrl-C as well: what is being read is not read to its end
            disk.stop()
            threads.shutdown(cancel_futures=True)
            raise
    if wrong:
        raise DamagedError(f"{snapshot.id}: {'; '.join(sorted(wrong))}")


def _in_order(tensors: Mapping[str, Entry], total_bytes: int) -> dict[str, Entry]:
    """Those with the largest elements first, as the library has them: so each is aligned."""
    for name, entry in tensors.items():
        if not 0 <= entry.start <= entry.stop <= total_bytes:
            raise DamagedError(f"tensor {name!r} is bytes {entry.start} to {entry.stop}")
    return dict(sorted(tensors.items(), key=lambda item: (-_element_bytes(item[1]), item[1].start)))


def _element_bytes(entry: Entry) -> int:
    return int("".join(filter(str.isdigit, entry.dtype)) or 8) // 8


def _header(manifest: Manifest, entries: Mapping[str, Entry]) -> bytes:
    told = {
        "format": manifest.format,
        "step": manifest.step,
        "generation": manifest.generation,
        "job": manifest.job,
        "digest": manifest.digest,
    }
    header: dict[str, Any] = {
        "__metadata__": {key: str(value) for key, value in told.items() if value is not None}
    }
    at = 0
    for name, entry in entries.items():
        stop = at + entry.stop - entry.start
        header[name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [at, stop]}
        at = stop
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _publish(beside: Path, out: Path) -> None:
    """Give the file its name, but take it from no other."""
    try:
        os.link(beside, out)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        os.rename(beside, out)  # a file system without links
