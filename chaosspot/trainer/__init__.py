"""The reference trainer: data-parallel training that survives losing its nodes.

Read it in this order: ``plan`` (every decision, as pure functions), ``model``, ``data``,
``reduction`` (why the result does not depend on who took part), ``state``, ``membership``,
``snapshot/``, ``restore``, ``watch/`` (what a cloud announces), ``loop``. It knows nothing of the
harness but :mod:`chaosspot.probe`.

Importing this package loads neither torch nor torchft; ``train`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chaosspot.trainer.config import InputError, StepReport, TrainConfig, TrainResult

if TYPE_CHECKING:
    from chaosspot.trainer.loop import train

__all__ = ["InputError", "StepReport", "TrainConfig", "TrainResult", "train"]


def __getattr__(name: str) -> Any:
    if name == "train":
        from chaosspot.trainer.quiet import quiet_torchft

        quiet_torchft(verbose=False)
        from chaosspot.trainer.loop import train

        globals()["train"] = train
        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
