"""What users of other watchers have reported, and what ours makes of it: one test a report.

The clouds' answers come from the metadata service's own pure cores, under virtual time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from skies import Sky

from chaosspot import misbehaviour as m
from chaosspot.services.metadata import AwsSettings, AzureSettings, GcpSettings
from chaosspot.trainer.notice import NoticeBoard, sigterm_is_a_notice
from chaosspot.trainer.watch.values import (
    Advice,
    Blind,
    Held,
    Maintenance,
    Notice,
    Pace,
    Report,
    Sighted,
    Trouble,
    Withdrawn,
)

TOKEN = "/latest/api/token"
META = "/latest/meta-data/"
NOTICE = META + "spot/instance-action"
PREEMPTED = "/computeMetadata/v1/instance/preempted"
INTERVAL_S = Pace().interval_s
REQUEST_S = 0.01  # more than a quick one takes
BLIND_S = Pace().blind_after_s
DAY_S = 86400.0
ACTED = (Notice, Maintenance, Advice, Withdrawn)
ALARMS = (Trouble, Blind)

REPORTS: dict[str, Callable[[], None]] = {}


def report(*names: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(test: Callable[[], None]) -> Callable[[], None]:
        REPORTS[" ".join(names)] = test
        return test

    return register


def kinds(sky: Sky, *of: type) -> list[str]:
    return [type(found).__name__ for _, found in sky.of(*of)]


def only(sky: Sky, *of: type) -> tuple[float, Any]:
    (found,) = sky.of(*of)
    return found


def in_time(sky: Sky, published_s: float, *, requests: int = 1) -> tuple[float, Any]:
    """The only thing reported of the node's end, seen within a poll and so many requests."""
    at_s, notice = only(sky, *ACTED)
    assert isinstance(notice, Notice)
    assert 0.0 <= at_s - published_s <= INTERVAL_S + requests * REQUEST_S
    return at_s, notice


def asked_s(sky: Sky, path: str) -> list[float]:
    return [at_s for at_s, request in sky.requests if request.path.partition("?")[0] == path]


def calm(sky: Sky, per_s: float = 2.0) -> None:
    """No more requests than that, in any ten seconds."""
    times = [at_s for at_s, _ in sky.requests]
    for first, at_s in enumerate(times):
        assert sum(at_s <= other < at_s + 10.0 for other in times[first:]) <= 10 * per_s


# --- AWS ------------------------------------------------------------------------------------


@report("aws-node-termination-handler#668")
def repeated_401() -> None:
    sky = Sky("aws")
    sky.misbehave(m.Status(status=401, paths=META + "*", lasts_s=60.0))
    sky.at(20.0, lambda: sky.publish(120.0))
    sky.run(300.0)
    in_time(sky, 60.0, requests=3)
    assert kinds(sky, Blind, Sighted) == ["Blind", "Sighted"]
    calm(sky)


@report("aws-node-termination-handler#732")
def tokens_are_required_and_cannot_be_had() -> None:
    sky = Sky("aws", settings=AwsSettings(tokens_required=True))
    sky.misbehave(m.BlackHole(paths=TOKEN, lasts_s=100.0))
    sky.at(40.0, lambda: sky.publish(120.0))
    sky.run(100.0)
    assert sky.of(*ACTED) == []
    at_s, blind = only(sky, Blind)
    assert BLIND_S <= at_s <= BLIND_S + 10.0
    assert "401" in blind.why
    assert "token" in blind.why
    sky.run(110.0)
    assert kinds(sky, Notice, Sighted) == ["Sighted", "Notice"]


