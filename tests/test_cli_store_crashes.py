"""The harness is SIGKILLed in the middle of each fault of a link or of the object store that the
catalogue has: nothing is left, and the next start says what was healed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from commands import CHAOSSPOT, attacking, of_run, read_until, within

from chaosspot import history as h
from chaosspot import schedule
from chaosspot.schedule import Network, ObjectStore

pytestmark = pytest.mark.long

FAULTS = [
    path.stem
    for path in sorted((Path(__file__).parents[1] / "faults").glob("*.toml"))
    if path.stem.startswith(("store-", "coordinator-"))
]
IN_CI = ("coordinator-cut", "store-cut-in-parts", "store-throttled")
GONE_S = 5.0


def test_the_catalogue_is_whole() -> None:
    assert len(FAULTS) >= 10
    kinds = {type(fault) for name in FAULTS for fault in schedule.load(name)[1].fault}
    assert {Network, ObjectStore} <= kinds


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in IN_CI else pytest.mark.soak) for name in FAULTS],
)
def test_sigkill_in_the_middle_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(state))
    with attacking(
        tmp_path, "--trainer", "sharded", "--store", "s3", "--nodes", "3", schedule=name
    ) as process:
        read_until(process, "(step")
        assert any("run_moto" in " ".join(p.cmdline()) for p in of_run(state))
        process.kill()
        process.wait()
        assert within(GONE_S, lambda: of_run(state) == []), of_run(state)
    (run,) = (tmp_path / "work" / "runs").glob("2*")
    history = h.read(run / "history.jsonl")
    gone = {record.node for record in history if isinstance(record, h.NodeGone)}
    over = h.NodeUp if gone else h.FaultHealed  # who was killed is not replaced yet
    begun_s = next(r.t for r in history if isinstance(r, h.FaultInjected))
    late = [record for record in history if isinstance(record, over) and record.t > begun_s]
    assert late == [], "it was not killed in the middle"
    assert not list(run.glob("nodes/*/flash"))
    told = subprocess.run([CHAOSSPOT, "cleanup"], capture_output=True, text=True, check=True)
    said = told.stdout.replace("\n", "")
    assert str(run) in said
    assert "its guardian cleaned up: killed" in " ".join(told.stdout.split())
    for node in {"coordinator", "node-0", "node-1", "node-2"} - gone:
        assert f"processes of {node}" in " ".join(told.stdout.split())
    assert "PROBLEM" not in said
    assert not list((state / "leases").glob("[!.]*"))
