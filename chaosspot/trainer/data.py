"""Batches from any file, each a pure function of (seed, step, micro-shard).

There is no loader state: after a restore, or on another rank, the same step reads the same bytes.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from chaosspot.trainer.config import InputError

__all__ = ["ByteData"]

_NAMED_BYTES = 1 << 20


class ByteData:
    """A file mapped into memory.

    Raises:
        InputError: the file is missing, unreadable, not a regular file, or not longer than
            ``seq_len_bytes``.
    """

    def __init__(self, path: Path, *, seq_len_bytes: int, rows: int, seed: int) -> None:
        self._row_bytes = seq_len_bytes + 1  # inputs and, one further, targets
        self._rows = rows
        self._seed = seed
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._row_bytes:
                    raise InputError(
                        f"data file is too small: {str(path)!r} has {size} bytes, "
                        f"a sequence of {seq_len_bytes} needs at least {self._row_bytes}"
                    )
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"data file cannot be read: {str(path)!r}: {reason}") from error
        start = hashlib.blake2b(self._bytes[:_NAMED_BYTES], digest_size=8).hexdigest()
        self.id = f"{size}-{start}"
        """Length and hash of the first MiB: enough to notice that another file was given."""

    def offsets(self, step: int, micro_shard: int) -> list[int]:
        """Where each row of that micro-shard starts, in bytes; ``rows`` values."""
        places = len(self._bytes) - self._row_bytes + 1
        return [
            int.from_bytes(
                hashlib.blake2b(
                    f"{self._seed}/{step}/{micro_shard}/{row}".encode(), digest_size=8
                ).digest()
            )
            % places
            for row in range(self._rows)
        ]

    def batch(self, step: int, micro_shard: int) -> Tensor:
        """The rows of that micro-shard: (rows, seq_len_bytes + 1) int64 in 0..255."""
        rows = [
            self._bytes[start : start + self._row_bytes]
            for start in self.offsets(step, micro_shard)
        ]
        flat = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8)
        return flat.view(self._rows, self._row_bytes).long()

    def close(self) -> None:
        self._bytes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
