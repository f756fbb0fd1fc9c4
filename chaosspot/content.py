"""The one place that finds ``faults/``, ``suites/`` and ``fixtures/``.

In a checkout they lie beside the package; a wheel carries them inside it. The checkout is looked
at first: an editable install may hold a stale copy.
"""

from __future__ import annotations

import difflib
from pathlib import Path

__all__ = ["ContentError", "content_root", "find", "names"]

_PACKAGE = Path(__file__).resolve().parent


class ContentError(ValueError):
    """A named file of the content does not exist."""


def content_root() -> Path:
    """The folder that holds ``faults/``, ``suites/`` and ``fixtures/``."""
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "faults").is_dir():
        return checkout
    return _PACKAGE / "_content"


def names(folder: str) -> list[str]:
    """Names (file stems, sorted) of the TOML files in one content folder, e.g. ``faults``."""
    return sorted(path.stem for path in (content_root() / folder).glob("*.toml"))


def find(name: str, *folders: str) -> Path:
    """The TOML file that ``name`` means: a path if it looks like one, else a shipped name.

    Args:
        name: ``sudden-kill``, ``./my.toml`` or ``suites/sick/deaf``.
        folders: content folders searched in order, e.g. ``"fixtures/trainers", "suites/sick"``.

    Raises:
        ContentError: nothing by that name; the message names the nearest one that exists.
    """
    path = Path(name).expanduser()
    if path.suffix == ".toml" or len(path.parts) > 1:
        for candidate in (path, content_root() / f"{path}.toml"):
            if candidate.is_file():
                return candidate.resolve()
        raise ContentError(f"no such file: {name!r}")
    for folder in folders:
        shipped = content_root() / folder / f"{name}.toml"
        if shipped.is_file():
            return shipped
    known = [known for folder in folders for known in names(folder)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known)}"
    raise ContentError(f"{name!r} is in none of {', '.join(folders)}{hint}")
