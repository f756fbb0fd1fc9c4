"""``chaosspot serve``: an output that cannot be written, and one whose reader has gone away."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from commands import CHAOSSPOT, usual_signals

SERVICES = [("metadata",), ("proxy", "-port", "0"), ("s3",)]


@pytest.mark.parametrize("argv", SERVICES, ids=lambda argv: argv[0])
def test_an_output_that_cannot_be_written_is_what_is_said(argv: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [CHAOSSPOT, "serve", *argv],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    said = "chaosspot: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (3, said)


@pytest.mark.parametrize("argv", SERVICES, ids=lambda argv: argv[0])
def test_a_reader_that_goes_away_changes_nothing(argv: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [CHAOSSPOT, "serve", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=usual_signals,
    ) as process:
        assert process.stdout
        assert process.stdout.readline()
        process.stdout.close()
        process.send_signal(signal.SIGTERM)
        assert (process.wait(30), process.stderr and process.stderr.read()) == (0, "")


def test_an_address_in_use_is_said_once() -> None:
    with subprocess.Popen(
        [CHAOSSPOT, "serve", "metadata", "--json"], stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout
        port = json.loads(first.stdout.readline())["control"].rpartition(":")[2]
        argv = [CHAOSSPOT, "serve", "metadata", "--port", port]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        first.terminate()
    said = f"chaosspot: cannot listen on 127.0.0.1:{port}: address already in use\n"
    assert (done.returncode, done.stderr) == (2, said)
