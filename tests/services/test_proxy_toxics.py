"""What each toxic does to a stream, in virtual time."""

from __future__ import annotations

import itertools
import math
import statistics

import proxied
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxied import END, chain, joined, pass_time, toxic

from chaosspot.services.proxy.chain import strikes
from chaosspot.services.proxy.toxics import KINDS, slicer
from chaosspot.services.proxy.toxics.slicer import Slicer

PAYLOAD = bytes(range(256)) * 400  # 102,400 bytes
CHUNKS = [(0.0, PAYLOAD[at : at + 32768]) for at in range(0, len(PAYLOAD), 32768)]


def times(left: list[tuple[float, proxied.Item]]) -> list[float]:
    return [at for at, _ in left]


# --- latency ------------------------------------------------------------------------------------


def test_latency_of_chunks_does_not_add_up() -> None:
    came = [(0.02 * n, b"%d" % n) for n in range(5)]
    left = pass_time(chain(toxic("latency", latency=200)), came)
    assert left == [(round(0.2 + 0.02 * n, 6), b"%d" % n) for n in range(5)]


def test_two_latencies_add_up() -> None:
    line = chain(toxic("latency", latency=200, name="a"), toxic("latency", latency=100, name="b"))
    assert pass_time(line, [(0.0, b"x"), (0.01, b"y")]) == [(0.3, b"x"), (0.31, b"y")]


def test_jitter_stays_within_its_bounds_and_keeps_the_order() -> None:
    came = [(1.0 * n, b"%4d" % n) for n in range(400)]
    left = pass_time(chain(toxic("latency", latency=300, jitter=100)), came)
    delays = [at - n for n, (at, _) in enumerate(left)]
    assert min(delays) >= 0.2
    assert max(delays) < 0.4
    # Uniform: the mean of 400 lies within 3 standard errors of the middle.
    assert abs(statistics.mean(delays) - 0.3) < 3 * 0.1 / math.sqrt(3 * 400)
    assert max(delays) - min(delays) > 0.18
    close = pass_time(
        chain(toxic("latency", latency=300, jitter=300)),
        [(0.001 * n, b"%4d" % n) for n in range(400)],
    )
    assert [item for _, item in close] == [b"%4d" % n for n in range(400)]


@pytest.mark.parametrize("given", [{"latency": -500}, {"latency": 100, "jitter": -100}])
def test_negative_latency_and_jitter_are_none(given: dict[str, int]) -> None:
    (left,) = pass_time(chain(toxic("latency", **given)), [(1.0, b"x")])
    assert left == (1.0 + max(0, given["latency"]) / 1000, b"x")


def test_a_latency_after_another_begins_when_the_chunk_comes_to_it() -> None:
    came = [(0.01 * n, b"%4d" % n) for n in range(50)]
    first, second = (
        toxic("latency", name="a", latency=300, jitter=300),
        toxic("latency", latency=100),
    )
    alone = pass_time(chain(first), came)
    both = pass_time(chain(first, second), came)
    assert [at for at, _ in both] == pytest.approx([at + 0.1 for at, _ in alone])


def test_a_delay_below_zero_is_none() -> None:
    left = pass_time(
        chain(toxic("latency", latency=0, jitter=100)), [(1.0 * n, b"x") for n in range(100)]
    )
    assert sum(at == n for n, (at, _) in enumerate(left)) in range(30, 71)


def test_latency_does_not_delay_the_end_by_itself() -> None:
    assert pass_time(chain(toxic("latency", latency=200)), [(1.0, END)]) == [(1.0, END)]
    line = chain(toxic("latency", latency=200))
    assert pass_time(line, [(1.0, b"x"), (1.0, END)]) == [(1.2, b"x"), (1.2, END)]


def test_latency_lets_a_thousand_chunks_wait() -> None:
    line = chain(toxic("latency", latency=1000))
    assert len(pass_time(line, [(0.0, b"x")] * 1100, until_s=0.5)) == 0
    line.advance(0.5)
    taken = 0
    while line.room:
        line.put(b"x", 0.5)
        taken += 1
    assert taken == 0  # 1024 wait, and one is on its way
    assert len(pass_time(line)) == 1025


# --- bandwidth ----------------------------------------------------------------------------------


def test_bandwidth_cuts_chunks_that_take_longer_than_a_tenth_of_a_second() -> None:
    left = pass_time(chain(toxic("bandwidth", rate=100)), [(0.0, b"x" * 25000)])
    assert [(at, len(item)) for at, item in left if isinstance(item, bytes)] == [
        (0.1, 10000),
        (0.2, 10000),
        (0.25, 5000),
    ]


