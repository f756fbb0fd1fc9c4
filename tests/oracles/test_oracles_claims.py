"""What was said to be durable against what the store had, in tiny hand-made histories."""

from __future__ import annotations

from typing import Any

import pytest
from histories import Story, ended, undisturbed

from chaosspot import history as h
from chaosspot.oracles import Evidence
from chaosspot.oracles.durability import check
from chaosspot.trainers import InObjectStore
from chaosspot.verdict import Outcome


def keys(step: int) -> tuple[str, str]:
    return f"step-{step}/state", f"step-{step}/manifest"


class Stored(Story):
    """A story with a store: what is put is under ``step-N/``."""

    def __init__(self) -> None:
        super().__init__()
        self.records = list(undisturbed(5).records)
        self.held: dict[str, str] = {}

    def put(self, t: float, key: str, *, size: int = 100, content: str = "") -> None:
        self.held[key] = content or f"sum of {key}"
        self.tell(h.StorePut, t, "node-0", key=key, bytes=size, sum=self.held[key])

    def delete(self, t: float, key: str) -> None:
        self.held.pop(key, None)
        self.tell(h.StoreDelete, t, "node-0", key=key)

    def upload(self, t: float, key: str, state: str, upload: str = "u") -> None:
        self.tell(h.StoreUpload, t, "node-0", key=key, upload=upload, state=state)

    def claim(self, t: float, step: int, *, size: int = 100) -> None:
        self.saved(t, step, "node-0", bytes=size, objects=keys(step))

    def snapshot(self, t: float, step: int) -> None:
        """Data, manifest and claim, as they should be."""
        for key in keys(step):
            self.put(t, key)
        self.claim(t + 0.1, step)

    def found(self, held: dict[str, str | None] | None = None) -> Evidence:
        """Looked at when the run has ended; ``held``: keys with other bytes than were put."""
        objects = {**self.held, **(held or {})}
        told = {k: v for k, v in objects.items() if v is not None}
        story = ended(self)
        story.tell(h.StoreFound, story.records[-1].t, objects=told)
        return story.evidence(object_store=InObjectStore(complete="step-*/manifest"))


def verdicts(evidence: Evidence) -> list[Any]:
    return [finding.outcome for finding in check(evidence)]


def test_claims_that_hold_pass() -> None:
    story = Stored()
    story.snapshot(1.0, 1)
    story.snapshot(2.0, 2)
    (finding,) = check(story.found())
    assert (finding.outcome, finding.measured) == (Outcome.PASS, 2)


def test_a_run_without_an_object_store_is_not_judged_by_it() -> None:
    story = undisturbed(5)
    story.saved(2.0, 2, "node-0", objects=keys(2))
    assert list(check(ended(story).evidence())) == []


@pytest.mark.parametrize(("put_t", "outcome"), [(2.0, Outcome.PASS), (2.01, Outcome.FAIL)])
def test_a_claim_must_be_true_when_it_is_made(put_t: float, outcome: Outcome) -> None:
    story = Stored()
    story.put(1.0, "step-2/state")
    if put_t <= 2.0:
        story.put(put_t, "step-2/manifest")
    story.claim(2.0, 2)
    if put_t > 2.0:
        story.put(put_t, "step-2/manifest")
    (finding,) = check(story.found())
    assert finding.outcome is outcome
    if outcome is Outcome.FAIL:
        assert "when the store held no step-2/manifest" in finding.message


@pytest.mark.parametrize(("size", "outcome"), [(200, Outcome.PASS), (201, Outcome.FAIL)])
def test_a_claim_must_not_say_more_bytes_than_there_are(size: int, outcome: Outcome) -> None:
    story = Stored()
    for key in keys(2):
        story.put(1.0, key)
    story.claim(2.0, 2, size=size)
    assert verdicts(story.found()) == [outcome]


