"""The plugin as users meet it: in a pytest run of their own."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ATTACK = """
    def test_it(attack):
        attack("suites/schedules/kill-and-replace", seed=1).check()
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, own_state: None) -> pytest.Pytester:
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider")
    return pytester


def run(inner: pytest.Pytester, *args: str) -> pytest.RunResult:
    return inner.runpytest_subprocess("--trainer", "minimal", *args, timeout=120)


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, pytest, chaosspot.pytest_plugin\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'msgspec', 'anyio', 'torch', 'aiohttp', 'typer', 'rich', 'numpy', 'hypothesis'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_pass_passes_and_is_counted(inner: pytest.Pytester) -> None:
    inner.makepyfile(ATTACK)
    result = run(inner)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*chaosspot: 1 pass, 0 fail, 0 unknown*"])


def test_a_failure_shows_why_where_and_how_to_replay_it(
    inner: pytest.Pytester, tmp_path: Path
) -> None:
    inner.makepyfile(ATTACK)
    junit = tmp_path / "junit.xml"
    runs = tmp_path / "runs"
    result = run(inner, "--trainer", "hanging", f"--junitxml={junit}", f"--runs={runs}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*fail, because of progress: *",
            f"*replay: chaosspot replay {runs}/*",
            "*chaosspot: 0 pass, 1 fail, 0 unknown*",
            "test_*::test_it: fail: kill-and-replace on hanging, seed 1 because of progress: *",
        ]
    )
    properties = [p.attrib["value"] for p in ET.parse(junit).iter("property")]
    assert any(value.startswith("fail: kill-and-replace on hanging") for value in properties)


UNKNOWN = """
    from chaosspot.schedule import Kill, Schedule, Trigger

    def test_it(attack):
        never = Schedule(fault=(Kill(on=Trigger(point="no.such.point")),))
        attack(never, steps=5, seed=1).check()
"""


@pytest.mark.parametrize("more", [(), ("-n", "2"), ("-x",)])
def test_unknown_is_an_outcome_of_its_own(inner: pytest.Pytester, more: tuple[str, ...]) -> None:
    inner.makepyfile(UNKNOWN)
    result = run(inner, *more)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"unknown": 1}
    result.stdout.fnmatch_lines(["*chaosspot: 0 pass, 0 fail, 1 unknown*"])


def test_settings_come_from_the_command_line_the_environment_the_file_and_the_ini(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner.makepyfile("""
        import os

        def test_it(attack, request, tmp_path):
            from chaosspot.pytest_plugin import settings_of

            got = settings_of(request.config, tmp_path)
            assert [got[k] for k in ("trainer", "seed", "cluster")] == ["minimal", 5, "filed"]
            assert got["runs"] == "ini-runs"
    """)
    inner.makeini("[pytest]\nchaosspot_runs = ini-runs\nchaosspot_cluster = ini-cluster")
    inner.path.joinpath("chaosspot.toml").write_text('cluster = "filed"\nseed = 3')
    monkeypatch.setenv("CHAOSSPOT_SEED", "5")
    run(inner).assert_outcomes(passed=1)


def test_without_an_attack_nothing_is_said(inner: pytest.Pytester) -> None:
    inner.makepyfile("def test_it(): pass")
    result = run(inner)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*chaosspot:*")