@report("aws-node-termination-handler#399", "aws-node-termination-handler#406")
def behind_the_hop_limit() -> None:
    sky = Sky("aws", settings=AwsSettings(tokens_required=False, hops=1))
    sky.at(30.0, lambda: sky.publish(120.0))
    sky.run(600.0)
    in_time(sky, 30.0)
    assert sky.of(*ALARMS) == []
    polls = asked_s(sky, NOTICE)
    assert polls[0] == Pace().timeout_s  # once
    gaps = [after - before for before, after in pairwise(polls)]
    assert max(gaps) <= INTERVAL_S + REQUEST_S, "the token was waited for again"
    assert len(asked_s(sky, TOKEN)) > 2, "nobody looks whether tokens are to be had again"


@report("aws-node-termination-handler#916")
def a_burst_of_503_at_the_start() -> None:
    sky = Sky("aws")
    sky.misbehave(m.Status(status=503, first=7))
    sky.publish(120.0)
    sky.run(30.0)
    assert kinds(sky, *ACTED) == ["Notice"]
    assert sky.of(Notice)[0][0] <= 4 * INTERVAL_S
    assert sky.of(Blind) == []


@report("aws-node-termination-handler#21", "Shogan/ec2-spot-termination-simulator#1")
def connections_are_refused_for_a_while() -> None:
    for cloud in ("aws", "gcp", "azure"):
        sky = Sky(cloud)
        sky.at(5.0, lambda sky=sky: sky.misbehave(m.Closed(lasts_s=10.0)))
        sky.at(6.0, lambda sky=sky: sky.publish(120.0))
        sky.run(60.0)
        in_time(sky, 15.0, requests=2)
        reasons = [found.why for _, found in sky.of(Trouble)]
        assert "Refused" in reasons[-1]
        assert len(set(reasons)) == len(reasons), "said more than once"
        assert sky.of(Blind) == []


@report("aws-node-termination-handler#74")
def connections_are_accepted_and_never_answered() -> None:
    for cloud in ("aws", "gcp", "azure"):
        sky = Sky(cloud)
        sky.at(5.0, lambda sky=sky: sky.misbehave(m.BlackHole(lasts_s=300.0)))
        sky.at(200.0, lambda sky=sky: sky.publish(300.0))
        sky.run(304.0)
        at_s, blind = only(sky, Blind)
        assert blind.for_s >= BLIND_S
        assert at_s - 5.0 <= BLIND_S + 15.0
        assert sky.of(*ACTED, Sighted) == []
        sky.run(330.0)
        assert kinds(sky, *ACTED, Sighted) == ["Sighted", "Notice"]


@report("aws-node-termination-handler#361", "aws-node-termination-handler#903")
def an_event_weeks_ahead() -> None:
    for cloud, action in (("aws", "system-reboot"), ("azure", "reboot")):
        sky = Sky(cloud)
        sky.misbehave(m.FarFuture(ahead_s=14 * DAY_S - 600.0))
        sky.publish(600.0, action)
        sky.run(600.0)
        assert kinds(sky, *ACTED, Held) == ["Held"]
        # the same, twenty minutes before
        soon = Sky(cloud)
        soon.publish(1200.0, action)
        soon.run(600.0)
        assert [(kind, round(at_s, -2)) for kind, (at_s, _) in zip(
            kinds(soon, *ACTED, Held), soon.of(*ACTED, Held), strict=True)
        ] == [("Held", 0.0), ("Maintenance", 300.0)]  # fmt: skip
        at_s, event = only(soon, Maintenance)
        assert soon.left_s(at_s, event) == pytest.approx(900.0, abs=20.0)


@report(
    "aws-node-termination-handler#321",
    "aws-node-termination-handler#458",
    "karpenter-provider-aws#2813",
)
def a_rebalance_and_no_interruption() -> None:
    sky = Sky("aws")
    sky.at(10.0, lambda: sky.publish(0.0, "rebalance"))
    sky.run(900.0)
    at_s, _ = only(sky, *ACTED)
    assert kinds(sky, *ACTED) == ["Advice"]
    assert at_s <= 10.0 + 4 * INTERVAL_S