@pytest.mark.parametrize("how", ["delete", "overwrite", "same"])
@pytest.mark.parametrize("newer", [True, False])
def test_the_last_durable_snapshot_stays_as_it_was(how: str, newer: bool) -> None:
    story = Stored()
    story.snapshot(1.0, 1)
    if newer:
        story.snapshot(2.0, 2)
    if how == "delete":
        story.delete(3.0, "step-1/state")
    elif how == "overwrite":
        story.put(3.0, "step-1/state", content="other")
    else:
        story.put(3.0, "step-1/state")
    wrong = [f for f in check(story.found()) if f.outcome is Outcome.FAIL and "said" in f.message]
    assert bool(wrong) == (how != "same" and not newer)


def test_what_is_to_be_superseded_soon_stays_until_then() -> None:
    story = Stored()
    story.snapshot(1.0, 1)
    story.delete(1.9, "step-1/manifest")
    story.snapshot(2.0, 2)
    wrong = [f.message for f in check(story.found()) if f.outcome is Outcome.FAIL]
    assert len(wrong) == 1
    assert "step-1/manifest was removed 0.8 s later, when there was nothing newer" in wrong[0]


@pytest.mark.parametrize("held", [None, "other"])
def test_what_changed_behind_everyones_back_is_found_at_the_end(held: str | None) -> None:
    story = Stored()
    story.snapshot(1.0, 1)
    story.snapshot(2.0, 2)
    assert verdicts(story.found({"step-1/state": held})) == [Outcome.PASS], "it is superseded"
    story = Stored()
    story.snapshot(1.0, 1)
    (finding,) = check(story.found({"step-1/state": held}))
    assert finding.outcome is Outcome.FAIL
    assert "at the end the store held other bytes, or none, as step-1/state" in finding.message


def test_a_manifest_before_its_data_can_be_seen_too_early() -> None:
    story = Stored()
    story.put(1.0, "step-1/manifest")
    story.put(1.5, "step-1/state")
    story.claim(2.0, 1)
    (finding,) = check(story.found())
    assert finding.outcome is Outcome.FAIL
    assert "step-1/manifest was there before step-1/state" in finding.message


def test_a_manifest_alone_is_no_snapshot() -> None:
    story = Stored()
    story.put(1.0, "step-1/manifest")
    (finding,) = check(story.found())
    assert (finding.outcome, finding.message) == (
        Outcome.FAIL,
        "step-1/manifest was there, and nothing beside it",
    )


def test_a_snapshot_written_anew_is_none_meanwhile() -> None:
    """Its manifest is removed first, so that nobody sees the new data under the old one."""
    story = Stored()
    story.snapshot(1.0, 1)
    story.delete(2.0, "step-1/manifest")
    story.put(2.5, "step-1/state", content="other")
    story.put(3.0, "step-1/manifest", content="other")
    wrong = [f for f in check(story.found()) if "was there" in f.message]
    assert wrong == []


@pytest.mark.parametrize(
    ("state", "claim_t", "end_t", "outcome"),
    [
        ("begun", 3.0, 5.01, Outcome.FAIL),
        ("begun", 3.0, 4.99, Outcome.PASS),  # there was no time to remove it
        ("begun", 0.9, 60.0, Outcome.PASS),  # it may be on its way
        ("completed", 3.0, 60.0, Outcome.PASS),
        ("aborted", 3.0, 60.0, Outcome.PASS),
    ],
)
def test_an_upload_that_is_superseded_is_not_left(
    state: str, claim_t: float, end_t: float, outcome: Outcome
) -> None:
    story = Stored()
    story.records = [r for r in story.records if r.t < 0.5]
    if claim_t < 1.0:
        story.snapshot(claim_t - 0.1, 2)
    story.upload(1.0, "step-1/state", "begun")
    if state != "begun":
        story.upload(2.0, "step-1/state", state)
    if claim_t > 1.0:
        story.snapshot(claim_t - 0.1, 2)
    story.stop(end_t)
    still = ("u",) if state == "begun" else ()
    story.tell(h.StoreFound, end_t, objects=dict(story.held), uploads=still)
    evidence = story.evidence(object_store=InObjectStore())
    assert verdicts(evidence) == [outcome]
