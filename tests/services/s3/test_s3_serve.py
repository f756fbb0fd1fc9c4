"""The store that stands alone: the command as users run it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from commands import CHAOSSPOT, usual_signals, within
from storing import code_of
from waiting import until

from chaosspot import store_misbehaviour as m
from chaosspot.services.s3.options import Options, misbehaviours_of
from chaosspot.services.s3.serve import serve


@contextmanager
def serving(*argv: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [CHAOSSPOT, "serve", "s3", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        preexec_fn=usual_signals,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def client_of(environment: dict[str, str]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
        config=Config(proxies={}, retries={"total_max_attempts": 1}),
    )


def test_it_misbehaves_as_told_and_ends_cleanly(tmp_path: Path) -> None:
    more = tmp_path / "more.toml"
    more.write_text('[[misbehaviour]]\nkind = "denied"\noperations = ["list"]\n')
    told = ("--misbehave", "slow-down,first=1,operations=put+copy", "--misbehave", str(more))
    with serving("--bucket", "my-bucket", "--json", *told) as process:
        listening = json.loads(line(process))
        assert (listening["event"], listening["bucket"]) == ("listening", "my-bucket")
        client = client_of(listening["environment"])
        for act, expected in (
            (lambda: client.put_object(Bucket="my-bucket", Key="k", Body=b"x"), "SlowDown"),
            (lambda: client.list_objects_v2(Bucket="my-bucket"), "AccessDenied"),
        ):
            with pytest.raises(ClientError) as caught:
                act()
            assert code_of(caught.value)[1] == expected
            injection = json.loads(line(process))
            assert (injection["event"], injection["detail"]) == ("injection", {"code": expected})
        client.put_object(Bucket="my-bucket", Key="k", Body=b"x")
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out) == {"event": "stopped"}
    assert children
    assert not any(child.is_running() for child in children)


def test_people_see_the_variables_and_each_misbehaviour() -> None:
    with serving("--misbehave", "failure,status=503") as process:
        first = line(process)
        variables = dict(line(process).removeprefix("  export ").split("=", 1) for _ in range(9))
        assert first == f"s3://chaosspot  {variables['AWS_ENDPOINT_URL_S3']}"
        with pytest.raises(ClientError):
            client_of(variables).get_object(Bucket="chaosspot", Key="a\x1bb")
        assert line(process) == r"failure  get 'a\x1bb'  code=ServiceUnavailable"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("stopped\n", "")


def test_a_port_in_use_is_said() -> None:
    with serving("--json") as first:
        port = json.loads(line(first))["endpoint"].rsplit(":", 1)[1]
        with serving("--port", port) as second:
            out, err = second.communicate(timeout=60)
        first.send_signal(signal.SIGHUP)
        assert first.communicate(timeout=30) == ('{"event": "stopped"}\n', "")
        assert first.returncode == 0
    assert (second.returncode, out) == (2, "")
    assert err == f"chaosspot: cannot listen on 127.0.0.1:{port}: address already in use\n"


def test_a_store_that_dies_is_said() -> None:
    with serving("--json") as process:
        line(process)
        (moto,) = psutil.Process(process.pid).children()
        moto.kill()
        assert within(30.0, lambda: process.poll() is not None)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "the object store (moto) does not serve: it ended with -9" in err


def test_a_misbehaviour_that_cannot_be_told_is_not_the_clients_matter() -> None:
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) > 1:
            raise OSError(errno.ENOSPC, "it is full")

    async def main() -> None:
        options = Options(misbehaviours=(m.Denied(),), json=True)
        task = asyncio.create_task(serve(options, write=write))
        await until(lambda: lines)
        client = client_of(json.loads(lines[0])["environment"])
        with pytest.raises(ClientError, match="AccessDenied"):
            await asyncio.to_thread(client.get_object, Bucket="chaosspot", Key="a")
        with pytest.raises(OSError, match="it is full"):
            await task

    asyncio.run(main())


def test_a_bad_option_is_one_line() -> None:
    with serving("--bucket", "Bad_Name") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("chaosspot: bucket='Bad_Name': expected the name of a bucket")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("bucket", "x"), ("port", 70000), ("port", -1), ("host", "localhost"), ("host", "10.0.0.1")],
)
def test_bad_options_are_named(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{field}="):
        Options(**{field: value})
    assert Options(host="10.0.0.1", beyond_loopback=True).host == "10.0.0.1"


def test_misbehaviours_as_people_type_them(tmp_path: Path) -> None:
    more = tmp_path / "more.toml"
    more.write_text('[[misbehaviour]]\nkind = "bit-flip"\nseed = 3\n')
    typed = misbehaviours_of(["slow-down,rate=0.5,operations=put+get,first=3", str(more)], seed=7)
    assert typed == (
        m.SlowDown(rate=0.5, operations=("put", "get"), first=3, seed=7),
        m.BitFlip(seed=3),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "''"),
        ("rude", "'rude': no kind 'rude'; valid: slow-down, failure, .*no-such-upload$"),
        ("kind=rude", "no kind 'rude'; valid: slow-down, "),
        ("denied,delay_s=1", "denied has no 'delay_s'; valid: nodes, operations, "),
        ("truncated,keep=1", "keep"),
        ("truncated,keep=0.1,keep=0.2", "each name once"),
        ("truncated,keep", "expected name=value"),
        ("truncated,operations=put", "'put' has no meaning here"),
        ("slow-first-byte", "missing required field `delay_s`"),
        ("nowhere.toml", "cannot read 'nowhere.toml'"),
    ],
)
def test_bad_misbehaviours_are_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        misbehaviours_of([text], seed=0)
