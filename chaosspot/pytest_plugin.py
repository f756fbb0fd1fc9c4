"""The pytest plugin: fixtures that attack or serve faults, and verdicts in every report.

Loaded in every pytest run of everybody who has chaosspot installed, so it imports pytest and the
standard library alone; the rest comes with the first fixture that is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chaosspot.schedule import Schedule
    from chaosspot.verdict import Verdict

__all__ = ["attack", "settings_of", "toxiproxy"]

_OPTIONS = {
    "trainer": ("--trainer", "Trainer to attack: a shipped name, or the path of a description"),
    "cluster": ("--cluster", "Where its nodes live: processes or containers"),
    "image": ("--image", "What containers are made of, instead of this machine's programs"),
    "seed": ("--chaos-seed", "Decides which nodes are hit and when"),
    "runs": ("--runs", "Where run directories are made; a temporary directory unless given"),
}
_PROPERTY = "chaosspot_verdict"  # of a report: for JUnit, and from xdist's workers to us


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaosspot", "Fault injection for training jobs")
    for name, (option, what) in _OPTIONS.items():
        kind = int if name == "seed" else str
        group.addoption(option, dest=f"chaosspot_{name}", type=kind, default=None, help=what)
        parser.addini(f"chaosspot_{name}", what)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "chaos: attacks a trainer on real processes")


@pytest.fixture
def attack(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Verdict]:
    """``attack(schedule_or_name, **overrides) -> Verdict``, with what :func:`chaosspot.attack`
    takes.

    What is not given comes from the command line, the environment, the configuration or the
    defaults. The verdict is returned, not asserted: end the test with ``verdict.check()``.
    """
    from chaosspot.conductor import attack as real_attack

    settings = settings_of(request.config, tmp_path)

    def run(schedule: Schedule | str, **overrides: Any) -> Verdict:
        verdict = real_attack(schedule, **{**settings, **overrides})
        _tell(request.node, verdict)
        return verdict

    return run


@pytest.fixture
def toxiproxy(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A ``toxiproxy.Toxiproxy`` client with a server of its own, embedded, for one test.

    ``--chaos-seed`` decides on which connections a toxic with a toxicity below 1 runs.
    """
    from chaosspot.services.proxy.hosted import toxiproxy_client

    with toxiproxy_client(seed=request.config.getoption("chaosspot_seed") or 0) as client:
        yield client


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """An attack whose verdict is unknown is neither passed nor an ordinary failure."""
    if report.when == "call" and report.failed and _outcomes(report)[-1:] == ["unknown"]:
        return "unknown", "U", "UNKNOWN"
    return None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many attacks there were, and one line for each that did not pass."""
    said = [
        (report.nodeid, text)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for text in _said(report)
    ]
    if not said:
        return
    outcomes = [text.split(":", 1)[0] for _, text in said]
    counts = ", ".join(f"{outcomes.count(o)} {o}" for o in ("pass", "fail", "unknown"))
    terminalreporter.section(f"chaosspot: {counts}")
    for node, text in said:
        if not text.startswith("pass:"):
            terminalreporter.line(f"{node}: {text}")


def settings_of(config: pytest.Config, tmp_path: Path) -> dict[str, Any]:
    """What an attack uses unless a test says otherwise; the ini file goes before the defaults."""
    from chaosspot.settings import resolve

    given = {name: config.getoption(f"chaosspot_{name}") for name in _OPTIONS}
    ini = {name: config.getini(f"chaosspot_{name}") for name in _OPTIONS}
    resolved = resolve(given, environ=os.environ, folder=config.rootpath)
    settings = {}
    for name, setting in resolved.items():
        settings[name] = setting.value
        if setting.origin == "default" and ini[name]:
            settings[name] = int(ini[name]) if name == "seed" else ini[name]
    if resolved["runs"].origin == "default" and not ini["runs"]:
        settings["runs"] = tmp_path / "runs"
    return settings


def _tell(item: pytest.Item, verdict: Verdict) -> None:
    """Put a verdict into every report of the test, so that the terminal and JUnit have it."""
    primary = verdict.primary
    why = f" because of {primary.oracle}: {primary.message}" if primary else ""
    said = f"{verdict.outcome}: {verdict.schedule} on {verdict.trainer}, seed {verdict.seed}{why}"
    item.user_properties.append((_PROPERTY, said))
    lines = [said, f"run directory: {verdict.run}", f"replay: {verdict.replay}"]
    item.add_report_section("call", "chaosspot", "\n".join(lines))


def _said(report: pytest.TestReport) -> list[str]:
    return [str(text) for name, text in report.user_properties if name == _PROPERTY]


def _outcomes(report: pytest.TestReport) -> list[str]:
    return [text.split(":", 1)[0] for text in _said(report)]
