from pathlib import Path

import msgspec
import pytest
from histories import Story, undisturbed
from hypothesis import given
from hypothesis import strategies as st

from chaosspot import history as h


def lines(story: Story) -> bytes:
    return b"".join(h.encode(record) for record in story.records)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    story = undisturbed(5)
    story.notice(5.2, "node-1", lead_s=30.0, gone_t=7.0)
    story.tell(h.Other, 8.0, "node-0", name="checkpoint.cleaned", extra={"bytes": 7})
    story.stop(9.0)
    with h.Writer(tmp_path / "history.jsonl") as writer:
        written = [writer.append(record) for record in story.records]
    assert h.read(tmp_path / "history.jsonl") == h.ordered(written)


def test_unknown_fields_and_events_are_kept() -> None:
    line = (
        b'{"seq":0,"t":1.0,"t_seen":1.0,"wall":1.0,"boot":"b","node":"n","rank":0,"incarnation":0,'
        b'"pid":1,"event":"commit","step":3,"lr":0.1}'
    )
    record = h.decode(msgspec.json.decode(line))
    assert isinstance(record, h.Commit)
    assert record.extra == {"lr": 0.1}
    assert msgspec.json.decode(h.encode(record)) == msgspec.json.decode(line)


@given(st.integers(min_value=1))
def test_a_torn_last_line_is_left_out(cut: int) -> None:
    data = lines(undisturbed(4))
    torn = data[: len(data) - 1 - cut % (len(data) - 1)]
    whole = torn[: torn.rfind(b"\n") + 1]
    assert h.parse(torn) == h.parse(whole)


def test_a_broken_line_in_the_middle_is_an_error_that_names_it() -> None:
    first, second, *_ = (h.encode(record) for record in undisturbed(1).records)
    with pytest.raises(ValueError, match=r"h\.jsonl:2: "):
        h.parse(first + b"{]\n" + second, origin="h.jsonl")


def test_records_of_one_boot_go_by_the_time_they_happened_not_by_when_they_were_seen() -> None:
    story = Story()
    story.up(0.0, "node-0")
    story.tell(h.Commit, 2.0, "node-0", step=2, t_seen=2.0)
    story.tell(h.Commit, 1.0, "node-1", step=1, t_seen=3.0)
    assert [r.t for r in h.ordered(story.records)] == [0.0, 1.0, 2.0]


def test_records_of_another_machine_go_by_the_time_they_were_seen() -> None:
    story = Story()
    story.up(100.0, "node-0")
    story.tell(h.Commit, 7.0, "far", step=1, boot="other", t_seen=101.0)
    story.tell(h.Commit, 9.0, "far", step=2, boot="other", t_seen=103.0)
    story.tell(h.NodeGone, 102.0, "node-0", by_itself=True)
    assert [r.event for r in h.ordered(story.records)] == [
        "node.up",
        "commit",
        "node.gone",
        "commit",
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"event": 3},
        {},
        {"event": "commit"},
        {"event": "commit", "step": "x"},
        {"event": "snapshot", "step": 1, "stage": "nowhere"},
    ],
)
def test_what_is_no_event_is_refused(fields: dict) -> None:
    header = {"seq": 0, "t": 1.0, "t_seen": 1.0, "wall": 1.0, "boot": "b", "node": "n"}
    with pytest.raises(ValueError, match=r".+"):
        h.decode({**header, "rank": 0, "incarnation": 0, "pid": 1, **fields})
