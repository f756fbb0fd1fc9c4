"""README's tutorial, done as a reader would: in an empty folder, with what pip installs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import readme
from installed import environment
from readme import Command

ROOT = Path(__file__).parent.parent
TITLE = "From first attack to first fix"


@pytest.fixture
def tutorial() -> str:
    return readme.section((ROOT / "README.md").read_text(), TITLE)


@pytest.mark.wheel
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_everything_happens_as_the_tutorial_says(
    tutorial: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs = environment(tmp_path_factory.getbasetemp()) / "bin"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    folder = tmp_path / "work"
    folder.mkdir()
    readme.follow(tutorial, folder, {**kept, "PATH": f"{programs}:{kept['PATH']}"})


def test_the_tutorial_starts_from_the_plain_script(tutorial: str) -> None:
    script = (ROOT / "fixtures/trainers/plain_torch.py").read_text()
    first = next(readme.blocks(tutorial))
    assert first.file == "train.py"
    assert script.endswith("\n" + "\n".join(first.lines) + "\n")
    assert "chaosspot import" not in script


def test_the_tutorial_finds_the_bug_and_fixes_it(tutorial: str) -> None:
    """What is executed is an attack that fails, a fix, and the same attack that passes."""
    done = [b for b in readme.blocks(tutorial) if b.language == "bash"]
    typed = [command for block in done for command in readme.commands(block.lines)]
    attacks = [c for c in typed if "attack kill-in-save.toml" in c.line]
    assert [c.code for c in attacks] == [1, 0]
    assert [c.shown for c in typed if c.line.startswith("sed")] == [()]
    assert all(c.shown for c in typed if not c.line.startswith("sed"))
    assert len(tutorial.splitlines()) < 90


MARKDOWN = """
## Before
```python
wrong()
```
## It
In `a.py`, and then `b.toml`:
```toml
x = 1
```
```bash
one  # why
# said 1.25 s
# done
two  # exits 3
```
## After
"""


def test_blocks_are_read_with_the_files_they_are_for() -> None:
    toml, bash = readme.blocks(readme.section(MARKDOWN, "It"))
    assert (toml.language, toml.file, toml.lines) == ("toml", "b.toml", ("x = 1",))
    assert (bash.language, bash.file) == ("bash", None)
    assert readme.commands(bash.lines) == [
        Command(line="one  # why", code=0, shown=("said 1.25 s", "done")),
        Command(line="two  # exits 3", code=3, shown=()),
    ]


def test_a_change_is_made_where_its_lines_are() -> None:
    text = "a\nb\nc\nb\n"
    assert readme.patched(text, ["+0", " c", "-b", "+B"]) == "0\na\nb\nc\nB\n"
    for change in ([" d"], ["-c", "-a"]):
        with pytest.raises(ValueError, match="not in list"):
            readme.patched(text, change)


def test_output_is_compared_in_its_order_without_timings() -> None:
    output = "took 1.5 s   in all\nstep 3\nfail: x\n"
    assert readme.missing(["took 2.75 s in", "fail"], output) == []
    assert readme.missing(["fail", "took 1.5 s"], output) == ["took 1.5 s"]
    assert readme.missing(["step 4"], output) == ["step 4"]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [("false", "false: 1"), ("true  # exits 1", "true"), ("echo yes\n# no", "did not print")],
)
def test_a_tutorial_that_is_wrong_fails(tmp_path: Path, line: str, wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        readme.follow(f"```bash\n{line}\n```\n", tmp_path, os.environ)
    readme.follow("`f.txt`:\n```\nyes\n```\n```bash\ncat f.txt\n# yes\n```\n", tmp_path, os.environ)
