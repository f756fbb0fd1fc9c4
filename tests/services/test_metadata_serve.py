"""The service that stands alone, as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chaosspot import misbehaviour as m
from chaosspot.services.metadata import AwsSettings, GcpSettings
from chaosspot.services.metadata.options import Options, misbehaviour_of, settings_of

PROGRAM = """
import asyncio, sys, msgspec
from chaosspot.services.metadata.serve import Options, serve
options = msgspec.json.decode(sys.argv[1])
options = Options(**options)
asyncio.run(serve(options, write=lambda line: print(line, flush=True)))
"""
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@contextmanager
def serving(**options: Any) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", PROGRAM, json.dumps(options)]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_serves_notices_and_ends_cleanly(number: signal.Signals) -> None:
    given = {"cloud": "gcp", "nodes": 3, "notice_after_s": 0.1, "noticed": 2, "lead_s": 90.0}
    with serving(**given, json=True) as process:
        listening = json.loads(line(process))
        assert (listening["event"], listening["cloud"]) == ("listening", "gcp")
        assert [node["node"] for node in listening["nodes"]] == ["node-0", "node-1", "node-2"]
        told = json.loads(line(process))
        assert (told["event"], told["action"]) == ("notice", "preempt")
        assert set(told["deadlines"]) == {"node-0", "node-1"}
        values = []
        for node in listening["nodes"]:
            host = node["environment"]["GCE_METADATA_HOST"]
            url = f"http://{host}/computeMetadata/v1/instance/preempted"
            asked = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
            with _open(asked, timeout=5) as answer:
                values.append(answer.read())
        assert values == [b"TRUE", b"TRUE", b"FALSE"]
        with _open(listening["control"] + "/nodes", timeout=5) as answer:
            assert len(json.load(answer)["nodes"]) == 3
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert json.loads(out) == {"event": "stopped"}
    assert (process.returncode, err) == (0, "")


def test_people_see_addresses_and_variables() -> None:
    given = {"cloud": "aws", "nodes": 2, "own_addresses": True, "host": "127.9.0.1"}
    with serving(**given, notice_after_s=3600.0) as process:
        lines = [line(process) for _ in range(5)]
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20) == ("stopped\n", "")
    assert lines[0].startswith("node-0  http://127.9.0.1:")
    assert lines[1].startswith("  export AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.9.0.1:")
    assert lines[2].startswith("node-1  http://127.9.0.2:")
    assert lines[4].startswith("control  http://127.0.0.1:")


def test_a_port_in_use_is_said() -> None:
    with serving(json=True) as first:
        port = int(json.loads(line(first))["control"].rsplit(":", 1)[1])
        with serving(port=port) as second:
            _, err = second.communicate(timeout=20)
    assert second.returncode != 0
    assert err.splitlines()[-1].endswith(
        f"cannot listen on 127.0.0.1:{port}: address already in use"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cloud", "acme"),
        ("action", "preempt"),
        ("lead_s", -1.0),
        ("lead_s", 86401.0),
        ("notice_after_s", float("nan")),
        ("lasts_s", 0.0),
        ("nodes", 0),
        ("noticed", 2),
        ("zones", ()),
        ("port", 70000),
        ("control_port", -1),
        ("host", "localhost"),
        ("host", "10.0.0.1"),
    ],
)
def test_bad_options_are_named(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{field}="):
        Options(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"), [("noticed", 1), ("action", "terminate"), ("lasts_s", 5.0)]
)
def test_what_is_said_of_a_notice_needs_one(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{field}={value!r}: needs notice_after_s"):
        Options(**{field: value})
    assert getattr(Options(**{field: value, "notice_after_s": 1.0}), field) == value


def test_settings_as_people_type_them() -> None:
    typed = settings_of("aws", ["tokens_required=false", "hops=1", "role=trainer"])
    assert typed == AwsSettings(tokens_required=False, hops=1, role="trainer")
    assert settings_of("gcp", []) == GcpSettings()


@pytest.mark.parametrize(
    ("cloud", "word", "message"),
    [
        ("acme", "hops=1", "cloud='acme'"),
        ("gcp", "hops=1", "'hops=1': .*unknown field `hops`"),
        ("aws", "hops=many", "'hops=many': "),
        ("aws", "hops", "'hops': expected name=value"),
    ],
)
def test_bad_settings_are_named(cloud: str, word: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of(cloud, [word])


def test_misbehaviours_as_people_type_them() -> None:
    typed = misbehaviour_of("status,status=503,paths=/latest/*,rate=0.5,first=3")
    assert typed == m.Status(status=503, paths="/latest/*", rate=0.5, first=3)
    assert misbehaviour_of("black-hole") == m.BlackHole()
    assert misbehaviour_of("kind=closed,rate=0.5") == m.Closed(rate=0.5)
    assert misbehaviour_of("skew,skew_s=-90") == m.Skew(skew_s=-90.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rude", "'rude': no kind 'rude'; valid: latency, status, body, .*skew$"),
        ("kind=rude,rate=1", "'kind=rude,rate=1': no kind 'rude'; valid: latency, "),
        ("status,foo=1", "status has no 'foo'; valid: nodes, paths, .*status, above_per_s$"),
        ("", "''"),
        ("latency", "missing required field `delay_s`"),
        ("latency,delay_s=1,delay_s=2", "each name once"),
        ("status,status=200", "status=200"),
        ("skew,skew_s=nan", "skew_s"),
    ],
)
def test_bad_misbehaviours_are_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        misbehaviour_of(text)
