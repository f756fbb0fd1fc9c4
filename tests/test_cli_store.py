"""The harness is SIGKILLed while a link or the object store is at fault: nothing is left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from commands import CHAOSSPOT, attacking, of_run, read_until, within

FAULTS = {
    "network": """
link = "store"
toxic = [{ type = "timeout", stream = "upstream" }, { type = "latency", stream = "downstream" }]
""",
    "object-store": """
how = { kind = "slow-first-byte", delay_s = 2.0 }
""",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_sigkill_during_a_fault_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(state))
    plan = tmp_path / "plan.toml"
    head = '[cluster]\nstore = "s3"\n[[cluster.group]]\ncount = 1\n'
    fault = f'[[fault]]\nkind = "{kind}"\non = {{ at_step = 7 }}\nduration_s = 60.0\n'
    plan.write_text(head + fault + FAULTS[kind])
    with attacking(tmp_path, "--trainer", "bucket", schedule=str(plan)) as process:
        read_until(process, "(step")
        assert any("run_moto" in " ".join(p.cmdline()) for p in of_run(state))
        process.kill()
        process.wait()
        assert within(5.0, lambda: of_run(state) == []), of_run(state)
    told = subprocess.run([CHAOSSPOT, "cleanup"], capture_output=True, text=True, check=True)
    assert str(tmp_path / "work") in told.stdout.replace("\n", "")
    assert not list((state / "leases").glob("[!.]*"))
