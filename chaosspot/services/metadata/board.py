"""Notices published, withdrawn and ended: pure functions over the notices of one audience."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from chaosspot.services.metadata.values import Document, Moment, Notice, Provider

__all__ = ["announce", "close", "open_notices", "without"]


def without(
    documents: Sequence[Document], action: str, provider: Provider, moment: Moment
) -> list[Document]:
    """The nodes to which ``action`` has not been announced yet.

    Raises:
        ValueError: another action that excludes it has been, to one of them.
    """
    found = []
    for document in documents:
        node = document.instance.node
        taken = open_notices(document.notices, node, moment.now_s)
        before = next((n for n in taken if n.slot == provider.ACTIONS[action]), None)
        if before is None:
            found.append(document)
        elif before.action != action:
            raise ValueError(
                f"action={action!r}: node {node!r} already has notice of {before.action!r}"
                f" at {before.deadline_wall_s:.0f}; withdraw that first"
            )
    return found


def announce(
    documents: Sequence[Document],
    provider: Provider,
    moment: Moment,
    *,
    number: int,
    action: str,
    lead_s: float,
    lasts_s: float | None,
) -> Notice:
    """A new notice for these nodes, who are shown the same; ``number`` is its own."""
    starts_s = moment.now_s + lead_s
    notice = Notice(
        id=documents[0].guid(f"notice {number}"),
        action=action,
        slot=provider.ACTIONS[action],
        nodes=tuple(document.instance.node for document in documents),
        resources=tuple(provider.resource(document) for document in documents),
        visible_s=moment.now_s,
        starts_s=starts_s,
        issued_wall_s=moment.wall_s,
        deadline_wall_s=float(math.floor(moment.wall_s + lead_s)),
        closed_s=math.inf if lasts_s is None else starts_s + lasts_s,
    )
    return provider.announced(notice, documents[0])


def open_notices(
    notices: tuple[Notice, ...], node: str, now_s: float, action: str | None = None
) -> tuple[Notice, ...]:
    """The node's notices that are neither withdrawn nor over, shown already or not."""
    return tuple(
        n for n in notices if node in n.nodes and now_s < n.closed_s and action in (None, n.action)
    )


def close(
    notices: tuple[Notice, ...],
    node: str,
    now_s: float,
    *,
    action: str | None = None,
    withdrawn: bool,
) -> tuple[Notice, ...]:
    """The notices without the node's open ones; they go on for the other nodes they are for."""
    closing = {n.id for n in open_notices(notices, node, now_s, action)}
    result: list[Notice] = []
    for notice in notices:
        if notice.id not in closing or notice.closed_s <= now_s:
            result.append(notice)
            continue
        result.append(msgspec.structs.replace(notice, closed_s=now_s, withdrawn=withdrawn))
        others = [
            pair for pair in zip(notice.nodes, notice.resources, strict=True) if pair[0] != node
        ]
        if others:
            nodes, resources = zip(*others, strict=True)
            visible_s = max(now_s, notice.visible_s)
            rest = msgspec.structs.replace(
                notice, nodes=nodes, resources=resources, visible_s=visible_s
            )
            result.append(rest)
    return tuple(result)
