from pathlib import Path

import pytest

from chaosspot.settings import resolve
from chaosspot.toml import FileError


def test_the_command_line_goes_before_the_environment_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.chaosspot]\ntrainer = "filed"\nseed = 7\nruns = "here"'
    )
    got = resolve(
        {"trainer": "given", "seed": None},
        environ={"CHAOSSPOT_TRAINER": "set", "CHAOSSPOT_SEED": "8"},
        folder=tmp_path,
    )
    told = {name: (setting.value, setting.origin) for name, setting in got.items()}
    assert told == {
        "trainer": ("given", "command line"),
        "seed": (8, "CHAOSSPOT_SEED"),
        "runs": ("here", str(tmp_path / "pyproject.toml")),
        "cluster": ("processes", "default"),
        "image": (None, "default"),
    }


def test_the_nearest_file_above_is_read_and_one_without_our_table_is_passed(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "chaosspot.toml").write_text('trainer = "above"')
    (below / "pyproject.toml").write_text("[tool.other]\nx = 1")
    assert resolve({}, environ={}, folder=below)["trainer"].value == "above"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("chaosspot.toml", 'trainor = "x"', "unknown key 'trainor'; did you mean 'trainer'?"),
        ("chaosspot.toml", "seed = -1", "seed = -1"),
        ("pyproject.toml", "[tool.chaosspot]\nseed = 'x'", "tool.chaosspot: seed = 'x'"),
        ("pyproject.toml", "[tool", "pyproject.toml"),
    ],
)
def test_a_mistake_in_a_file_is_shown(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError) as caught:
        resolve({}, environ={}, folder=tmp_path)
    assert message in str(caught.value)


def test_a_mistake_in_a_variable_is_shown(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="CHAOSSPOT_SEED='many'"):
        resolve({}, environ={"CHAOSSPOT_SEED": "many"}, folder=tmp_path)
