import drawn
from hypothesis import given

from chaosspot import content, schedule
from chaosspot.report.timeline import explain
from chaosspot.schedule import Schedule


def test_a_notice_is_told_with_its_times() -> None:
    _, plan = schedule.load("spot-notice")
    told = explain("spot-notice", plan)
    for part in (
        "spot-notice: One node gets an interruption notice",
        "4 spot nodes p4d.24xlarge in zones a, b",
        "2 s after every worker has committed a step, and up to 2 s that the seed decides",
        "+0 s  an interruption notice for 1 worker, 30 s ahead",
        "+30 s  SIGTERM",
        "+32 s  SIGKILL",
        "+3 s  after each is gone: a new node",
        "what the trainer promises",
    ):
        assert part in told


def test_what_takes_no_node_is_told_as_that() -> None:
    _, plan = schedule.load("metadata-rebalance")
    told = explain("metadata-rebalance", plan)
    for part in (
        "+0 s  1 worker is told of something that takes no node",
        "+8 s  it is over, and the node stays",
        "no node leaves for a notice",
    ):
        assert part in told
    assert "SIGKILL" not in told


def test_everything_in_the_catalogue_can_be_explained() -> None:
    for name in content.names("faults"):
        _, plan = schedule.load(name)
        assert f"fault {len(plan.fault) - 1}" in explain(name, plan)


@given(drawn.schedules)
def test_any_schedule_can_be_explained(plan: Schedule) -> None:
    assert explain("x", plan).startswith("x")
