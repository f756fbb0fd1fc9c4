"""All ranks go back to one snapshot: the newest that can be read, from whatever has its parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosspot.trainer.agreement import (
    ROW,
    Holdings,
    agree,
    all_lost,
    awaits,
    read_table,
    write_row,
)
from chaosspot.trainer.snapshot.parts import Part, SnapshotId, complete, parts_in

OLD, NEW = SnapshotId(10, 1, 2), SnapshotId(15, 2, 2)


def rank(*flash: Part, step: int = 0, store: tuple[SnapshotId, ...] = (), bad=()) -> Holdings:
    return Holdings(step=step, flash=frozenset(flash), store=frozenset(store), bad=frozenset(bad))


def test_parts_on_different_disks_make_a_snapshot() -> None:
    reading = agree([rank(Part(NEW, 1), Part(OLD, 0)), rank(Part(NEW, 0), Part(OLD, 1))])
    assert reading is not None
    assert (reading.snapshot, reading.flash, reading.store) == (NEW, {0: 1, 1: 0}, {})


def test_an_older_one_that_is_whole_comes_before_a_newer_one_that_is_not() -> None:
    reading = agree([rank(Part(NEW, 1), Part(OLD, 0)), rank(Part(OLD, 1))])
    assert reading is not None
    assert reading.snapshot == OLD


def test_the_store_has_what_the_disks_have_not() -> None:
    reading = agree([rank(Part(NEW, 1)), rank(store=(NEW,)), rank(store=(NEW,))])
    assert reading is not None
    assert (reading.flash, reading.store) == ({1: 0}, {0: 1})
    reading = agree([rank(store=(NEW,)), rank(store=(NEW,))])
    assert reading is not None
    assert reading.store == {0: 0, 1: 1}, "ranks read different parts"


def test_what_one_found_bad_in_the_store_nobody_reads_there() -> None:
    bad = (Part(NEW, 0),)
    assert agree([rank(store=(NEW,), bad=bad), rank(store=(NEW,))]) is None
    reading = agree([rank(store=(NEW,), bad=bad), rank(Part(NEW, 0), store=(NEW,))])
    assert reading is not None
    assert (reading.flash, reading.store) == ({0: 1}, {1: 1})


@pytest.mark.parametrize("step", [15, 16])
def test_memory_comes_first(step: int) -> None:
    assert agree([rank(store=(NEW,)), rank(step=step)]) is None
    assert agree([rank(store=(NEW,)), rank(step=14)]) is not None


def test_peers_are_waited_for_who_may_have_the_rest_of_something_newer() -> None:
    part, old = rank(Part(NEW, 1)), rank(store=(OLD,))
    assert awaits([part], None)
    assert awaits([part, old], agree([part, old]))
    both = [part, rank(Part(NEW, 0))]
    assert not awaits(both, agree(both))
    assert not awaits([old], agree([old]))
    assert not awaits([part, rank(step=3)], None), "training goes on already"
    tired = Holdings(step=0, flash=part.flash, tired=True)
    assert not awaits([tired, part], None), "one that is tired of waiting is enough"


def test_a_store_that_does_not_say_what_it_has_is_waited_for() -> None:
    blind = Holdings(step=0, blind=True, tired=True)
    assert awaits([blind, rank()], None)
    assert awaits([blind, rank(store=(OLD,))], agree([blind, rank(store=(OLD,))]))
    assert not awaits([blind, rank(step=3)], None), "peers have the state"


def test_nobody_begins_anew_beside_snapshots_that_cannot_be_read() -> None:
    damaged = Holdings(step=0, rejected=1)
    assert all_lost([rank(), damaged], None)
    assert not all_lost([rank(step=4), damaged], None)
    assert not all_lost([damaged, rank(store=(OLD,))], agree([rank(store=(OLD,))]))
    assert not all_lost([rank()], None)


def test_nobody_holds_anything() -> None:
    assert agree([rank(), rank()]) is None
    assert agree([]) is None


snapshots = st.builds(SnapshotId, st.integers(1, 9), st.integers(1, 3), st.integers(1, 4))
parts = snapshots.flatmap(lambda of: st.builds(Part, st.just(of), st.integers(0, of.count - 1)))
holdings = st.builds(
    Holdings,
    step=st.integers(0, 9),
    tired=st.booleans(),
    flash=st.frozensets(parts, max_size=12),
    store=st.frozensets(snapshots, max_size=6),
    bad=st.frozensets(parts, max_size=6),
    blind=st.booleans(),
    rejected=st.integers(0, 99),
)


@given(holdings)
def test_a_row_says_it_all(held: Holdings) -> None:
    row = write_row(held)
    assert len(row) == ROW
    assert read_table([row]) == [held]


def test_a_row_that_nobody_wrote_says_nothing() -> None:
    assert read_table([[0] * ROW]) == [Holdings(step=0)]


@given(st.frozensets(snapshots, min_size=60, max_size=80))
def test_a_row_that_is_too_short_says_the_newest(many: frozenset[SnapshotId]) -> None:
    (found,) = read_table([write_row(Holdings(step=3, store=many))])
    assert found.store
    assert min(found.store) > max(many - found.store)


@given(st.lists(holdings, min_size=1, max_size=4))
def test_what_is_agreed_can_be_read_and_is_the_newest(table: list[Holdings]) -> None:
    reading = agree(table)
    bad = {part for held in table for part in held.bad}
    memory = max(held.step for held in table)

    def readable(part: Part) -> bool:
        in_store = part not in bad and any(part.of in held.store for held in table)
        return in_store or any(part in held.flash for held in table)

    known = {s for held in table for s in (*held.store, *(p.of for p in held.flash))}
    good = [s for s in known if s.step > memory and all(map(readable, s.parts()))]
    if reading is None:
        assert not good
        return
    assert reading.snapshot == max(good)
    assert sorted([*reading.flash, *reading.store]) == list(range(reading.snapshot.count))
    for index, reader in reading.flash.items():
        assert Part(reading.snapshot, index) in table[reader].flash
    for index, reader in reading.store.items():
        assert Part(reading.snapshot, index) not in bad
        assert reading.snapshot in table[reader].store


@given(parts)
def test_a_part_is_known_by_its_keys(part: Part) -> None:
    assert Part.of_key(part.data_key) == Part.of_key(part.manifest_key) == part
    assert parts_in([part.data_key]) == []
    assert parts_in([part.manifest_key, "else/manifest.json"]) == [part]


@given(st.integers(1, 9), st.integers(0, 200_000))
def test_parts_cover_the_state_once_at_whole_blocks(count: int, total_bytes: int) -> None:
    spans = [part.span(total_bytes) for part in SnapshotId(1, 1, count).parts()]
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert spans[-1][1] == total_bytes
    assert all(start % 4096 == 0 or start == total_bytes for start, _ in spans)
    sizes = [end - start for start, end in spans]
    assert max(sizes) - min(sizes) < 2 * 4096


@given(st.frozensets(parts, max_size=12))
def test_a_snapshot_is_complete_with_all_of_its_parts(there: frozenset[Part]) -> None:
    keys = [part.manifest_key for part in there]
    whole = complete(keys)
    assert whole == sorted({part.of for part in there if set(part.of.parts()) <= there})
