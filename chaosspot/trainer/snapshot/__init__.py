"""Snapshots: host copy -> flash -> store. A snapshot exists once its manifest does.

``staging`` copies the state at a step boundary, the only thing training waits for; ``flash``
writes the copy to the node's disk; ``uploader`` carries it to the ``store``, out of band.
Flash and store share one layout, that of ``manifest``.
"""
