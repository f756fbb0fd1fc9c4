"""Hypothesis strategies for whole schedules, for the tests of what reads and writes them."""

from __future__ import annotations

from hypothesis import strategies as st

from chaosspot.misbehaviour import Latency, Reset, Skew, Status
from chaosspot.schedule import (
    BetaBinomial,
    ClusterSpec,
    CommonShock,
    DiskFull,
    DnsGone,
    Expectation,
    FaultKind,
    Group,
    Grow,
    Hold,
    Kill,
    KillChild,
    Misbehave,
    Network,
    Notice,
    ObjectStore,
    OutOfMemory,
    Partition,
    Pause,
    Resolved,
    Schedule,
    Slow,
    SlowFlash,
    Target,
    Terminate,
    ThrottleCpu,
    Toxic,
    Trigger,
)
from chaosspot.store_misbehaviour import BitFlip, LostReply, SlowDown, SlowFirstByte

seconds = st.floats(0.0, 1e6, allow_nan=False)
counts = st.integers(1, 10_000)
names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,8}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=40)


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


triggers = st.one_of(
    st.builds(Trigger, at_s=seconds, delay_s=seconds, jitter_s=seconds),
    st.builds(Trigger, at_step=counts, delay_s=seconds, jitter_s=seconds),
    st.builds(Trigger, event=names, nth=counts, delay_s=seconds, jitter_s=seconds),
    st.builds(Trigger, point=names, nth=counts),
)
shares = st.floats(0.0, 1.0)
drawing = {"by": st.sampled_from(["zone", "family", "all"]), "at_least": st.integers(0, 9)}
correlations = st.one_of(
    st.builds(BetaBinomial, loss=shares, rho=shares, **drawing),
    st.builds(CommonShock, shock=shares, private=shares, **drawing),
)
targets = (
    st.builds(
        Target,
        nodes=maybe(st.lists(names, min_size=1, max_size=3).map(tuple)),
        count=maybe(counts),
        zone=maybe(names),
        family=maybe(names),
        pool=maybe(st.sampled_from(["spot", "reserved", "any"])),
        role=st.sampled_from(["worker", "coordinator"]),
    )
    | st.builds(Target, fraction=st.none() | st.floats(0.01, 1.0), pool=st.just("any"))
    | st.builds(Target, correlation=correlations)
)
common = {
    "on": triggers,
    "target": maybe(targets),
    "resolved": maybe(
        st.builds(
            Resolved,
            nodes=st.lists(names, max_size=3).map(tuple),
            delay_s=seconds,
            injected_s=seconds,
            step=counts,
        )
    ),
}
taking = {**common, "replace_after_s": maybe(seconds), "start_delay_s": seconds}
misbehaviours = st.one_of(
    st.builds(Status, status=st.sampled_from([401, 503]), rate=st.floats(0.01, 1.0), paths=names),
    st.builds(Latency, delay_s=seconds, jitter_s=seconds, first=maybe(counts)),
    st.builds(Reset, stage=st.sampled_from(["head", "body"])),
    st.builds(Skew, skew_s=st.floats(-90.0, 90.0)),
)
store_misbehaviours = st.one_of(
    st.builds(SlowDown, rate=st.floats(0.01, 1.0), above_per_s=maybe(st.integers(0, 99))),
    st.builds(SlowFirstByte, delay_s=seconds, operations=st.just(("get", "head"))),
    st.builds(LostReply, first=maybe(counts), ending=st.sampled_from(["closed", "reset"])),
    st.builds(BitFlip, keys=names, at_byte=maybe(st.integers(0, 1 << 40))),
)
toxics = st.builds(
    Toxic,
    type=names,
    stream=st.sampled_from(["upstream", "downstream"]),
    toxicity=st.floats(0.0, 1.0),
    attributes=st.dictionaries(names, st.integers(0, 1 << 40), max_size=2),
)
faults: st.SearchStrategy[FaultKind] = st.one_of(
    st.builds(Kill, keep_flash=st.booleans(), **taking),
    st.builds(Terminate, grace_s=seconds, scope=st.sampled_from(["tree", "main"]), **taking),
    st.builds(Notice, lead_s=seconds, shutdown_s=seconds, spares=st.booleans(), **taking),
    st.builds(KillChild, **common),
    st.builds(Pause, duration_s=seconds, **common),
    st.builds(Slow, factor=st.floats(1.5, 100.0), duration_s=st.floats(0.1, 1e6), **common),
    st.builds(
        Hold,
        **{**common, "on": st.builds(Trigger, point=names, nth=counts), "target": st.none()},
        duration_s=seconds,
    ),
    st.builds(DiskFull, duration_s=seconds, **common),
    st.builds(
        SlowFlash,
        write_bytes_per_s=st.integers(4096, 10**12),
        duration_s=st.floats(0.1, 1e6),
        **common,
    ),
    st.builds(Grow, count=counts, **common),
    st.builds(Misbehave, how=misbehaviours, duration_s=st.floats(0.1, 1e6), **common),
    st.builds(
        ObjectStore,
        how=store_misbehaviours,
        duration_s=st.floats(0.1, 1e6),
        **{**common, "target": st.none()},
    ),
    st.builds(
        Network,
        link=st.sampled_from(["store", "metadata", "coordinator"]),
        toxic=st.lists(toxics, min_size=1, max_size=2).map(tuple),
        duration_s=st.floats(0.1, 1e6),
        cuts=st.booleans(),
        **common,
    ),
    st.builds(
        Partition,
        off=st.sampled_from(["rest", "zones", "coordinator"]),
        one_way=st.booleans(),
        duration_s=st.floats(0.1, 1e6),
        **common,
    ),
    st.builds(OutOfMemory, **taking),
    st.builds(ThrottleCpu, cpus=st.floats(0.01, 64), duration_s=st.floats(0.1, 1e6), **common),
    st.builds(DnsGone, duration_s=st.floats(0.1, 1e6), **common),
)
groups = st.builds(
    Group,
    count=st.integers(1, 6),
    zones=st.lists(names, min_size=1, max_size=3).map(tuple),
    family=names,
    pool=st.sampled_from(["spot", "reserved"]),
    flash_bytes=maybe(st.integers(1 << 16, 1 << 40)),
)
clusters = st.builds(
    ClusterSpec,
    cloud=st.sampled_from(["aws", "gcp", "azure"]),
    store=st.sampled_from(["directory", "s3"]),
    group=st.lists(groups, min_size=1, max_size=3).map(tuple),
)
schedules = st.builds(
    Schedule,
    title=texts,
    source=texts,
    imitates=texts,
    does_not_prove=texts,
    seed=maybe(st.integers(0, 2**63 - 1)),
    cluster=clusters,
    fault=st.lists(faults, max_size=3).map(tuple),
    expect=st.builds(
        Expectation,
        recovery_s=maybe(seconds),
        catch_up_s=maybe(seconds),
        rework_steps=maybe(st.integers(0, 1000)),
        stays=maybe(st.booleans()),
        straggler_factor=maybe(st.floats(1.0, 99.0)),
        stuck_s=maybe(seconds),
        unheard_s=maybe(seconds),
    ),
)
