"""Host copies of the state: what a snapshot is written from while training goes on.

Two buffers, reused: while one is being written the next state is copied into the other. Page
faults of a fresh buffer would cost ten times the copy. Training waits for the copy alone, on a
CUDA device for less: the copy has a stream of its own that starts after the last update, the next
step computes meanwhile, and only the next *update* waits until the copy has passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from chaosspot.trainer.snapshot.direct import aligned_buffer, padded
from chaosspot.trainer.snapshot.image import Layout, layout_of
from chaosspot.trainer.snapshot.parts import ALIGN_BYTES, Part
from chaosspot.trainer.state import TrainState

__all__ = ["Copier", "Loan", "Stage", "Staged", "host_buffer"]

_BUFFERS = 2
Pairs = Iterable[tuple[Tensor, Tensor]]


class Copier(Protocol):
    """Copies from the device to host buffers, perhaps while the caller goes on."""

    def begin(self, pairs: Pairs) -> Callable[[], None]:
        """Copy each (to, from) as it is now; what is returned waits until that is done."""

    def hold_updates(self) -> None:
        """Let what is changed from now on wait for the copies that were begun."""


class HostCopier:
    """Host to host: done when it returns.

    By NumPy, whose copy is ``memcpy``: past the caches, where a tensor's own first reads what it
    is to overwrite, and takes twice as long.
    """

    def begin(self, pairs: Pairs) -> Callable[[], None]:
        for to, source in pairs:
            np.copyto(to.view(torch.uint8).numpy(), source.view(torch.uint8).numpy())
        return lambda: None

    def hold_updates(self) -> None:
        pass


class CudaCopier:
    """Device to pinned memory, in a stream beside the one that computes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._last: torch.cuda.Event | None = None

    def begin(self, pairs: Pairs) -> Callable[[], None]:
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(self._device))  # after the last update
        with torch.cuda.stream(self._stream):
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
                if source.is_cuda:
                    source.record_stream(self._stream)
            done.record(self._stream)
        self._last = done
        return done.synchronize

    def hold_updates(self) -> None:
        if self._last is not None:
            torch.cuda.current_stream(self._device).wait_event(self._last)


def host_buffer(size: int, *, pin: bool = False) -> Tensor:
    """(size,) uint8, page-aligned, every page of it in memory."""
    length = max(ALIGN_BYTES, padded(size))
    if pin:
        whole = torch.zeros(length, dtype=torch.uint8, pin_memory=True)
    else:
        whole = torch.from_numpy(aligned_buffer(length)).zero_()
    return whole[:size]


class Staged:
    """One copied state, valid until it is released."""

    def __init__(
        self, buffer: Tensor, *, step: int, wait: Callable[[], None], release: Callable[[], None]
    ) -> None:
        self._buffer = buffer
        self.step = step
        self.wait = wait
        """Waits until the copy is complete."""
        self.release = release
        """Gives the buffer back; to be called once."""

    def bytes_of(self, part: Part) -> memoryview:
        """The part's bytes; they alias the buffer."""
        start, end = part.span(len(self._buffer))
        return self._buffer.numpy().data[start:end]


class Loan:
    """A buffer, (total_bytes,) uint8, its bytes undefined at first."""

    def __init__(self, buffer: Tensor, back: Callable[[Tensor | None], None]) -> None:
        self.buffer = buffer
        self._back = back

    def end(self, *, in_doubt: bool = False) -> None:
        """Give it back, once; ``in_doubt`` when something may still write into it, so that another
        one has to take its place."""
        self._back(None if in_doubt else self.buffer)


class Stage:
    """The buffers. One thread copies, others may release."""

    def __init__(self, state: TrainState, copier: Copier | None = None) -> None:
        device = state.gradient.device
        on_cuda = device.type == "cuda"
        self.layout: Layout = layout_of(state)
        self._copier = copier or (CudaCopier(device) if on_cuda else HostCopier())
        self._pin = on_cuda
        self._free = [self._new() for _ in range(_BUFFERS)]
        self._lock = threading.Lock()
        self.stall_s = 0.0
        """How long training waited for the last copy (or, with CUDA, for its start)."""

    def copy(self, state: TrainState) -> Staged | None:
        """Copy the state, which may be worked with afterwards; None while no buffer is free.

        Before it is *changed* call :meth:`hold_updates`.
        """
        buffer = self._taken()
        if buffer is None:
            return None
        start_s = time.perf_counter()
        tensors = state.tensors()
        views = self.layout.views(buffer)
        wait = self._copier.begin((view, tensors[name].flatten()) for name, view in views.items())
        self.stall_s = time.perf_counter() - start_s
        return Staged(
            buffer, step=state.step, wait=wait, release=lambda: self._release(buffer, wait)
        )

    def lend(self) -> Loan:
        """A buffer for something else than a copy; a new one while none is free."""
        buffer = self._taken()
        if buffer is None:
            return Loan(self._new(), lambda _: None)
        return Loan(buffer, self._back)

    def _back(self, buffer: Tensor | None) -> None:
        with self._lock:
            self._free.append(self._new() if buffer is None else buffer)

    def hold_updates(self) -> None:
        """Called before each change of the state: what is being copied is not overwritten."""
        self._copier.hold_updates()

    def _new(self) -> Tensor:
        return host_buffer(self.layout.total_bytes, pin=self._pin)

    def _taken(self) -> Tensor | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def _release(self, buffer: Tensor, wait: Callable[[], None]) -> None:
        wait()  # one that is given up unwritten may still be being filled
        with self._lock:
            self._free.append(buffer)