def test_bandwidth_lets_others_go_whole() -> None:
    left = pass_time(chain(toxic("bandwidth", rate=400)), [(0.0, b"x" * 32768)])
    assert left == [(0.08192, b"x" * 32768)]


@pytest.mark.parametrize("rate", [1, 10, 100, 1000, 50_000])
def test_bandwidth_keeps_its_rate(rate: int) -> None:
    left = pass_time(chain(toxic("bandwidth", rate=rate)), [*CHUNKS, (0.0, END)])
    assert joined(left) == PAYLOAD
    assert left[-1][0] == pytest.approx(len(PAYLOAD) / rate / 1000, rel=1e-4)


def test_bandwidth_makes_up_for_late_timers() -> None:
    """What comes out late leaves that much less to wait: the rate holds on the average."""
    line = chain(toxic("bandwidth", rate=1000))
    now_s, sent = 0.0, 0
    while sent < 10**6:
        line.advance(now_s)
        while line.outbox or line.room:
            while line.room:
                line.put(b"x" * 1000, now_s)
            line.advance(now_s)
            if not line.outbox:
                break
            sent += len(line.outbox.popleft().data)  # type: ignore[union-attr]
            line.advance(now_s)
        now_s += 0.0077  # a loop that comes by every 7.7 ms, not when something is due
    assert now_s == pytest.approx(1.0, rel=0.02)


def test_bandwidth_of_nothing_stalls_until_it_is_removed() -> None:
    line = chain(toxic("bandwidth", rate=0))
    assert pass_time(line, [(0.0, b"abc"), (0.0, b"def"), (0.0, END)]) == []
    line.remove("bandwidth_downstream")
    assert joined(pass_time(line)) == b"abcdef"


# --- slow_close, timeout, reset_peer ------------------------------------------------------------


def test_slow_close_delays_the_end_alone() -> None:
    line = chain(toxic("slow_close", delay=700))
    assert pass_time(line, [(0.5, b"x"), (1.0, END)]) == [(0.5, b"x"), (1.7, END)]


def test_slow_close_removed_closes_at_once() -> None:
    line = chain(toxic("slow_close", delay=700_000))
    assert pass_time(line, [(0.0, END)], until_s=1.0) == []
    line.remove("slow_close_downstream")
    assert [item for _, item in pass_time(line)] == [END]


def test_timeout_drops_everything_and_ends_after_silence() -> None:
    assert pass_time(chain(toxic("timeout", timeout=400))) == [(0.4, END)]
    beats = [(0.2 * n, b".") for n in range(11)]  # the last at 2.0 s
    assert pass_time(chain(toxic("timeout", timeout=400)), beats) == [(2.4, END)]


def test_timeout_of_nothing_holds_for_ever_and_passes_the_end() -> None:
    line = chain(toxic("timeout", timeout=0))
    assert pass_time(line, [(0.0, b"x"), (9.0, b"y")]) == []
    assert line.next_s == math.inf
    assert pass_time(line, [(0.0, END)]) == [(0.0, END)]
    assert pass_time(chain(toxic("timeout", timeout=-5)), [(0.0, b"x")]) == []


def test_an_absolute_end_is_reset_nows() -> None:
    """What people expect of timeout: it comes though a byte is sent every 200 ms."""
    line = chain(toxic("reset_now", timeout=450))
    beats = [(0.2 * n, b".") for n in range(11)]
    left = pass_time(line, beats)
    assert line.reset
    assert left == [(0.0, b"."), (0.2, b"."), (0.4, b"."), (0.45, END)]
    busy = chain(toxic("reset_now", timeout=450))
    busy.put(b"late", 0.5)  # and the timer is later still
    busy.advance(0.5)
    assert busy.reset
    assert list(busy.outbox) == [END]


def test_reset_now_does_not_wait_for_a_stalled_reader() -> None:
    line = chain(toxic("reset_now", timeout=400))
    for _ in range(3):
        line.put(b"x", 0.0)
        line.advance(0.0)  # nothing is taken out
    line.advance(0.39)
    assert not line.reset
    line.advance(0.4)
    assert line.reset