@report("aws-node-termination-handler#416")
def the_lifecycle_ends_without_a_rebalance() -> None:
    sky = Sky("aws", settings=AwsSettings(autoscaling=True))
    sky.at(10.0, lambda: sky.publish(120.0, "asg-terminate"))
    sky.run(600.0)
    at_s, notice = only(sky, *ACTED)
    assert (type(notice), notice.action) == (Notice, "asg-terminate")
    assert at_s <= 10.0 + 4 * INTERVAL_S
    assert 15.0 <= sky.left_s(at_s, notice) <= 30.0  # no time is told


@report("aws-node-termination-handler#1022")
def gone_39_seconds_after_the_notice() -> None:
    sky = Sky("aws")
    sky.at(10.3, lambda: sky.publish(120.0))
    sky.at(10.3 + 39.0, lambda: sky.misbehave(m.BlackHole()))
    sky.run(60.0)
    at_s, _ = in_time(sky, 10.3)
    assert 10.3 + 39.0 - at_s >= 36.0, "that is what is left to act in"


@report("awslabs/ec2-spot-labs#23", "kube2iam#257")
def a_404_page_is_no_alarm() -> None:
    sky = Sky("aws")
    sky.run(1200.0)
    assert sky.reported == []
    assert len(asked_s(sky, NOTICE)) >= 1200.0 / INTERVAL_S
    assert len(asked_s(sky, TOKEN)) == 1


@report("amazon-ec2-metadata-mock#207")
def the_content_type_does_not_matter() -> None:
    seen = []
    for content_type in ("text/plain", "application/json", "text/html"):
        sky = Sky("aws")
        sky.misbehave(m.ContentType(content_type=content_type))
        sky.at(10.0, lambda sky=sky: sky.publish(120.0))
        sky.run(60.0)
        seen.append(in_time(sky, 10.0))
    assert seen[0] == seen[1] == seen[2]


@report("flashinfer-ai/flashinfer#2403")
def nothing_is_told_without_a_token() -> None:
    sky = Sky("aws", settings=AwsSettings(tokens_required=True))
    sky.at(10.0, lambda: sky.publish(120.0))
    sky.at(9.0, sky.kill_tokens)
    sky.run(60.0)
    in_time(sky, 10.0, requests=3)
    assert sky.of(*ALARMS) == [], "an expired token is no alarm"


@report("buildkite/lifecycled#84")
def two_signals_in_one_second() -> None:
    sky = Sky("aws")
    for action in ("asg-terminate", "terminate"):
        sky.at(10.0, lambda action=action: sky.publish(120.0, action))
    sky.run(200.0)
    assert sorted(found.action for _, found in sky.of(*ACTED)) == ["asg-terminate", "terminate"]


@report("deadline-cloud-worker-agent#1083")
def no_answer_and_404_are_two_things() -> None:
    sky = Sky("aws")
    sky.at(10.0, lambda: sky.misbehave(m.BlackHole(paths=META + "*", lasts_s=60.0)))
    sky.run(65.0)
    assert kinds(sky, *ALARMS) == ["Trouble", "Blind"]
    longest_s = max(request.timeout_s for _, request in sky.requests)
    assert longest_s <= 4 * Pace().timeout_s, "a probe without a bound"
    sky.run(300.0)
    assert kinds(sky, Report.__args__) == ["Trouble", "Blind", "Sighted"]  # type: ignore[attr-defined]


@report("amazon-ec2-net-utils#120", "amazon-ec2-net-utils#129")
def throttled_answers_are_empty() -> None:
    for cloud in ("aws", "gcp", "azure"):
        sky = Sky(cloud)
        sky.at(5.0, lambda sky=sky: sky.misbehave(m.Body(body="empty", lasts_s=60.0)))
        sky.run(120.0)
        calm(sky)
        assert sky.of(*ACTED) == []
        assert kinds(sky, Blind, Sighted) == ["Blind", "Sighted"]


