"""A schedule in words, with what happens when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from chaosspot.misbehaviour import Misbehaviour
from chaosspot.schedule import (
    DiskFull,
    DnsGone,
    FaultKind,
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
    Schedule,
    Side,
    Slow,
    SlowFlash,
    Target,
    Terminate,
    ThrottleCpu,
    Toxic,
    Trigger,
)
from chaosspot.store_misbehaviour import StoreMisbehaviour
from chaosspot.victims import Correlation
from chaosspot.words import count, plain

__all__ = ["explain"]


_AT_MOST = (
    "recovery_s",
    "catch_up_s",
    "rework_steps",
    "straggler_factor",
    "stuck_s",
    "unheard_s",
)


def explain(name: str, schedule: Schedule) -> str:
    """What a schedule does, line by line; plain text."""
    title = plain(schedule.title)
    lines = [f"{plain(name)}: {title}" if title else plain(name), ""]
    for label, text in (
        ("imitates", schedule.imitates),
        ("does not prove", schedule.does_not_prove),
        ("source", schedule.source),
    ):
        if text:
            lines.append(f"{label:14}  {text}")
    lines += ["", *_cluster(schedule), ""]
    for index, fault in enumerate(schedule.fault):
        lines += [f"{f'fault {index}':14}  {_when(fault.on)}"]
        lines += [f"{'':14}    {text}" for text in _what(fault)]
    expected = [
        f"{key} at most {value:g}"
        for key in _AT_MOST
        if (value := getattr(schedule.expect, key)) is not None
    ]
    if schedule.expect.stays:
        expected.append("no node leaves for a notice")
    lines += ["", f"{'expected':14}  {', '.join(expected) or 'what the trainer promises'}"]
    return "\n".join(lines)


def _cluster(schedule: Schedule) -> Iterator[str]:
    label = "cluster"
    for group in schedule.cluster.group:
        nodes = count(group.count, f"{group.pool} node")
        zones = f"{'zone' if len(group.zones) == 1 else 'zones'} {', '.join(group.zones)}"
        yield f"{label:14}  {nodes} {group.family} in {zones}"
        label = ""
    if schedule.cluster.store != "directory":
        yield f"{'store':14}  an object store ({schedule.cluster.store})"


def _when(on: Trigger) -> str:
    if on.at_s is not None:
        text = f"{on.at_s:g} s after every worker has committed a step"
    elif on.at_step is not None:
        text = f"when step {on.at_step} is committed"
    elif on.event is not None:
        text = f"at the {_nth(on.nth)} {on.event!r} that a trainer reports"
    else:
        text = f"when a trainer reaches {on.point!r} for the {_nth(on.nth)} time, which holds it"
    if on.delay_s:
        text += f", and {on.delay_s:g} s more"
    if on.jitter_s:
        text += f", and up to {on.jitter_s:g} s that the seed decides"
    return text


def _what(fault: FaultKind) -> Iterator[str]:
    whom = _whom(fault.target, fault.on)
    match fault:
        case Kill():
            flash = "; its flash is kept" if fault.keep_flash else ""
            yield f"+0 s  SIGKILL to every process of {whom}{flash}"
        case Terminate():
            scope = "every process" if fault.scope == "tree" else "the main processes"
            yield f"+0 s  SIGTERM to {scope} of {whom}"
            yield f"+{fault.grace_s:g} s  SIGKILL to what is left"
        case Notice():
            if fault.spares:
                yield f"+0 s  {whom} is told of something that takes no node"
            else:
                yield f"+0 s  an interruption notice for {whom}, {fault.lead_s:g} s ahead"
            if fault.withdraw_after_s is not None:
                yield f"+{fault.withdraw_after_s:g} s  it is withdrawn, and the node stays"
            elif fault.spares:
                yield f"+{fault.lead_s:g} s  it is over, and the node stays"
            else:
                end_s = fault.lead_s if fault.kill_after_s is None else fault.kill_after_s
                yield f"+{end_s:g} s  SIGTERM"
                yield f"+{end_s + fault.shutdown_s:g} s  SIGKILL"
        case KillChild():
            yield f"+0 s  SIGKILL to the youngest process that {whom} started"
        case Pause():
            yield f"+0 s  SIGSTOP to every process of {whom}"
            yield f"+{fault.duration_s:g} s  SIGCONT"
        case Slow():
            share = f"1 / {fault.factor:g} of the time"
            yield f"+0 s  {whom} gets {share}: SIGSTOP and SIGCONT by turns"
            yield f"+{fault.duration_s:g} s  all of it again"
        case Hold():
            yield "+0 s  that thread stays there; the others of its process go on"
            yield f"+{fault.duration_s:g} s  it goes on"
        case DiskFull():
            yield f"+0 s  the flash of {whom} has no space left"
            yield f"+{fault.duration_s:g} s  it has again"
        case SlowFlash():
            yield f"+0 s  {whom} writes to its flash at most {fault.write_bytes_per_s / 1e6:g} MB/s"
            yield f"+{fault.duration_s:g} s  as fast as it can again"
        case Misbehave():
            yield f"+0 s  the metadata service of {whom} misbehaves: {_how(fault.how)}"
            yield f"+{fault.duration_s:g} s  it answers as it should again"
        case ObjectStore():
            yield f"+0 s  the object store misbehaves: {_how(fault.how)}"
            yield f"+{fault.duration_s:g} s  it does what it is asked again"
        case Network():
            whose = "all nodes" if fault.target is None else whom
            toxics = "; ".join(_toxic(toxic) for toxic in fault.toxic)
            yield f"+0 s  the link of {whose} to the {fault.link}: {toxics}"
            yield f"+{fault.duration_s:g} s  it is whole again"
        case Partition():
            ways = "does not get what is sent by" if fault.one_way else "is cut off from"
            yield f"+0 s  {whom} {ways} {_OFF[fault.off]}"
            yield f"+{fault.duration_s:g} s  they reach each other again"
        case OutOfMemory():
            yield f"+0 s  the memory of {whom} is used up, and the kernel kills"
        case ThrottleCpu():
            yield f"+0 s  {whom} gets no more than {fault.cpus:g} of a processor"
            yield f"+{fault.duration_s:g} s  it gets what it had"
        case DnsGone():
            yield f"+0 s  nobody answers {whom} who asks for a name"
            yield f"+{fault.duration_s:g} s  names are answered again"
        case Grow():
            yield f"+0 s  {count(fault.count, 'more node')} like the first"
    if fault.replace_after_s is not None:
        later = f", its trainer {fault.start_delay_s:g} s later" if fault.start_delay_s else ""
        yield f"+{fault.replace_after_s:g} s  after each is gone: a new node{later}"


_OFF: dict[Side, str] = {
    "rest": "all other nodes",
    "zones": "the workers of other zones",
    "coordinator": "the coordinator",
}


def _how(what: Misbehaviour | StoreMisbehaviour) -> str:
    fields = msgspec.to_builtins(what)
    kind = fields.pop("kind")
    usual = ("nodes", "seed")
    said = {k: v for k, v in fields.items() if k not in usual}
    return _named(kind, {k: ", ".join(v) if isinstance(v, list) else v for k, v in said.items()})


def _toxic(toxic: Toxic) -> str:
    share = {} if toxic.toxicity == 1 else {"toxicity": toxic.toxicity}
    return _named(f"{toxic.type} {toxic.stream}", {**toxic.attributes, **share})


def _named(kind: str, fields: dict[str, Any]) -> str:
    said = ", ".join(f"{key} {value}" for key, value in fields.items())
    return f"{kind} ({said})" if said else kind


def _whom(target: Target | None, on: Trigger) -> str:
    if target is None:
        return "one worker" if on.point is None and on.event is None else "the node that did"
    if target.nodes is not None:
        return ", ".join(target.nodes)
    keys = ("zone", "family", "pool")
    kind = ", ".join(f"{key} {value}" for key in keys if (value := getattr(target, key)))
    if target.count is not None:
        amount = count(target.count, target.role)
    elif target.correlation is not None:
        amount = f"as many {target.role}s as are drawn ({_drawn(target.correlation)})"
    elif target.fraction is not None:
        amount = f"{100 * target.fraction:g} % of the {target.role}s"
    else:
        amount = "the coordinator" if target.role == "coordinator" else f"all {target.role}s"
    return f"{amount} of {kind}" if kind else amount


def _drawn(model: Correlation) -> str:
    fields = msgspec.to_builtins(model)
    return f"{fields.pop('kind')} by {model.by}: " + ", ".join(
        f"{key} {value:g}" for key, value in fields.items() if key != "by"
    )


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number if number < 20 else number % 10, "th")
    return f"{number}{ending}"