def test_timeout_removed_ends_the_stream_where_it_ran() -> None:
    line = chain(toxic("timeout", timeout=0))
    line.remove("timeout_downstream")
    assert [item for _, item in pass_time(line)] == [END]
    line = chain(toxic("timeout", timeout=0, toxicity=0.0))
    line.remove("timeout_downstream")
    assert pass_time(line, [(0.0, b"x")]) == [(0.0, b"x")]


@pytest.mark.parametrize("first", [b"data", END])
def test_reset_peer_waits_for_the_first_chunk_or_the_end(first: proxied.Item) -> None:
    line = chain(toxic("reset_peer", timeout=300))
    assert line.lingering() == ("reset_peer_downstream",)
    assert pass_time(line, until_s=100.0) == []
    assert pass_time(chain(toxic("reset_peer", timeout=300)), [(5.0, first)]) == [(5.3, END)]


def test_reset_peer_removed_while_it_waits_ends_at_once() -> None:
    """What it swallowed is gone: the stream cannot go on."""
    line = chain(toxic("reset_peer", timeout=300_000))
    assert pass_time(line, [(0.0, b"swallowed")], until_s=1.0) == []
    line.remove("reset_peer_downstream")
    assert [item for _, item in pass_time(line)] == [END]
    untouched = chain(toxic("reset_peer"))
    untouched.remove("reset_peer_downstream")
    assert pass_time(untouched, [(0.0, b"x")]) == [(0.0, b"x")]


# --- slicer, limit_data, noop -------------------------------------------------------------------


def test_slicer_cuts_as_the_real_one() -> None:
    left = pass_time(
        chain(toxic("slicer", average_size=100, size_variation=10)), [(0.0, b"x" * 1000)]
    )
    sizes = [len(item) for _, item in left if isinstance(item, bytes)]
    assert sum(sizes) == 1000
    assert len(sizes) == 16
    assert all(45 <= size <= 80 for size in sizes)


def test_slicer_waits_after_each_piece() -> None:
    line = chain(toxic("slicer", average_size=100, delay=50_000))
    left = pass_time(line, [(0.0, b"x" * 400), (0.0, b"y")])
    assert times(left) == [0.0, 0.05, 0.1, 0.15, 0.2]
    assert [len(i) for _, i in left if isinstance(i, bytes)] == [100, 100, 100, 100, 1]


@given(
    average=st.integers(1, 400),
    share=st.floats(0, 1),
    length=st.integers(0, 5000),
    seed=st.integers(0, 99),
)
def test_slicer_loses_and_repeats_nothing(
    average: int, share: float, length: int, seed: int
) -> None:
    a = Slicer(average_size=average, size_variation=int(share * average))
    numbers = iter(range(10**6))

    def draw() -> float:
        return (next(numbers) * 0.618 + seed / 100) % 1

    ends = slicer.cuts(length, a, draw)
    assert ends == sorted(set(ends))
    assert ends[-1:] == [length] * bool(length)
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    assert all(1 <= size <= a.average_size + a.size_variation for size in sizes)


def test_limit_data_passes_that_many_bytes_then_ends() -> None:
    line = chain(toxic("limit_data", bytes=5))
    assert pass_time(line, [(0.0, b"abc"), (0.1, b"defg"), (0.2, b"h")]) == [
        (0.0, b"abc"),
        (0.1, b"de"),
        (0.1, END),
    ]
    exact = chain(toxic("limit_data", bytes=3))
    assert pass_time(exact, [(0.0, b"abc")]) == [(0.0, b"abc"), (0.0, END)]


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_data_of_nothing_ends_at_the_first_chunk(limit: int) -> None:
    assert pass_time(chain(toxic("limit_data", bytes=limit))) == []
    assert pass_time(chain(toxic("limit_data", bytes=limit)), [(1.0, b"x")]) == [(1.0, END)]


def test_limit_data_counts_on_when_it_is_changed() -> None:
    line = chain(toxic("limit_data", bytes=5))
    pass_time(line, [(0.0, b"abc")])
    line.update(toxic("limit_data", bytes=4))
    assert pass_time(line, [(0.0, b"defg")]) == [(0.0, b"d"), (0.0, END)]


def test_noop_does_nothing() -> None:
    came = [*CHUNKS, (1.0, END)]
    assert pass_time(chain(toxic("noop")), came) == came


# --- of our own ---------------------------------------------------------------------------------


def test_half_close_is_told_at_the_end() -> None:
    line = chain(toxic("half_close"))
    assert pass_time(line, [(0.0, b"x"), (1.0, END)]) == [(0.0, b"x"), (1.0, END)]
    assert line.half


