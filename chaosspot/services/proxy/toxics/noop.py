"""noop: does nothing."""

from __future__ import annotations

from chaosspot.services.proxy.toxics.pipe import Attributes, Kind, passing

__all__ = ["KIND"]


KIND = Kind(name="noop", attributes=Attributes, pipe=passing)