@report("karpenter-provider-aws#5400")
def all_nodes_are_noticed_in_one_second() -> None:
    polls = set()
    for number in range(20):
        sky = Sky("aws", jitter=lambda number=number: number / 20)
        sky.at(60.0, lambda sky=sky: sky.publish(120.0))
        sky.run(63.0)
        at_s, _ = in_time(sky, 60.0)
        polls.add(round(at_s, 2))
    assert len(polls) >= 10, "they all ask in the same moment"


# --- Google Cloud ---------------------------------------------------------------------------


@report("cluster-api-provider-gcp#112", "cluster-api-provider-gcp#111")
def killed_three_seconds_after_the_flag() -> None:
    sky = Sky("gcp")
    sky.at(47.3, lambda: sky.publish(3.0))
    sky.run(60.0)
    at_s, _ = only(sky, *ACTED)
    assert at_s - 47.3 <= REQUEST_S, "a hanging request answers at once"


@report("taskcluster#6987", "taskcluster#7630")
def preempted_at_the_first_look() -> None:
    sky = Sky("gcp")
    sky.publish(30.0)
    sky.run(60.0)
    at_s, notice = only(sky, *ACTED)
    assert (type(notice), at_s <= REQUEST_S) == (Notice, True)
    assert 20.0 <= sky.left_s(at_s, notice) <= 30.0


@report("scylla-cluster-tests#4373")
def a_hanging_request_is_cut() -> None:
    cut = Sky("gcp")
    cut.misbehave(m.Reset(stage="body", paths=PREEMPTED, first=3))
    cut.at(20.0, lambda: cut.publish(30.0))
    cut.run(60.0)
    in_time(cut, 20.0, requests=2)
    late = Sky("gcp")
    late.misbehave(m.Latency(delay_s=4.0))
    late.at(60.0, lambda: late.publish(30.0))
    late.run(120.0)
    at_s, notice = only(late, *ACTED)
    assert isinstance(notice, Notice)
    assert at_s - 60.0 <= INTERVAL_S + 3 * 4.0, "a question, one that was on its way, the other key"


@report("preemption-exporter#3")
def the_flag_is_hidden() -> None:
    sky = Sky("gcp")
    sky.misbehave(m.Status(status=404, paths="*/instance/preempted"))
    sky.run(600.0)
    assert kinds(sky, *ALARMS) == ["Trouble", "Blind"]
    assert sky.of(Trouble)[0][0] <= REQUEST_S, "a warning, and at once"
    assert "404" in only(sky, Blind)[1].why


@report("google/clusterfuzz#5414")
def an_optional_key_is_missing() -> None:
    sky = Sky("gcp")
    sky.misbehave(m.Status(status=404, paths="*/instance/maintenance-event"))
    sky.misbehave(m.Status(status=404, paths="*/instance/upcoming-maintenance*"))
    sky.at(33.3, lambda: sky.publish(30.0))
    sky.run(60.0)
    assert only(sky, *ACTED)[0] - 33.3 <= REQUEST_S
    assert sky.of(*ALARMS) == []
    calm(sky, per_s=0.5)


@report("karpenter-provider-gcp#295")
def the_flag_counts_and_the_shutdown_details_do_not() -> None:
    modes: dict[Any, float] = {"notice": 20.0, "acpi": 140.0}
    for mode, flag_s in modes.items():
        sky = Sky("gcp", settings=GcpSettings(preemption=mode, idle_stop_state=None))
        sky.at(20.0, lambda sky=sky: sky.publish(120.0))
        sky.run(200.0)
        at_s, notice = only(sky, *ACTED)
        assert 0.0 <= at_s - flag_s <= REQUEST_S
        assert 20.0 <= sky.left_s(at_s, notice) <= 30.0


# --- Azure ----------------------------------------------------------------------------------


@report("poseidon/scuttle#208")
def no_events_are_no_termination() -> None:
    sky = Sky("azure")
    sky.run(1200.0)
    assert sky.reported == []


