"""Loss and final checkpoint: what is compared of a trainer that promises no exactness."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from histories import KILL, Story, ended, outcome

from chaosspot.oracles import ORACLES
from chaosspot.oracles.comparison import Comparison, Difference
from chaosspot.oracles.evidence import Evidence
from chaosspot.trainers import Final
from chaosspot.verdict import Finding, Outcome

STEPS = 40
FAULT_T = 20.5


def curve(step: int) -> float:
    return 2.0 + 10.0 / step


def told(loss: Callable[[int], float | None], *, faulty: bool = False, steps: int = STEPS) -> Story:
    """Losses by step, a step a second; a fault that costs nothing at 20.5 s, if ``faulty``."""
    story = Story()
    story.up(0.0, "node-0", "node-1")
    for step in range(1, steps + 1):
        if faulty and step == 21:
            story.kill(FAULT_T, "node-1")
        story.step(float(step), step, "node-0", loss=loss(step), digest=None, parent=None)
    return story


TWINS = tuple(told(lambda step, off=off: curve(step) * off) for off in (0.99, 1.0, 1.01))


def evidence(story: Story, twins: tuple[Story, ...] = TWINS, within: float = 0.05) -> Evidence:
    first, *more = twins
    return ended(story).evidence(KILL, twin=first, more_twins=tuple(more), loss_within=within)


def only(found: Evidence) -> Finding:
    (finding,) = ORACLES["loss"](found)
    return finding


def test_the_bound_is_what_was_promised_and_four_deviations_of_the_twins() -> None:
    finding = only(evidence(told(curve, faulty=True)))
    assert finding.bound == pytest.approx(5.0 + 4 * 1.0)
    assert finding.measured == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("off", "expected"),
    [(1.089, Outcome.PASS), (1.091, Outcome.FAIL), (0.911, Outcome.PASS), (0.909, Outcome.FAIL)],
)
def test_a_loss_off_the_undisturbed_ones(off: float, expected: Outcome) -> None:
    story = told(lambda step: curve(step) * (off if step > 20 else 1.0), faulty=True)
    assert only(evidence(story)).outcome is expected


def test_the_worst_block_is_named_with_its_steps() -> None:
    story = told(lambda step: curve(step) * (1.5 if 30 < step <= 35 else 1.0), faulty=True)
    finding = only(evidence(story))
    assert "loss of steps 31 to 35 is 50.00% above" in finding.message
    assert finding.measured == pytest.approx(50.0)


def test_losses_before_the_first_fault_are_not_judged() -> None:
    story = told(lambda step: curve(step) * (3.0 if step <= 20 else 1.0), faulty=True)
    assert only(evidence(story)).outcome is Outcome.PASS


def test_single_steps_do_not_decide() -> None:
    story = told(lambda step: curve(step) * (1.3 if step == 33 else 1.0), faulty=True)
    assert only(evidence(story)).outcome is Outcome.PASS


def test_ranks_that_report_their_own_loss_are_averaged() -> None:
    story = Story()
    story.up(0.0, "node-0", "node-1")
    for step in range(1, STEPS + 1):
        story.begin(step - 0.5, step, "node-0", "node-1")
        for node, off in (("node-0", 1.5), ("node-1", 0.5)):
            story.commit(float(step), step, node, loss=curve(step) * off, world=2)
    assert only(evidence(story)).measured == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("story", "twins", "message"),
    [
        (told(curve), TWINS[:2], "2 undisturbed runs to compare with, not 3"),
        (told(lambda _: None), TWINS, "no loss was reported"),
        (told(curve), (*TWINS[:2], told(lambda _: None)), "by an undisturbed run"),
        (told(curve, faulty=True), tuple(told(curve, steps=24) for _ in range(3)), "4 of 20 steps"),
        (
            told(lambda step: math.nan if step > 24 else curve(step), faulty=True),
            TWINS,
            "4 of 20 steps",
        ),
    ],
)
def test_what_cannot_be_compared_is_unknown(
    story: Story, twins: tuple[Story, ...], message: str
) -> None:
    finding = only(evidence(story, twins))
    assert finding.outcome is Outcome.UNKNOWN
    assert message in finding.message


def test_without_the_promise_no_loss_is_judged() -> None:
    assert outcome("loss", ended(told(lambda _: 99.0)).evidence(twin=TWINS[0])) is None


# checkpoint

FINAL = Final(at_step=STEPS, checkpoint="last.pt")
SAME = Difference(arrays=4, distance=0.0)
OTHER = Difference(arrays=4, unequal=("model.0.weight",), distance=0.1)
SHAPES = Difference(arrays=4, only_there=("model.9.weight",))


def final(
    compared: Comparison | None,
    *,
    exact: str = "any-world",
    within: float | None = None,
    reason: str = "finished",
    twin: Story | None = None,
) -> Evidence:
    return ended(told(curve), reason=reason).evidence(
        twin=twin,
        exact=exact,
        final=Final(at_step=STEPS, checkpoint="last.pt", within=within),
        compared=compared,
    )


def beside(difference: Difference | None, **problems: str) -> Comparison:
    return Comparison(checkpoint="last.pt", difference=difference, **problems)


@pytest.mark.parametrize(
    ("difference", "expected"),
    [(SAME, Outcome.PASS), (OTHER, Outcome.FAIL), (SHAPES, Outcome.FAIL)],
)
def test_exact_weights_are_the_twins(difference: Difference, expected: Outcome) -> None:
    assert outcome("checkpoint", final(beside(difference))) is expected


def test_weights_that_differ_undisturbed_too_prove_nothing() -> None:
    found = ended(told(curve), reason="finished").evidence(
        exact="any-world", final=FINAL, compared=beside(OTHER), twins_agree=False
    )
    assert outcome("checkpoint", found) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("within", "expected"), [(0.1, Outcome.PASS), (0.099, Outcome.FAIL), (None, None)]
)
def test_weights_that_are_not_exact_are_near(
    within: float | None, expected: Outcome | None
) -> None:
    found = final(beside(OTHER), exact="none", within=within)
    assert outcome("checkpoint", found) is expected


def test_weights_of_other_shapes_are_not_near_nor_is_what_is_no_number() -> None:
    assert outcome("checkpoint", final(beside(SHAPES), exact="none", within=9.0)) is Outcome.FAIL
    broken = Difference(arrays=1, unequal=("w",), distance=math.nan)
    assert outcome("checkpoint", final(beside(broken), exact="none", within=9.0)) is Outcome.FAIL


def test_same_world_is_exact_only_while_the_world_stays() -> None:
    kept = final(beside(OTHER), exact="same-world", twin=told(curve))
    assert outcome("checkpoint", kept) is Outcome.FAIL
    story = told(curve)
    story.step(STEPS + 1.0, STEPS + 1, "node-0", "node-1", digest=None, parent=None)
    changed = ended(story, reason="finished").evidence(
        twin=told(curve), exact="same-world", final=FINAL, compared=beside(OTHER)
    )
    assert outcome("checkpoint", changed) is None


def test_a_checkpoint_that_cannot_be_read_is_a_failure_and_the_twins_proves_nothing() -> None:
    assert outcome("checkpoint", final(beside(None, problem="no such file"))) is Outcome.FAIL
    assert outcome("checkpoint", final(beside(None, twin_problem="torn"))) is Outcome.UNKNOWN
    assert outcome("checkpoint", final(beside(None))) is Outcome.UNKNOWN
    assert outcome("checkpoint", final(None)) is Outcome.UNKNOWN


@pytest.mark.parametrize("reason", ["stall timeout", "steps", "exited"])
def test_a_job_that_did_not_end_leaves_nothing_to_compare(reason: str) -> None:
    assert outcome("checkpoint", final(beside(SAME), reason=reason)) is Outcome.UNKNOWN


def test_a_trainer_without_a_final_checkpoint_is_not_asked_for_one() -> None:
    assert outcome("checkpoint", ended(told(curve)).evidence(exact="any-world")) is None


def test_the_final_checkpoint_stands_in_for_digests() -> None:
    assert outcome("equality", final(beside(SAME), twin=told(curve))) is None
    without = ended(told(curve)).evidence(exact="any-world", twin=told(curve))
    assert outcome("equality", without) is Outcome.UNKNOWN
