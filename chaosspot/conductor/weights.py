"""The arrays in a checkpoint, and how those of two checkpoints differ."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chaosspot.oracles.comparison import Comparison, Difference

__all__ = ["CheckpointError", "arrays", "compare", "difference"]

Array = NDArray[Any]


class CheckpointError(ValueError):
    """A checkpoint cannot be read; the message says why."""


def compare(name: str, ours: Path, twins: Path, *, ignore: Iterable[str] = ()) -> Comparison:
    """Lay the final checkpoint of a run beside the twin's; never raises for what is in them.

    What cannot be read of the twin either is no fault of the run's. ``ignore`` are patterns of
    names of arrays (``fnmatch``).
    """
    try:
        twin = arrays(twins)
    except CheckpointError as error:
        return Comparison(checkpoint=name, twin_problem=str(error))
    try:
        run = arrays(ours)
    except CheckpointError as error:
        return Comparison(checkpoint=name, problem=str(error))
    patterns = tuple(ignore)
    return Comparison(
        checkpoint=name, difference=difference(_without(run, patterns), _without(twin, patterns))
    )


def difference(run: Mapping[str, Array], twin: Mapping[str, Array]) -> Difference:
    """How ``run`` differs from ``twin``; arrays of another shape or type count as missing."""
    shared = [name for name in run if name in twin and _alike(run[name], twin[name])]
    only_here = tuple(name for name in run if name not in shared)
    only_there = tuple(name for name in twin if name not in shared)
    unequal = [name for name in shared if run[name].tobytes() != twin[name].tobytes()]
    distance = None
    if not only_here and not only_there:
        numbers = [name for name in shared if _numeric(run[name])]
        off = sum(_square(_wide(run[name]) - _wide(twin[name])) for name in numbers)
        size = sum(_square(_wide(twin[name])) for name in numbers)
        distance = float(np.sqrt(off / size)) if size else float(np.sqrt(off))
    return Difference(
        arrays=len(run.keys() | twin.keys()),
        unequal=tuple(unequal),
        only_here=only_here,
        only_there=only_there,
        distance=distance,
    )


def arrays(path: Path) -> dict[str, Array]:
    """All arrays and numbers in a checkpoint by name, such as ``model.0.weight``.

    The suffix says what it is: ``.npy``, ``.npz``, ``.json``, ``.safetensors``, ``.pt``, ``.pth``,
    ``.ckpt`` or ``.bin`` (``torch.load`` with ``weights_only``); of a directory, all its files;
    any other file is one array of bytes.

    Raises:
        CheckpointError: it does not exist or is damaged.
    """
    if not path.exists():
        raise CheckpointError("it does not exist")
    try:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            if not files:
                raise CheckpointError("the directory is empty")
            return {
                f"{file.relative_to(path)}:{name}": array
                for file in files
                for name, array in arrays(file).items()
            }
        return _READERS.get(path.suffix.lower(), _bytes)(path)
    except CheckpointError:
        raise
    except Exception as error:  # whatever a reader raises, the file is no checkpoint
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise CheckpointError(reason[:200]) from error


def _without(given: Mapping[str, Array], patterns: tuple[str, ...]) -> dict[str, Array]:
    return {
        name: array
        for name, array in given.items()
        if not any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _npy(path: Path) -> dict[str, Array]:
    return {path.stem: np.load(path, allow_pickle=False)}


def _npz(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _json(path: Path) -> dict[str, Array]:
    return dict(_leaves(json.loads(path.read_bytes())))


def _safetensors(path: Path) -> dict[str, Array]:
    from safetensors.numpy import load_file

    return dict(load_file(path))


def _torch(path: Path) -> dict[str, Array]:
    if not zipfile.is_zipfile(path):  # torch says the same in a paragraph about pickles
        raise CheckpointError("it is no whole file of torch.save")
    import torch

    return dict(_leaves(torch.load(path, map_location="cpu", weights_only=True)))


def _bytes(path: Path) -> dict[str, Array]:
    return {path.name: np.frombuffer(path.read_bytes(), dtype=np.uint8)}


_READERS: Mapping[str, Callable[[Path], dict[str, Array]]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".json": _json,
    ".safetensors": _safetensors,
    ".pt": _torch,
    ".pth": _torch,
    ".ckpt": _torch,
    ".bin": _torch,
}


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Array]]:
    """What a nest of dictionaries and lists holds; a list of numbers is one array."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and not _is_array(value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{name}.{index}" if name else str(index))
    elif hasattr(value, "detach"):  # a tensor; its bits, where numpy has no such type
        tensor = value.detach().cpu().contiguous()
        wide = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
        yield name, wide.numpy()
    elif value is not None:
        yield name, np.asarray(value)


def _is_array(value: list[Any] | tuple[Any, ...]) -> bool:
    try:
        return bool(value) and np.asarray(value).dtype.kind in "iufb"
    except ValueError:  # ragged
        return False


def _alike(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _numeric(array: Array) -> bool:
    return array.dtype.kind in "iufb"


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _square(array: Array) -> float:
    return float(np.sum(np.square(array)))
