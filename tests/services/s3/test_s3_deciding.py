"""Who is struck: rates, seeds, counts and patterns, without a request."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from chaosspot import store_misbehaviour as m
from chaosspot.services.s3.misbehaving import Active, Plan, Tally, decide

KINDS: list[m.StoreMisbehaviourKind] = [
    m.SlowDown(),
    m.Failure(status=503),
    m.SlowFirstByte(delay_s=0.1),
    m.Truncated(),
    m.LostReply(),
    m.BitFlip(),
    m.ExpiredToken(),
    m.TimeTooSkewed(),
    m.Denied(),
    m.NoSuchUpload(),
]
TRIALS = 2000


class Deciding:
    """Requests one after the other to a store that misbehaves so."""

    def __init__(self, *whats: m.StoreMisbehaviourKind) -> None:
        self._active = [
            Active(number=number, what=what, since_s=0.0) for number, what in enumerate(whats, 1)
        ]
        self._tallies: dict[tuple[int, str, str], Tally] = {}

    def ask(
        self,
        operation: m.Operation = "put",
        *,
        node: str = "node-0",
        key: str = "k",
        now_s: float = 0.0,
    ) -> Plan:
        plan, changed = decide(
            self._active, self._tallies, node=node, operation=operation, key=key, now_s=now_s
        )
        self._tallies |= changed
        return plan

    def struck(self, *args: Any, **more: Any) -> bool:
        return self.ask(*args, **more) != Plan()


def seeded(what: m.StoreMisbehaviourKind, **fields: Any) -> m.StoreMisbehaviourKind:
    return msgspec.structs.replace(what, **fields)


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("what", KINDS, ids=lambda what: what.__struct_config__.tag)
def test_every_rate_holds(what: m.StoreMisbehaviourKind, rate: float) -> None:
    """Within 3 standard deviations over all classes, and within 4 in each of up to 11."""
    hits = {}
    deciding = Deciding(seeded(what, rate=rate, seed=5))
    for operation in what.POSSIBLE:
        hits[operation] = sum(deciding.struck(operation) for _ in range(TRIALS))
    spread = (TRIALS * rate * (1 - rate)) ** 0.5
    assert all(abs(hit - TRIALS * rate) < 4 * spread for hit in hits.values()), hits
    off = abs(sum(hits.values()) - len(hits) * TRIALS * rate)
    assert off < 3 * spread * len(hits) ** 0.5, hits


def test_one_seed_one_sequence_whatever_comes_between() -> None:
    what = m.SlowDown(rate=0.3, seed=11)
    alone = Deciding(what)
    expected = [alone.struck("multipart-part") for _ in range(200)]
    again, mixed = Deciding(what), Deciding(m.Truncated(rate=0.5), what)
    assert [again.struck("multipart-part") for _ in range(200)] == expected
    got = []
    for number in range(200):
        for other in range(number % 3):
            mixed.ask("get", key=f"{other}")
            mixed.ask("multipart-part", node="node-1")
        got.append(mixed.struck("multipart-part", key=f"{number}"))
    assert got == expected
    others = Deciding(seeded(what, seed=12)), Deciding(what), Deciding(what)
    assert [others[0].struck("multipart-part") for _ in range(200)] != expected
    assert [others[1].struck("put") for _ in range(200)] != expected
    assert [others[2].struck("multipart-part", node="node-1") for _ in range(200)] != expected


def test_shares_are_spread_and_do_not_depend_on_the_rate() -> None:
    always, often = Deciding(m.BitFlip(seed=3)), Deciding(m.BitFlip(seed=3, rate=0.5))
    shares = [plan.flip.share for _ in range(TRIALS) if (plan := always.ask("get")).flip]
    assert len(shares) == len(set(shares)) == TRIALS
    tenths = Counter(int(share * 10) for share in shares)
    spread = (TRIALS * 0.1 * 0.9) ** 0.5
    assert all(abs(tenths[tenth] - TRIALS / 10) < 4 * spread for tenth in range(10))
    some = [plan.flip.share for _ in range(TRIALS) if (plan := often.ask("get")).flip]
    assert set(some) < set(shares)


def test_the_first_so_many_of_each_node() -> None:
    deciding = Deciding(m.SlowDown(first=3, keys="a*"))
    assert not deciding.struck(key="b")
    hits = [deciding.struck(op, key="a") for op in ("put", "get", "put", "get", "put")]
    assert hits == [True, True, True, False, False]
    assert deciding.struck(key="a", node="node-1")


def test_patterns_and_classes_choose() -> None:
    deciding = Deciding(m.Denied(nodes="node-[01]", keys="snap/*", operations=("get", "head")))
    assert deciding.struck("get", key="snap/1")
    assert not deciding.struck("put", key="snap/1")
    assert not deciding.struck("get", key="other")
    assert not deciding.struck("get", key="snap/1", node="node-2")


@pytest.mark.parametrize("what", KINDS, ids=lambda what: what.__struct_config__.tag)
def test_without_classes_it_is_all_that_make_sense(what: m.StoreMisbehaviourKind) -> None:
    deciding = Deciding(what)
    hit = {operation for operation in m.OPERATIONS if deciding.struck(operation)}
    assert hit == set(what.POSSIBLE)


def test_a_limit_is_the_buckets_and_of_each_second() -> None:
    deciding = Deciding(m.SlowDown(above_per_s=2))
    times = [5.1, 5.2, 5.3, 5.9, 6.0, 6.1, 6.2]
    hits = [
        deciding.struck(node=f"node-{number % 2}", now_s=now_s)
        for number, now_s in enumerate(times)
    ]
    assert hits == [False, False, True, True, False, False, True]


def test_it_ends_by_itself_and_then_counts_nothing() -> None:
    deciding = Deciding(m.Denied(lasts_s=60.0))
    assert [deciding.struck(now_s=at_s) for at_s in (0.0, 59.9, 60.0)] == [True, True, False]


def test_delays_add_up_and_the_first_of_the_others_counts() -> None:
    slow = [m.SlowFirstByte(delay_s=1.0), m.SlowFirstByte(delay_s=2.0)]
    cut = [m.Truncated(keep=0.1), m.Truncated(keep=0.9)]
    plan = Deciding(m.Denied(operations=("put",)), *slow, *cut, m.BitFlip()).ask("get")
    assert [delay.number for delay in plan.delays] == [2, 3]
    assert (plan.truncated and plan.truncated.number, plan.flip and plan.flip.number) == (4, 6)
    assert plan.refusal is None
    first = Deciding(m.Failure(), m.Denied()).ask("get").refusal
    assert first is not None
    assert first.number == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "rude"}, "rude"),
        ({"kind": "slow-down", "rate": 0}, "rate"),
        ({"kind": "slow-down", "rate": 1.1}, "rate"),
        ({"kind": "slow-down", "first": 0}, "first"),
        ({"kind": "slow-down", "lasts_s": 0}, "lasts_s"),
        ({"kind": "slow-down", "seed": -1}, "seed"),
        ({"kind": "slow-down", "keys": ""}, "keys"),
        ({"kind": "slow-down", "above": 3}, "above"),
        ({"kind": "slow-down", "above_per_s": -1}, "above_per_s"),
        ({"kind": "slow-down", "operations": ["putt"]}, "putt"),
        ({"kind": "failure", "status": 502}, "502"),
        ({"kind": "slow-first-byte"}, "delay_s"),
        ({"kind": "slow-first-byte", "delay_s": -1}, "delay_s"),
        ({"kind": "truncated", "keep": 1.0}, "keep"),
        ({"kind": "truncated", "ending": "slow"}, "slow"),
        ({"kind": "truncated", "operations": ["put"]}, "'put' has no meaning here"),
        ({"kind": "lost-reply", "operations": ["get"]}, "'get' has no meaning here"),
        ({"kind": "bit-flip", "operations": ["list"]}, "'list' has no meaning here; valid: get"),
        ({"kind": "bit-flip", "at_byte": -1}, "at_byte"),
        ({"kind": "no-such-upload", "operations": ["put"]}, "'put' has no meaning here"),
        ({"kind": "time-too-skewed", "skew_s": float("nan")}, "skew_s"),
    ],
)
def test_bad_values_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(given, m.StoreMisbehaviourKind)  # type: ignore[arg-type]


def test_values_survive_json() -> None:
    for what in KINDS:
        text = msgspec.json.encode(seeded(what, operations=what.POSSIBLE[:1], rate=0.5))
        read = msgspec.json.decode(text, type=m.StoreMisbehaviourKind)  # type: ignore[arg-type]
        assert read == seeded(what, operations=what.POSSIBLE[:1], rate=0.5)