@report("aks-node-termination-handler#53", "aks-node-termination-handler#73")
def slow_answers_and_the_same_event_again_and_again() -> None:
    sky = Sky("azure", settings=AzureSettings(first_call_delay_s=25.0))
    sky.misbehave(m.Latency(delay_s=2.0, jitter_s=2.0))
    sky.misbehave(m.Duplicate(every_s=1.0))
    sky.at(60.0, lambda: sky.publish(300.0))
    sky.run(300.0)
    at_s, notice = only(sky, *ACTED)
    assert isinstance(notice, Notice)
    assert at_s - 60.0 <= INTERVAL_S + 4 * 4.0, "two questions, one of them asked before"
    assert kinds(sky, Blind) == []


@report("taskcluster#7916")
def a_preemption_is_told_thirty_seconds_before() -> None:
    for offset in range(20):
        sky = Sky("azure")
        published_s = 20.0 + offset / 10
        sky.at(published_s, lambda sky=sky: sky.publish(30.0))
        sky.run(60.0)
        at_s, notice = in_time(sky, published_s, requests=2)
        assert 24.0 <= sky.left_s(at_s, notice) <= 30.0


@report("Azure/AKS#3719")
def an_event_stays_started() -> None:
    sky = Sky("azure")
    sky.at(10.0, lambda: sky.publish(0.0, "reboot"))
    sky.run(600.0)
    at_s, event = only(sky, *ACTED)
    assert isinstance(event, Maintenance)
    assert sky.left_s(at_s, event) == 0.0, "it is under way"


@report("ClusterLabs/resource-agents#1986", "ClusterLabs/resource-agents#1984")
def other_nodes_events_are_not_ours() -> None:
    sky = Sky("azure")
    sky.at(10.0, lambda: sky.publish(30.0, other=True))
    sky.at(60.0, lambda: sky.publish(30.0))
    sky.run(59.0)
    assert sky.reported == []
    sky.run(120.0)
    in_time(sky, 60.0)


@report("coreos/afterburn#459")
def three_minutes_without_a_service() -> None:
    for cloud in ("aws", "gcp", "azure"):
        sky = Sky(cloud)
        sky.at(20.0, lambda sky=sky: sky.misbehave(m.Closed(lasts_s=180.0)))
        sky.at(230.0, lambda sky=sky: sky.publish(120.0))
        sky.run(300.0)
        in_time(sky, 230.0, requests=2)
        assert kinds(sky, Blind, Sighted) == ["Blind", "Sighted"]


# --- all ------------------------------------------------------------------------------------


@report("skypilot#7117", "skypilot#1410", "skypilot#3129")
def the_service_is_not_ready_at_the_start() -> None:
    for cloud in ("aws", "gcp", "azure"):
        sky = Sky(cloud)
        sky.misbehave(m.Status(status=503, lasts_s=90.0))
        sky.run(100.0)
        assert sky.of(*ACTED) == [], "a slow start is no preemption"
        assert kinds(sky, Blind, Sighted) == ["Blind", "Sighted"]
        sky.publish(120.0)
        sky.run(110.0)
        assert kinds(sky, *ACTED) == ["Notice"]


@report("metaflow#2391", "pytorch-lightning#1455")
def a_sigterm_is_a_notice_and_the_handler_is_put_back() -> None:
    """Which processes of a node get it is for attacks: ``sigterm-main-only``, ``sigterm-group``."""
    board, before = NoticeBoard(), signal.getsignal(signal.SIGTERM)
    with sigterm_is_a_notice(board, grace_s=30.0):
        os.kill(os.getpid(), signal.SIGTERM)
        left_s = board.time_left_s()
        assert left_s is not None
        assert 0.0 < left_s <= 30.0
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("name", REPORTS)
def test_report(name: str) -> None:
    REPORTS[name]()
