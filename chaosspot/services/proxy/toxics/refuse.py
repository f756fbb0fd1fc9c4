"""refuse: new connections are refused; those that are open go on.

With a toxicity of 1 or more nothing listens, and a client's connect fails. With less, those that it
hits are reset as they are accepted: which ones is not known before. It has no direction.

What has been refused by a closed port, nobody is told of. It counts as having had something to do
once clients had come and none of them is connected any more; that one of them tried to come back
is not seen, and a client that keeps its connection open is not hit.
"""

from __future__ import annotations

from chaosspot.services.proxy.toxics.pipe import Attributes, Kind, passing

__all__ = ["KIND"]


KIND = Kind(name="refuse", attributes=Attributes, pipe=passing, refuses=True, own=True)
