"""The harness is SIGKILLed while a link or the object store is at fault: nothing is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from commands import CHAOSSPOT, attacking, of_run, read_until, within
from standing_in import SERVER, program

FAULTS = {
    "network": """
link = "store"
toxic = [{ type = "timeout", stream = "upstream" }, { type = "latency", stream = "downstream" }]
""",
    "object-store": """
how = { kind = "slow-first-byte", delay_s = 2.0 }
""",
}


@pytest.mark.parametrize(
    ("kind", "backend"),
    [("network", "embedded"), ("network", "real"), ("object-store", "embedded")],
)
def test_sigkill_during_a_fault_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, backend: str
) -> None:
    if backend == "real":
        found = program(tmp_path, SERVER)
        monkeypatch.setenv("PATH", found["PATH"], prepend=os.pathsep)
    state = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(state))
    plan = tmp_path / "plan.toml"
    head = '[cluster]\nstore = "s3"\n[[cluster.group]]\ncount = 1\n'
    fault = f'[[fault]]\nkind = "{kind}"\non = {{ at_step = 7 }}\nduration_s = 60.0\n'
    plan.write_text(head + fault + FAULTS[kind])
    argv = ["--trainer", "bucket", "--proxy-backend", backend]
    with attacking(tmp_path, *argv, schedule=str(plan)) as process:
        read_until(process, "(step")
        running = [" ".join(p.cmdline()) for p in of_run(state)]
        assert any("run_moto" in line for line in running)
        assert any("toxiproxy-server" in line for line in running) == (backend == "real")
        process.kill()
        process.wait()
        assert within(5.0, lambda: of_run(state) == []), of_run(state)
    told = subprocess.run([CHAOSSPOT, "cleanup"], capture_output=True, text=True, check=True)
    assert str(tmp_path / "work") in told.stdout.replace("\n", "")
    assert not list((state / "leases").glob("[!.]*"))
