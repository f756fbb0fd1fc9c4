"""Data is a pure function of the step, and a wrong file gives one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from chaosspot.trainer.__main__ import main, parse
from chaosspot.trainer.config import InputError, TrainConfig
from chaosspot.trainer.data import ByteData
from chaosspot.trainer.plan import Cadence


def open_data(path: Path, seq_len_bytes: int = 16, seed: int = 0) -> ByteData:
    return ByteData(path, seq_len_bytes=seq_len_bytes, rows=3, seed=seed)


def test_a_batch_depends_only_on_seed_step_and_shard(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 9)
    with open_data(path) as one, open_data(path) as two, open_data(path, seed=1) as other:
        two.batch(9, 1)  # what was read before does not matter
        batch = one.batch(7, 2)
        assert batch.dtype == torch.int64
        assert batch.shape == (3, 17)
        assert torch.equal(batch, two.batch(7, 2))
        assert not torch.equal(batch, one.batch(7, 3))
        assert not torch.equal(batch, one.batch(8, 2))
        assert not torch.equal(batch, other.batch(7, 2))
        start = one.offsets(7, 2)[0]
        assert batch[0].tolist() == list((bytes(range(256)) * 9)[start : start + 17])


def test_every_byte_of_a_small_file_is_in_reach(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 18)
    with open_data(path) as data:
        assert {o for step in range(20) for o in data.offsets(step, 0)} == {0, 1}


def test_the_smallest_file_that_works(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 17)
    with open_data(path) as data:
        assert data.batch(1, 0).shape == (3, 17)


def test_another_file_has_another_id(tmp_path: Path) -> None:
    ids = set()
    for name, content in (("a", b"x" * 40), ("b", b"x" * 41), ("c", b"y" * 40)):
        (tmp_path / name).write_bytes(content)
        with open_data(tmp_path / name) as data:
            ids.add(data.id)
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda path: None, "No such file", id="missing"),
        pytest.param(lambda path: path.mkdir(), "directory", id="directory"),
        pytest.param(lambda path: path.write_bytes(b""), "0 bytes", id="empty"),
        pytest.param(lambda path: path.write_bytes(b"x" * 16), "16 bytes", id="too small"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_name(tmp_path: Path, make, reason: str, capsys) -> None:
    path = tmp_path / "some-data"
    make(path)
    with pytest.raises(InputError) as caught:
        open_data(path)
    message = str(caught.value)
    assert reason.lower() in message.lower()
    assert "some-data" in message
    assert "\n" not in message
    code = main(["--data", str(path), "--steps", "1", "--seq-len", "16"])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.err.splitlines()[-1] == f"error: {message}"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--steps", "0"], "steps=0"),
        (["--steps", "1", "--width", "30", "--heads", "4"], "width=30"),
        (["--steps", "1", "--lr", "nan"], "learning_rate=nan"),
        (["--steps", "1", "--micro-shards", "-1"], "micro_shards=-1"),
    ],
)
def test_a_wrong_option_shows_its_value(options: list[str], shown: str, capsys) -> None:
    assert main(["--data", "unused", *options]) == 2
    assert shown in capsys.readouterr().err


def test_options_come_before_the_environment() -> None:
    environ = {
        "CHAOSSPOT_FLASH": "/env/flash",
        "CHAOSSPOT_STORE": "/env/store",
        "CHAOSSPOT_NODE": "node-7",
        "CHAOSSPOT_INCARNATION": "2",
        "TORCHFT_LIGHTHOUSE": "http://127.0.0.1:1",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.5:80",
    }
    config = parse(["--data", "d", "--steps", "3", "--store", "/own", "--no-digest"], environ)
    assert config == TrainConfig(
        data=Path("d"),
        steps=3,
        flash=Path("/env/flash"),
        store=Path("/own"),
        replica="node-7.2",
        lighthouse="http://127.0.0.1:1",
        metadata_endpoint="http://127.0.0.5:80",
        digest=False,
    )
    bare = parse(["--data", "d", "--steps", "3"], {})
    assert bare == TrainConfig(data=Path("d"), steps=3)
    aws = parse(["--data", "d", "--steps", "3", "--metadata", "aws"], {})
    assert aws.metadata_endpoint == "http://169.254.169.254"


def test_what_changes_the_trajectory_changes_the_job() -> None:
    base = TrainConfig(data=Path("d"), steps=1)
    longer = TrainConfig(data=Path("elsewhere"), steps=9, cadence=Cadence(steps=2))
    other = TrainConfig(data=Path("d"), steps=1, micro_shards=4)
    assert base.job_id("x") == longer.job_id("x")
    assert len({base.job_id("x"), base.job_id("y"), other.job_id("x")}) == 3
