"""Checkpoints laid side by side: every format is read, and what differs is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chaosspot.conductor.weights import CheckpointError, arrays, compare, difference

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def save_torch(path: Path, state: Any) -> None:
    import torch

    torch.save(state, path)


def tensors() -> Any:
    import torch

    half = torch.ones(3, dtype=torch.bfloat16)
    return {
        "model": {"0.weight": torch.from_numpy(WEIGHT.copy()), "half": half},
        "optimizer": {"param_groups": [{"lr": 0.1, "params": [0, 1]}]},
        "step": 7,
    }


def test_every_format_is_read(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    np.save(tmp_path / "w.npy", WEIGHT)
    np.savez(tmp_path / "w.npz", weight=WEIGHT)
    save_file({"weight": WEIGHT}, tmp_path / "w.safetensors")
    (tmp_path / "w.json").write_text(json.dumps({"a": {"b": [1.5, 2.5]}, "name": "adam"}))
    save_torch(tmp_path / "w.pt", tensors())
    (tmp_path / "w.dat").write_bytes(b"\x01\x02")
    for name in ("w.npy", "w.npz", "w.safetensors"):
        assert [a.tolist() for a in arrays(tmp_path / name).values()] == [WEIGHT.tolist()]
    assert {k: v.tolist() for k, v in arrays(tmp_path / "w.json").items()} == {
        "a.b": [1.5, 2.5],
        "name": "adam",
    }
    found = arrays(tmp_path / "w.pt")
    assert list(found) == [
        "model.0.weight",
        "model.half",
        "optimizer.param_groups.0.lr",
        "optimizer.param_groups.0.params",
        "step",
    ]
    assert found["model.half"].tolist() == [1.0, 1.0, 1.0]
    assert arrays(tmp_path / "w.dat")["w.dat"].tolist() == [1, 2]


def test_a_directory_is_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "step-7" / "rank-0").mkdir(parents=True)
    np.save(tmp_path / "step-7" / "rank-0" / "w.npy", WEIGHT)
    assert list(arrays(tmp_path / "step-7")) == ["rank-0/w.npy:w"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.pt", None, "it does not exist"),
        ("torn.pt", b"PK\x03\x04 torn", "no whole file of torch.save"),
        ("torn.json", b'{"a": [1.0, ', "Expecting value"),
        ("torn.npy", b"\x93NUMPY", "EOF"),
        ("torn.npz", b"PK", "not a zip file|pickle"),
        ("torn.safetensors", b"\x01", "header|Error"),
    ],
)
def test_what_is_no_checkpoint_is_said(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        arrays(tmp_path / name)


def test_an_empty_directory_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="empty"):
        arrays(tmp_path)


def test_a_pickle_that_runs_code_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    save_torch(tmp_path / "evil.pt", {"w": Evil()})
    with pytest.raises(CheckpointError):
        arrays(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


def test_equal_checkpoints_differ_in_nothing() -> None:
    found = difference({"w": WEIGHT}, {"w": WEIGHT.copy()})
    assert (found.unequal, found.only_here, found.only_there, found.distance) == ((), (), (), 0.0)


def test_all_that_differs_is_counted() -> None:
    twin = {str(number): WEIGHT for number in range(50)}
    assert len(difference(dict.fromkeys(twin, WEIGHT + 1), twin).unequal) == 50
    assert len(difference({}, twin).only_there) == 50


def test_the_distance_is_relative_and_over_all_numbers() -> None:
    twin = {"a": np.array([3.0]), "b": np.array([4.0]), "name": np.asarray("adam")}
    found = difference({**twin, "b": np.array([4.5])}, twin)
    assert found.unequal == ("b",)
    assert found.distance == pytest.approx(0.5 / 5.0)


def test_beside_zeros_the_distance_is_absolute() -> None:
    assert difference({"a": np.array([2.0])}, {"a": np.array([0.0])}).distance == 2.0


def test_other_shapes_types_and_names_are_named_and_have_no_distance() -> None:
    found = difference(
        {"shape": np.zeros(2), "type": np.zeros(2), "here": np.zeros(1)},
        {"shape": np.zeros(3), "type": np.zeros(2, dtype=np.float32), "there": np.zeros(1)},
    )
    assert found.only_here == ("shape", "type", "here")
    assert found.only_there == ("shape", "type", "there")
    assert found.distance is None


def test_what_the_twin_cannot_show_either_is_not_the_runs_fault(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.npy", tmp_path / "bad.npy"
    np.save(good, WEIGHT)
    bad.write_bytes(b"?")
    assert compare("c", bad, good).problem
    both = compare("c", bad, bad)
    assert both.twin_problem
    assert not both.problem
    same = compare("c", good, good).difference
    assert same is not None
    assert same.arrays == 1


def test_ignored_names_may_differ(tmp_path: Path) -> None:
    for name, at in (("one", 1.0), ("other", 2.0)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"w": [1.0], "saved_at": at}))
    paths = tmp_path / "one.json", tmp_path / "other.json"
    plain = compare("c", *paths).difference
    ignoring = compare("c", *paths, ignore=["*_at"]).difference
    assert plain is not None
    assert plain.unequal == ("saved_at",)
    assert ignoring is not None
    assert (ignoring.arrays, ignoring.unequal) == (1, ())