def test_corrupt_makes_one_bit_wrong_in_every_block_however_it_comes() -> None:
    def spoilt(size: int, seed: int = 1) -> bytes:
        came = [(0.0, PAYLOAD[at : at + size]) for at in range(0, len(PAYLOAD), size)]
        return joined(pass_time(chain(toxic("corrupt", every=1000), seed=seed), came))

    whole = spoilt(32768)
    assert spoilt(777) == whole == spoilt(32768)
    assert spoilt(32768, seed=2) != whole
    wrong = [n for n, (a, b) in enumerate(zip(PAYLOAD, whole, strict=True)) if a != b]
    full = len(PAYLOAD) // 1000
    assert [n // 1000 for n in wrong][:full] == list(range(full))
    assert all((PAYLOAD[n] ^ whole[n]).bit_count() == 1 for n in wrong)


# --- chains -------------------------------------------------------------------------------------


def test_chains_act_in_the_order_in_which_they_came() -> None:
    limit, slow = toxic("limit_data", bytes=4), toxic("slow_close", delay=1000)
    assert pass_time(chain(limit, slow), [(0.0, b"abcdef")]) == [(0.0, b"abcd"), (1.0, END)]
    assert pass_time(chain(slow, limit), [(0.0, b"abcdef")]) == [(0.0, b"abcd"), (0.0, END)]


def test_a_removed_toxic_hands_on_what_it_holds_in_order() -> None:
    line = chain(toxic("latency", latency=1000), toxic("noop", name="after"))
    assert pass_time(line, [(0.0, b"a"), (0.0, b"b"), (0.0, b"c")], until_s=0.5) == []
    line.remove("latency_downstream")
    line.put(b"d", 0.5)
    assert [item for _, item in pass_time(line)] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("kind", ["latency", "bandwidth", "slicer"])
def test_changes_while_nobody_reads_lose_nothing(kind: str) -> None:
    """A reader that stalls holds up the stream, not the changes."""
    attributes = {
        "latency": {"latency": 10},
        "bandwidth": {"rate": 1},
        "slicer": {"average_size": 7},
    }
    line = chain(toxic(kind, name="t", **attributes[kind]), toxic("noop", name="n"))
    sent = b""
    for number in range(6):
        if line.room:
            line.put(piece := b"%d" % number * 20, 0.0)
            sent += piece
        line.advance(0.0)
        line.advance(0.005)
        line.update(toxic(kind, name="t", **attributes[kind]))
        line.advance(0.006)
    line.remove("n")
    line.remove("t")
    line.add(toxic("noop", name="new"))
    assert joined(pass_time(line)) == sent


@given(data=st.data())
def test_whatever_is_added_changed_and_removed_the_bytes_are_the_same(data: st.DataObject) -> None:
    """Toxics that let everything pass do so in any order of changes, arrivals and stalls."""
    kinds = {
        "latency": st.fixed_dictionaries(
            {"latency": st.integers(-5, 50), "jitter": st.integers(-1, 50)}
        ),
        "bandwidth": st.fixed_dictionaries({"rate": st.integers(1, 1000)}),
        "slicer": st.fixed_dictionaries(
            {"average_size": st.integers(5, 50), "size_variation": st.integers(0, 5)}
        ),
        "slow_close": st.fixed_dictionaries({"delay": st.integers(0, 50)}),
        "noop": st.just({}),
    }
    line, now_s, sent, got, names = chain(), 0.0, b"", b"", list[str]()
    for number in range(data.draw(st.integers(1, 25))):
        act = data.draw(st.sampled_from(["put", "put", "take", "wait", "add", "update", "remove"]))
        if act == "put" and line.room:
            piece = b"%04d" % number * data.draw(st.integers(1, 60))
            line.put(piece, now_s)
            sent += piece
        elif act == "take" and line.outbox:
            got += line.outbox.popleft().data  # type: ignore[union-attr]
        elif act == "wait":
            now_s += data.draw(st.floats(0, 0.2))
        elif act == "add" or (act == "update" and names):
            kind = data.draw(st.sampled_from(sorted(kinds)))
            name = f"{kind}-{number}"
            if act == "update":
                name = data.draw(st.sampled_from(names))
                kind = name.split("-")[0]
            new = toxic(
                kind,
                name=name,
                toxicity=data.draw(st.sampled_from([0.0, 0.5, 1.0])),
                **data.draw(kinds[kind]),
            )
            if act == "add":
                line.add(new)
                names.append(name)
            else:
                line.update(new)
        elif act == "remove" and names:
            line.remove(names.pop(data.draw(st.integers(0, len(names) - 1))))
        line.advance(now_s)
    line.end()
    left = pass_time(line)
    assert got + joined(left) == sent
    assert left[-1][1] is END


# --- chance -------------------------------------------------------------------------------------

TRIALS = 2000


@pytest.mark.parametrize("toxicity", [0.05, 0.3, 0.5, 0.9])
def test_toxicity_is_the_share_of_connections(toxicity: float) -> None:
    each = toxic("noop", toxicity=toxicity)
    hits = sum(chain(each, connection=n).runs(each.name) for n in range(TRIALS))
    assert abs(hits - TRIALS * toxicity) <= 3 * math.sqrt(TRIALS * toxicity * (1 - toxicity))


@pytest.mark.parametrize(("toxicity", "hits"), [(0.0, 0), (1.0, TRIALS)])
def test_toxicity_of_none_and_all(toxicity: float, hits: int) -> None:
    each = toxic("noop", toxicity=toxicity)
    assert sum(strikes(each, 1, "p", n) for n in range(TRIALS)) == hits


def test_changes_decide_anew_at_the_same_rate_and_nothing_else_does() -> None:
    half = toxic("noop", toxicity=0.5)
    line = chain(half)
    ran = []
    for _ in range(TRIALS):
        line.update(half)
        ran.append(line.runs(half.name))
        line.add(toxic("noop", name="other"))
        assert line.runs(half.name) == ran[-1]
        line.remove("other")
        assert line.runs(half.name) == ran[-1]
    assert abs(sum(ran) - TRIALS / 2) <= 3 * math.sqrt(TRIALS / 4)
    changes = sum(a != b for a, b in itertools.pairwise(ran))
    assert abs(changes - TRIALS / 2) <= 3 * math.sqrt(TRIALS / 4)


def test_equal_seeds_are_equal_sequences_and_others_are_not() -> None:
    each = toxic("noop", toxicity=0.5)

    def rolls(seed: int, proxy: str = "p", name: str = each.name) -> list[bool]:
        return [strikes(toxic("noop", toxicity=0.5, name=name), seed, proxy, n) for n in range(64)]

    assert rolls(7) == rolls(7)
    others = [rolls(8), rolls(7, proxy="q"), rolls(7, name="other")]
    assert all(other != rolls(7) for other in others)

    def jittered(seed: int) -> list[float]:
        line = chain(toxic("latency", latency=50, jitter=50), seed=seed)
        return times(pass_time(line, [(1.0 * n, b"x") for n in range(50)]))

    assert jittered(7) == jittered(7) != jittered(8)

    def sliced(seed: int) -> list[int]:
        line = chain(toxic("slicer", average_size=50, size_variation=25), seed=seed)
        return [len(i) for _, i in pass_time(line, [(0.0, b"x" * 5000)]) if isinstance(i, bytes)]

    assert sliced(7) == sliced(7) != sliced(8)


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("bandwidth", {"rate": -1}, "rate=-1"),
        ("bandwidth", {"rate": 2**62}, "rate="),
        ("latency", {"latency": 2**62}, "latency="),
        ("latency", {"jitter": 2**62}, "jitter="),
        ("slicer", {}, "average_size=0"),
        ("slicer", {"average_size": 10, "size_variation": 11}, "size_variation=11"),
        ("slicer", {"average_size": 10, "size_variation": -1}, "size_variation=-1"),
        ("slicer", {"average_size": 10, "delay": 2**62}, "delay="),
        ("slow_close", {"delay": 2**62}, "delay="),
        ("timeout", {"timeout": 2**62}, "timeout="),
        ("reset_peer", {"timeout": 2**62}, "timeout="),
        ("corrupt", {"every": 0}, "every=0"),
        ("reset_now", {"timeout": -1}, "timeout=-1"),
        ("latency", {"latency": 1.5}, "latency"),
        ("latency", {"delay": 1}, "delay"),
    ],
)
def test_values_that_would_kill_the_real_one_are_refused(
    kind: str, given: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        toxic(kind, **given)


def test_own_toxics_are_named_apart() -> None:
    assert [name for name, kind in KINDS.items() if kind.own] == [
        "reset_now",
        "half_close",
        "corrupt",
        "refuse",
    ]
