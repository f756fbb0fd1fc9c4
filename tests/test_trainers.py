from pathlib import Path

import pytest

from chaosspot import content, toml, trainers
from chaosspot.toml import FileError
from chaosspot.trainers import Patterns, Trainer


def test_every_description_that_ships_can_be_read() -> None:
    for folder in ("fixtures/trainers", "suites/sick"):
        for name in content.names(folder):
            trainer = trainers.load(name)
            assert trainer.name == name
            assert trainer.title


def test_a_sick_trainer_names_its_bug_and_a_healthy_base() -> None:
    for name in content.names("suites/sick"):
        sick = trainers.load(name).sick
        assert sick is not None
        assert sick.bug
        assert trainers.load(sick.healthy).sick is None


def test_placeholders_are_filled_and_the_rest_is_left(tmp_path: Path) -> None:
    trainer = Trainer(
        command=("{python}", "--at", "{coordinator}"),
        python_path=("fixtures/trainers",),
        environment={"UPTO": "{steps}"},
    )
    values = trainers.values(coordinator="h:1", steps=9)
    assert trainer.argv(trainer.command, values)[1:] == ("--at", "h:1")
    surroundings = trainer.surroundings(values)
    assert surroundings["UPTO"] == "9"
    assert surroundings["PYTHONPATH"] == str(content.content_root() / "fixtures/trainers")


def test_a_trainer_does_not_inherit_what_it_was_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")
    got = Trainer(command=("x",)).surroundings(trainers.values(coordinator="", steps=1))
    assert not {"AWS_SECRET_ACCESS_KEY", "HTTP_PROXY"} & set(got)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('command = ["{pyton}"]', "pyton"),
        ('command = ["{"]', "placeholder"),
        ("command = []", "command = []"),
        ('command = ["x"]\npython_path = ["nowhere"]', "no directory 'nowhere'"),
        ('command = ["x"]\n[promises]\nexact = "yes"', "promises.exact = 'yes'"),
        ('command = ["x"]\n[promise]\n', "did you mean 'promises'?"),
        ('command = ["x"]\n[patterns]\ncommit = "("', "no regular expression"),
        ('command = ["x"]\n[patterns]\ncommit = "step"', "no group (?P<step>...)"),
        ('command = ["x"]\n[patterns]\ncommit = "(?P<step>.)(?P<node>.)"', "no field 'node'"),
        ('command = ["x"]\n[timeouts]\nstart_s = 0', "timeouts.start_s = 0"),
    ],
)
def test_a_mistake_in_a_description_gives_one_error(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        trainers.load(str(path))
    assert message in str(caught.value)


def test_patterns_read_progress_from_output() -> None:
    patterns = Patterns(
        commit=r"step (?P<step>\d+) loss (?P<loss>[\d.]+)", restore=r"resumed at (?P<step>\d+)"
    )
    assert patterns.parse("12:00 step 7 loss 0.25 ok") == {
        "event": "commit", "step": 7, "loss": 0.25,
    }  # fmt: skip
    assert patterns.parse("resumed at 5") == {"event": "restore", "step": 5}
    assert patterns.parse("hello") is None


def test_a_description_round_trips() -> None:
    trainer = trainers.load("minimal")
    assert toml.loads(toml.dumps(trainer), Trainer) == trainer
