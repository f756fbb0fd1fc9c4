"""Keep torchft's own logging out of the way. Call before torchft is imported: its Rust side reads
its level once, at import."""

from __future__ import annotations

import logging
import os
import warnings

__all__ = ["quiet_torchft"]


def quiet_torchft(verbose: bool) -> None:
    """Silence what this trainer reports itself, in one line instead of a traceback."""
    if verbose:
        return
    os.environ.setdefault("RUST_LOG", "error")
    for name in ("torchft", "torchft_quorums", "torchft_commits", "torchft_errors"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("torchft.manager").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="The given buffer is not writable")
