"""What happened to real clusters: loaders of the public formats, and a trace as a schedule.

``formats`` tells the formats apart, one module reads each; ``planned`` makes a schedule of a trace.

========== ================================================================================
events     ``t_ms,add|remove,node`` lines without a header (Bamboo, Parcae, SpotServe, Oobleck)
segments   one JSON list a line, ``[t_ms, "add"|"remove"|"no-op"|"DONE", {"nodes": [...]}]``
counts     ``{"metadata": {"gap_seconds": g}, "data": [n, ...]}`` (spot-traces, Can't Be Late)
staircase  ``time,count`` lines, in seconds, hours or milliseconds: the files do not say
dated      ``YYYY-MM-DD, HH:MM:SS, count`` lines, not always in order (Google Cloud logs)
========== ================================================================================
"""

from chaosspot.traces.formats import FORMATS, OneMeans, TimeUnit, load, loads
from chaosspot.traces.planned import planned
from chaosspot.traces.trace import Trace, TraceError

__all__ = ["FORMATS", "OneMeans", "TimeUnit", "Trace", "TraceError", "load", "loads", "planned"]
