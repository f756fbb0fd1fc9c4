from pathlib import Path

import pytest

from chaosspot import content


def test_content_folders_are_not_packages() -> None:
    """The import name ``fixtures`` belongs to another project."""
    root = content.content_root()
    for folder in ("faults", "suites", "fixtures"):
        assert (root / folder).is_dir()
        assert not list((root / folder).rglob("__init__.py"))


def test_a_name_is_looked_up_in_the_catalogue_and_a_path_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "sudden-kill.toml"
    mine.touch()
    monkeypatch.chdir(tmp_path)
    assert content.find("sudden-kill", "faults") == content.content_root() / (
        "faults/sudden-kill.toml"
    )
    assert content.find("sudden-kill.toml", "faults") == mine
    assert content.find("suites/sick/deaf", "faults").name == "deaf.toml"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("suden-kill", "did you mean 'sudden-kill'?"),
        ("zzz", "there are: anchor-loss, aws-two-minute-notice, "),
        ("./nowhere.toml", "no such file: './nowhere.toml'"),
        ("", "there are: "),
    ],
)
def test_a_name_that_is_nowhere_is_an_error_that_helps(name: str, message: str) -> None:
    with pytest.raises(content.ContentError) as caught:
        content.find(name, "faults")
    assert message in str(caught.value)
