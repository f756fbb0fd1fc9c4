"""What ARCHITECTURE.md says is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
ROW = re.compile(r"^\| (?P<what>[^|]+) \| `(?P<file>[^`]+)` \| `(?P<test>[^`]+)` \|$", re.M)


def test_each_property_is_held_by_a_test_that_is_there() -> None:
    rows = [match.groups() for match in ROW.finditer(TEXT)]
    assert len(rows) >= 12
    for what, file, test in rows:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        functions = {f.name for f in tree.body if isinstance(f, ast.FunctionDef)}
        assert test in functions, f"{what}: no {test} in {file}"


def test_each_folder_and_module_that_is_drawn_is_there() -> None:
    drawn = TEXT.split("```")[1]
    package, content = drawn.split("\nfaults/")
    inside = re.findall(r"^  ([a-z_0-9]+(?:/|\.py))(?= |$)", package, re.M)
    assert len(inside) > 15
    for name in inside:
        path = ROOT / "chaosspot" / name
        assert path.is_dir() if name.endswith("/") else path.is_file(), name
    for name in re.findall(r"^([a-z]+/) ", "faults/" + content, re.M):
        assert (ROOT / name).is_dir(), name
