"""What README tells a reader to type and to write, as values, and one way to follow it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_FILE = re.compile(r"`([\w.-]+\.\w+)`")
_EXIT = re.compile(r"# exits (\d+)$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block; ``file`` is the last one named in the text since the block before."""

    language: str
    lines: tuple[str, ...]
    file: str | None


@dataclass(frozen=True, kw_only=True)
class Command:
    """A line to type. ``shown`` is what README shows of its output, as comments below it; a comment
    ``# exits 1`` at its end says that it fails."""

    line: str
    code: int
    shown: tuple[str, ...]


def section(text: str, title: str) -> str:
    """The section of a Markdown document under the heading ``## title``."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.M)
    return str(found)


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks, in their order."""
    end = 0
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        named = _FILE.findall(text[end : match.start()])
        end = match.end()
        yield Block(
            language=match[1],
            lines=tuple(match[2].splitlines()),
            file=named[-1] if named else None,
        )


def commands(lines: Sequence[str]) -> list[Command]:
    """The commands of a shell block."""
    found: list[Command] = []
    for line in lines:
        if not line.startswith("# "):
            code = _EXIT.search(line)
            found.append(Command(line=line, code=int(code[1]) if code else 0, shown=()))
        else:
            last = found.pop()
            found.append(Command(line=last.line, code=last.code, shown=(*last.shown, line[2:])))
    return found


def patched(text: str, change: Sequence[str]) -> str:
    """``text`` after a change whose lines begin with " ", "-" or "+", as in a diff; what lies
    between two of its lines may be left out.

    Raises:
        ValueError: a line that must be there is not, or not after the one before.
    """
    result, at = text.splitlines(), 0
    for line in change:
        sign, content = line[0], line[1:]
        if sign == "+":
            result.insert(at, content)
            at += 1
        else:
            at = result.index(content, at)
            if sign == "-":
                del result[at]
            else:
                at += 1
    return "\n".join(result) + "\n"


def missing(shown: Sequence[str], output: str) -> list[str]:
    """The lines shown that do not occur in ``output`` in their order, whatever the timings."""
    printed = iter([_substance(line) for line in output.splitlines()])
    return [line for line in shown if not any(_substance(line) in there for there in printed)]


def follow(text: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Do in ``folder`` all that a section says.

    Raises:
        AssertionError: a command ends with another code, or does not print what is shown.
        ValueError: a change does not fit the file.
    """
    for block in blocks(text):
        if block.language == "bash":
            for command in commands(block.lines):
                _type(command, folder, environment)
            continue
        assert block.file is not None, f"no file is named before {block.lines[0]!r}"
        path = folder / block.file
        if block.language == "diff":
            path.write_text(patched(path.read_text(), block.lines))
        else:
            path.write_text("\n".join(block.lines) + "\n")


def _type(command: Command, folder: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-e", "-c", command.line],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == command.code, f"{command.line}: {done.returncode}\n{done.stdout}"
    lacking = missing(command.shown, done.stdout)
    assert not lacking, f"{command.line} did not print {lacking}:\n{done.stdout}"


def _substance(line: str) -> str:
    return " ".join(re.sub(r"\d+\.\d+", "#", line).split())
