"""Commands over a job's snapshots: list, inspect, verify, restore."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from chaosspot.cli.common import Json, err, guarded, out, print_json, stop, warn
from chaosspot.words import count, plain

if TYPE_CHECKING:
    from chaosspot.cli.shelves import Copy, Found, ReadDisk

__all__ = ["app"]

DAMAGED = 1
USAGE = 2

_AT_ONCE = 4  # files that are read in parallel
_SHOWN = 3  # names of files that are none of ours

app = typer.Typer(help="A job's snapshots, on disks and in stores.", no_args_is_help=True)

Places = Annotated[
    list[str],
    typer.Argument(
        metavar="PLACE...",
        help="Directories (a node's flash, a store) or s3://BUCKET/PREFIX; several count as one.",
        show_default=False,
    ),
]
PlacesAndStep = Annotated[
    list[str],
    typer.Argument(
        metavar="PLACE... [STEP]",
        help="Directories (a node's flash, a store) or s3://BUCKET/PREFIX; several count as one. "
        "A number at the end is a step.",
        show_default=False,
    ),
]


@app.command("list")
@guarded
def list_(places: Places, json: Json = False) -> None:
    """List the snapshots, the newest last.

    Exits with 1 if none is complete.
    """
    found = _found(places)
    if json:
        print_json([_summary(snapshot) for snapshot in found])
    else:
        _print_table(found)
    if not any(snapshot.complete for snapshot in found):
        raise typer.Exit(DAMAGED)


@app.command()
@guarded
def inspect(places: PlacesAndStep, json: Json = False) -> None:
    """Show what one snapshot consists of, by default the newest complete one.

    Reads manifests alone. Exits with 1 if it is incomplete.
    """
    paths, step = _split(places)
    snapshot = _chosen(_found(paths), step, paths)
    if json:
        print_json(_detail(snapshot))
    else:
        _print_detail(snapshot)
    if not snapshot.complete:
        raise typer.Exit(DAMAGED)


@app.command()
@guarded
def verify(places: PlacesAndStep, json: Json = False) -> None:
    """Read every byte of one step's snapshots, or of all, and compare it with its sums.

    Exits with 1 if anything is damaged or incomplete, and names it.
    """
    paths, step = _split(places)
    found = _found(paths)
    if step is not None:
        _chosen(found, step, paths)
        found = [snapshot for snapshot in found if snapshot.id.step == step]
    damage = _verified([copy for snapshot in found for copy in snapshot.copies])
    told = [
        _summary(snapshot)
        | {"damaged": [damage[id(copy)] for copy in snapshot.copies if id(copy) in damage]}
        for snapshot in found
    ]
    if json:
        print_json(told)
    else:
        for snapshot, answer in zip(found, told, strict=True):
            wrong = list(dict.fromkeys([*answer["damaged"], *snapshot.problems]))
            state = "[red]not good[/]" if wrong else "[green]good[/]"
            out.print(f"{snapshot.id}: {state}", highlight=False)
            for text in wrong:
                out.print(f"  {plain(text)}", markup=False, highlight=False, soft_wrap=True)
    if damage or any(snapshot.problems for snapshot in found):
        raise typer.Exit(DAMAGED)


@app.command()
@guarded
def restore(
    places: PlacesAndStep,
    out_: Annotated[
        Path, typer.Option("--out", metavar="FILE.safetensors", help="A file that is not there.")
    ],
    json: Json = False,
) -> None:
    """Write every tensor of one snapshot, by default the newest complete one, to a file.

    The file is there whole or not at all. Exits with 1 if the snapshot is damaged or incomplete.
    """
    from chaosspot.cli import exporting

    paths, step = _split(places)
    found = _found(paths)
    snapshot = _chosen(found, step, paths)
    if not snapshot.complete:
        stop(f"{snapshot.id}: {'; '.join(snapshot.problems)}", DAMAGED)
    for newer in found:
        if step is None and newer.id > snapshot.id:
            warn(f"passed over: {newer.id}: {'; '.join(newer.problems)}")
    size = snapshot.total_bytes or 0
    try:
        exporting.refuse(out_, size)
        with _reading("restoring", size) as disk:
            exporting.export(snapshot, out_, disk)
    except exporting.ExportError as error:
        stop(str(error), USAGE)
    except exporting.DamagedError as error:
        others = [str(other.id.step) for other in found if other.complete and other != snapshot]
        hint = f"; complete as well: step {', '.join(others)}" if others else ""
        stop(f"{error}{hint}", DAMAGED)
    if json:
        print_json(_summary(snapshot) | {"file": str(out_)})
    else:
        names = count(len(snapshot.manifests[0].tensors), "tensor")
        out.print(
            plain(f"{names} of step {snapshot.id.step} in {out_}"), markup=False, highlight=False
        )


def _split(places: list[str]) -> tuple[list[str], int | None]:
    *paths, last = places
    if not (last.isascii() and last.isdigit()):
        return places, None
    if not paths:
        stop(f"no PLACE, only the step {last}; a directory of that name is ./{last}", USAGE)
    return paths, int(last)


def _found(places: list[str]) -> list[Found]:
    from chaosspot.cli.shelves import find, open_shelf

    shelves = [open_shelf(text) for text in dict.fromkeys(places)]
    found, unknown = find(shelves)
    for name, keys in unknown.items():
        more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        shown = ", ".join(repr(key) for key in keys[:_SHOWN])
        warn(plain(f"{name!r}: none of a snapshot, passed over: {shown}{more}"))
    if not found:
        stop(plain(f"no snapshot in {', '.join(map(repr, places))}"), USAGE)
    return found


def _chosen(found: list[Found], step: int | None, places: list[str]) -> Found:
    """The newest of that step, or of all; one that is complete if any is."""
    steps = dict.fromkeys(str(snapshot.id.step) for snapshot in found)
    fitting = [snapshot for snapshot in found if step in (None, snapshot.id.step)]
    if not fitting:
        where = plain(", ".join(map(repr, places)))
        stop(f"no snapshot of step {step} in {where}; there are: {', '.join(steps)}", USAGE)
    return max(fitting, key=lambda snapshot: (snapshot.complete, snapshot.id))


def _summary(snapshot: Found) -> dict[str, Any]:
    return {
        "step": snapshot.id.step,
        "generation": snapshot.id.generation,
        "parts_there": len(snapshot.good),
        "parts": snapshot.id.count,
        "bytes": sum(manifest.sums.file_bytes for manifest in snapshot.manifests),
        "total_bytes": snapshot.total_bytes,
        "complete": snapshot.complete,
        "problems": snapshot.problems,
    }


def _detail(snapshot: Found) -> dict[str, Any]:
    manifest = next(iter(snapshot.manifests), None)
    return _summary(snapshot) | {
        "job": manifest and manifest.job,
        "digest": manifest and manifest.digest,
        "copies": [
            {
                "part": copy.part.index,
                "place": copy.shelf.name,
                "start": copy.manifest and copy.manifest.start,
                "bytes": copy.manifest and copy.manifest.sums.file_bytes,
                "sum": copy.manifest and copy.manifest.sums.whole,
                "damage": copy.damage,
            }
            for copy in snapshot.copies
        ],
        "tensors": manifest.tensors if manifest else {},
    }


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        right = column in ("step", "generation", "parts", "bytes", "part", "start")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def _print_table(found: list[Found]) -> None:
    table = _table("step", "generation", "parts", "bytes", "state")
    for snapshot in found:
        told = _summary(snapshot)
        table.add_row(
            str(told["step"]),
            str(told["generation"]),
            f"{told['parts_there']}/{told['parts']}",
            f"{told['bytes']:,}",
            "complete" if told["complete"] else plain("; ".join(told["problems"])),
        )
    out.print(table, markup=False, highlight=False)


def _print_detail(snapshot: Found) -> None:
    told = _detail(snapshot)
    state = "complete" if snapshot.complete else plain("; ".join(snapshot.problems))
    lines = [f"{snapshot.id}: {state}"]
    if told["job"] is not None:
        lines.append(plain(f"job {told['job']}, digest {told['digest']}"))
        lines.append(f"{told['total_bytes']:,} bytes in {count(len(told['tensors']), 'tensor')}")
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    parts = _table("part", "start", "bytes", "sum", "place")
    for copy in told["copies"]:
        numbers = [f"{copy[name]:,}" if copy["sum"] else "-" for name in ("start", "bytes")]
        place = plain(copy["place"])
        parts.add_row(str(copy["part"]), *numbers, copy["sum"] or "damaged", place)
    tensors = _table("tensor", "dtype", "shape", "bytes")
    for name, entry in told["tensors"].items():
        shape = "x".join(map(str, entry.shape))
        tensors.add_row(plain(name), plain(entry.dtype), shape, f"{entry.stop - entry.start:,}")
    for table in (parts, tensors):
        if table.row_count:
            out.print(table, markup=False, highlight=False)


def _verified(copies: list[Copy]) -> dict[int, str]:
    """What is wrong with the copies, by their identity."""
    from chaosspot.trainer.snapshot.manifest import ManifestError

    damage = {id(copy): copy.damage for copy in copies if copy.manifest is None}
    total = sum(copy.manifest.sums.file_bytes for copy in copies if copy.manifest)

    def check(copy: Copy, disk: ReadDisk) -> str:
        assert copy.manifest is not None
        try:
            copy.shelf.check(copy.part, copy.manifest, disk)
        except ManifestError as error:
            return str(error)
        except OSError as error:
            if error.errno == errno.ECANCELED:
                raise
            key = error.filename or f"{copy.shelf.name}: {copy.part.data_key}"
            return f"{key}: {error.strerror or error}"
        return ""

    with _reading("verifying", total) as disk, ThreadPoolExecutor(_AT_ONCE, "verify") as threads:
        futures: dict[Future[str], Copy] = {}
        try:
            for copy in copies:
                if copy.manifest is not None:
                    futures[threads.submit(check, copy, disk)] = copy
            for future in as_completed(futures):
                if text := future.result():
                    damage[id(futures[future])] = text
        except BaseException:  # Ctrl-C as well: what is being read is not read to its end
            disk.stop()
            threads.shutdown(cancel_futures=True)
            raise
    return damage


@contextmanager
def _reading(what: str, total: int) -> Iterator[ReadDisk]:
    """A disk whose reads move a progress bar, on a terminal."""
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    from chaosspot.cli.shelves import ReadDisk

    log = logging.getLogger("chaosspot.trainer.snapshot")
    level = log.level
    log.setLevel(logging.ERROR)  # that a file system has no direct I/O does not matter here
    columns = (*Progress.get_default_columns()[:2], DownloadColumn(), TransferSpeedColumn())
    try:
        with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as shown:
            bar = shown.add_task(what, total=total)
            yield ReadDisk(lambda size: shown.advance(bar, size))
    finally:
        log.setLevel(level)
