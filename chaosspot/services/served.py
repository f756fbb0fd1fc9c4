"""What serves one address over HTTP for as long as it is entered."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from chaosspot.services.listener import Handler, Listener

__all__ = ["Served"]


class Served:
    """Use it with ``async with`` on a running asyncio loop; port 0 takes any free one."""

    def __init__(self, answer: Handler, *, host: str, port: int) -> None:
        self._address = (host, port)
        self._listener = Listener(answer, resets=lambda: False)

    @property
    def endpoint(self) -> str:
        """The base URL."""
        return self._listener.endpoint

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
        """
        await self._listener.open(*self._address)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._listener.close()
