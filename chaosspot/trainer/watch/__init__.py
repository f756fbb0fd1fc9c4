"""What one cloud says about this node, asked for and understood: pure state machines.

A machine gives the next request and when to make it, and takes what came of it: an answer or a
failure, with the time. It has no clock, socket or randomness of its own, so that the same code
runs on real sockets and under virtual time. ``watcher`` drives one; ``exchange`` is its socket.
"""
