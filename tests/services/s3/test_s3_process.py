"""moto's process: started, said to be broken, ended with whoever started it, and not shared."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import within
from storing import Connection, Store, head, storing

from chaosspot.services.s3 import S3Service
from chaosspot.services.s3.process import Moto

SERVING = """
import asyncio, os, sys, threading, time
from chaosspot.services.s3 import S3Service
async def main():
    async with S3Service() as service:
        if sys.argv[1] == "forks" and os.fork() == 0:  # holds all that the parent has open
            time.sleep(600)
        print(service._moto.pid, os.getpid(), flush=True)
        await asyncio.sleep(600)
if sys.argv[1] == "thread":
    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join()
else:
    asyncio.run(main())
"""


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("how", ["forks", "thread"])
def test_a_sigkilled_parent_leaves_no_moto(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVING, how], stdout=subprocess.PIPE, text=True
    ) as parent:
        children: list[psutil.Process] = []
        try:
            assert parent.stdout is not None
            moto = int(parent.stdout.readline().split()[0])
            assert lives(moto)
            children = psutil.Process(parent.pid).children()
            parent.send_signal(signal.SIGKILL)
            assert within(10.0, lambda: not lives(moto))
        finally:
            parent.kill()
            for child in children:
                if child.is_running():
                    child.kill()


def test_two_stores_share_nothing(store: Store, client: Any) -> None:
    client.put_object(Bucket=store.bucket, Key="mine", Body=b"x")
    with storing(region="eu-west-1", bucket="other.one") as other:
        theirs = other.client()
        assert [b["Name"] for b in theirs.list_buckets()["Buckets"]] == ["other.one"]
        theirs.put_object(Bucket="other.one", Key="theirs", Body=b"x")
        assert (store.keys(), other.keys()) == (["mine"], ["theirs"])
        moto = other.service._moto.pid
        large = b"0123456789abcdef" * 2_000_000
        theirs.put_object(Bucket="other.one", Key="large", Body=large)
        # It dies by itself: whoever asks is told so, and who looks after it learns why.
        with Connection(other) as connection:
            connection.send(head("GET", "/other.one/large", {}))
            assert connection.interim().startswith(b"HTTP/1.1 200 OK")
            os.kill(moto, signal.SIGKILL)
            assert within(10.0, lambda: not lives(moto))
            got = connection.received_until_it_breaks()
        assert len(got) < len(large)
        assert large.startswith(got)  # and no second head
        with Connection(other) as connection:
            answer = connection.ask("GET", "/other.one/theirs")
            assert (answer.status, answer.code) == (500, "InternalError")
        ended = other.service._moto._process
        assert within(10.0, lambda: ended is None or ended.returncode is not None)
        with pytest.raises(OSError, match="does not serve: it ended with -9; it said nothing"):
            other.call(other.service.check)
        with pytest.raises(OSError, match=r"did not answer GET /other\.one/theirs"):
            other.read("theirs")
    store.call(store.service.check)
    assert store.read("mine") == b"x"


def test_a_moto_that_does_not_start_is_said_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "moto").mkdir()
    (tmp_path / "moto" / "__init__.py").write_text("raise ImportError('broken on purpose')")

    async def main() -> None:
        async with Moto(environ={**os.environ, "PYTHONPATH": str(tmp_path)}):
            raise AssertionError("it started")

    with pytest.raises(OSError, match="exit code 1") as caught:
        asyncio.run(main())
    assert str(caught.value).splitlines()[-1] == "ImportError: broken on purpose"
    assert len(str(caught.value).splitlines()) < 20


def test_a_moto_that_is_too_slow_is_not_left_behind() -> None:
    async def main() -> int:
        moto = Moto(within_s=0.05)
        with pytest.raises(OSError, match=r"nothing in 0\.05 s; it said nothing"):
            await moto.__aenter__()
        return moto.pid

    assert not lives(asyncio.run(main()))


ELSEWHERE = """
import asyncio, json, os
import boto3
from chaosspot.services.s3 import S3Service
async def main():
    async with S3Service() as service:
        os.environ.update(service.environment("node-0"))
        def use():
            client = boto3.client("s3")
            client.put_object(Bucket=service.bucket, Key="k", Body=b"x")
            return client.get_object(Bucket=service.bucket, Key="k")["Body"].read().decode()
        print(json.dumps([await asyncio.to_thread(use), os.environ["no_proxy"]]))
        print(json.dumps(service.requests("node-0")))
asyncio.run(main())
"""


def test_no_setting_of_the_user_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nregion = nowhere\ns3 =\n  addressing_style = xx\n")
    nowhere = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:1")
    foreign = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
        "AWS_ACCESS_KEY_ID": "mine",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "MOTO_S3_CUSTOM_ENDPOINTS": "http://127.0.0.1:1",
        "S3_UPLOAD_PART_MIN_SIZE": "x",
        "NO_PROXY": "example.com",
    }
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        env={**os.environ, **nowhere, **foreign, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said, requests = done.stdout.splitlines()
    assert json.loads(said) == ["x", "example.com,127.0.0.1"]
    assert json.loads(requests) == 2


@pytest.mark.parametrize(
    "bucket",
    ["", "ab", "a" * 64, "Upper", "under_score", "-a-", "a..b", "10.0.0.1", "xn--abc", "a-s3alias"],
)
def test_a_bad_bucket_is_named_before_anything_starts(bucket: str) -> None:
    with pytest.raises(ValueError, match=f"^bucket={bucket!r}: expected the name of a bucket: "):
        S3Service(bucket=bucket)


def test_other_bad_values_and_what_is_not_running() -> None:
    with pytest.raises(ValueError, match="region='x y'"):
        S3Service(region="x y")
    service = S3Service()
    for act in (
        lambda: service.endpoint,
        lambda: service.reader,
        service.environment,
        service.check,
    ):
        with pytest.raises(RuntimeError, match="is not running"):
            act()


def test_an_address_that_is_taken_leaves_nothing(store: Store) -> None:
    port = int(store.service.endpoint.rsplit(":", 1)[1])
    service = S3Service(port=port)

    async def main() -> None:
        async with service:
            raise AssertionError("two listeners on one address")

    message = f"cannot listen on 127.0.0.1:{port}: address already in use"
    with pytest.raises(OSError, match=message):
        asyncio.run(main())
    assert not lives(service._moto.pid)


def test_a_nodes_credentials_are_its_own_and_always_the_same(store: Store) -> None:
    told = {
        node: store.call(lambda node=node: store.service.environment(node, environ={}))  # type: ignore[misc]
        for node in ("node-0", "node-1")
    }
    keys = {each["AWS_ACCESS_KEY_ID"] for each in told.values()}
    assert len(keys) == 2
    assert all(len(key) == 20 and key.startswith("AKIA") for key in keys)
    assert told["node-0"]["AWS_SECRET_ACCESS_KEY"] != told["node-1"]["AWS_SECRET_ACCESS_KEY"]
    assert store.call(lambda: store.service.environment("node-0", environ={})) == told["node-0"]
    assert told["node-0"]["AWS_ENDPOINT_URL_S3"] == store.service.endpoint
    behind = store.call(
        lambda: store.service.environment("node-0", endpoint="http://127.9.9.9:80", environ={})
    )
    changed = {"AWS_ENDPOINT_URL_S3": "http://127.9.9.9:80"}
    changed |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.9.9.9")
    assert behind == {**told["node-0"], **changed}
