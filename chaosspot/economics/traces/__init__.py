"""Loaders of the public formats: ``formats`` tells them apart, one module reads each.

========== ================================================================================
events     ``t_ms,add|remove,node`` lines without a header (Bamboo, Parcae, SpotServe, Oobleck)
segments   one JSON list a line, ``[t_ms, "add"|"remove"|"no-op"|"DONE", {"nodes": [...]}]``
counts     ``{"metadata": {"gap_seconds": g}, "data": [n, ...]}`` (spot-traces, Can't Be Late)
staircase  ``time,count`` lines, in seconds, hours or milliseconds: the files do not say
dated      ``YYYY-MM-DD, HH:MM:SS, count`` lines, not always in order (Google Cloud logs)
========== ================================================================================
"""

from chaosspot.economics.traces.formats import FORMATS, OneMeans, TimeUnit, load, loads

__all__ = ["FORMATS", "OneMeans", "TimeUnit", "load", "loads"]
