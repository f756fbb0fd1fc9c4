"""Strategies for how services and links go wrong, mild first."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from chaosspot import misbehaviour as m
from chaosspot import store_misbehaviour as o
from chaosspot.explore.times import seconds
from chaosspot.nodes import Cloud
from chaosspot.schedule import Link, Network, Toxic, Trigger

__all__ = ["metadata", "network", "object_store", "plain_metadata", "plain_object_store"]

_RATES = st.sampled_from([1.0, 0.5, 0.2])
_FIRST = st.none() | st.integers(1, 3)
_NODES = st.sampled_from(["*", "node-0", "node-1"])


@functools.lru_cache
def metadata(cloud: Cloud) -> SearchStrategy[m.MisbehaviourKind]:
    """How the metadata service of this cloud may misbehave."""
    kinds: list[SearchStrategy[m.MisbehaviourKind]] = [
        st.builds(m.Latency, delay_s=seconds(0.1, 3.0)),
        st.builds(m.Status, status=st.sampled_from([503, 500, 429, 404, 401]), rate=_RATES),
        st.builds(m.Body, body=st.sampled_from(["empty", "html"]), rate=_RATES),
        st.builds(m.ContentType, rate=_RATES),
        st.builds(m.Reset, stage=st.sampled_from(["accept", "head", "body"]), rate=_RATES),
        st.builds(m.BlackHole, rate=_RATES),
        st.just(m.Closed()),
        st.builds(m.Withdraw, after_s=seconds(0.5, 3.0)),
        st.builds(m.Duplicate, every_s=seconds(0.5, 3.0)),
    ]
    if cloud == "aws":
        kinds.append(st.builds(m.TokenKill, after_s=seconds(0.0, 3.0)))
    if cloud in ("aws", "azure"):
        kinds.append(st.just(m.FarFuture()))
        kinds.append(st.builds(m.Skew, skew_s=st.sampled_from([-5.0, 5.0, -90.0, 90.0])))
    return st.one_of(kinds)


@functools.lru_cache
def object_store() -> SearchStrategy[o.StoreMisbehaviourKind]:
    """How an object store may misbehave."""
    return st.one_of(
        st.builds(o.SlowFirstByte, delay_s=seconds(0.1, 2.0), rate=_RATES, first=_FIRST),
        st.builds(o.SlowDown, rate=_RATES, first=_FIRST),
        st.builds(
            o.Failure,
            status=st.sampled_from([500, 503]),
            rate=_RATES,
            first=_FIRST,
            nodes=_NODES,
            operations=st.sampled_from([(), ("put",), ("get",)]),
        ),
        st.builds(o.Truncated, rate=_RATES, first=_FIRST),
        st.builds(o.LostReply, rate=_RATES, first=_FIRST),
        st.builds(
            o.BitFlip,
            keys=st.sampled_from(["*", "*.bin", "*.json"]),
            at_byte=st.none() | st.integers(0, 64),
            first=st.integers(1, 3),  # nobody can work with a store of which no read is right
        ),
        st.builds(o.ExpiredToken, first=_FIRST),
        st.builds(o.TimeTooSkewed, first=_FIRST),
        st.builds(o.Denied, operations=st.sampled_from([("put",), ("get",), ()]), first=_FIRST),
        st.builds(o.NoSuchUpload, first=_FIRST),
    )


def plain_metadata(cloud: Cloud) -> Iterator[m.MisbehaviourKind]:
    """One of each sort that clients of this cloud can meet."""
    yield m.Closed()
    yield m.Status(status=503)
    yield m.BlackHole()
    yield m.Body(body="html")
    yield m.Reset(stage="body")
    yield m.Latency(delay_s=2.0)
    if cloud == "aws":
        yield m.TokenKill(after_s=0.5)


def plain_object_store(
    keys: Sequence[str], nodes: Sequence[str]
) -> Iterator[o.StoreMisbehaviourKind]:
    """One of each sort; damage to each sort of object, and errors for one of several nodes."""
    if len(nodes) > 1:
        yield o.Failure(nodes=nodes[1], operations=("put",))
    for pattern in keys:
        yield o.BitFlip(keys=pattern, first=1)
    yield o.Failure(operations=("put",))
    yield o.Failure()
    yield o.LostReply()
    yield o.Truncated(first=2)
    yield o.SlowDown(rate=0.5)
    yield o.SlowFirstByte(delay_s=1.0)
    yield o.Denied(operations=("put",))
    yield o.ExpiredToken(first=2)
    yield o.TimeTooSkewed(first=2)
    yield o.NoSuchUpload()


def _toxic(kind: str, **attributes: SearchStrategy[int]) -> SearchStrategy[Toxic]:
    return st.builds(
        Toxic,
        type=st.just(kind),
        stream=st.sampled_from(["downstream", "upstream"]),
        attributes=st.fixed_dictionaries(dict(attributes)),
    )


_TOXICS = (
    _toxic("latency", latency=st.sampled_from([100, 500, 2000]), jitter=st.sampled_from([0, 100])),
    _toxic("bandwidth", rate=st.sampled_from([1000, 100, 10])),
    _toxic(
        "slicer",
        average_size=st.sampled_from([1024, 64]),
        size_variation=st.just(32),
        delay=st.sampled_from([0, 1000]),
    ),
    _toxic("slow_close", delay=st.sampled_from([100, 1000])),
    _toxic("limit_data", bytes=st.sampled_from([1 << 20, 1 << 12, 100])),
    _toxic("reset_peer", timeout=st.sampled_from([0, 500])),
)


@st.composite
def network(
    draw: DrawFn, on: SearchStrategy[Trigger], links: Sequence[Link], longest_s: float
) -> Network:
    """A link that is slow, lossy or cut; a cut is a timeout in both directions."""
    link, trigger = draw(st.sampled_from(list(links))), draw(on)
    duration_s = draw(seconds(0.5, longest_s))
    if draw(st.booleans()):
        cut = tuple(Toxic(type="timeout", stream=way) for way in ("upstream", "downstream"))
        return Network(on=trigger, link=link, toxic=cut, duration_s=duration_s, cuts=True)
    toxics = tuple(draw(st.lists(st.one_of(_TOXICS), min_size=1, max_size=2)))
    return Network(on=trigger, link=link, toxic=toxics, duration_s=duration_s)
