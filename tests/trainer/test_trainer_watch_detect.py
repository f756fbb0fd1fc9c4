"""Which provider is watched: by the environment, by an option, by asking."""

from __future__ import annotations

import subprocess
import sys

import pytest
from skies import Sky

from chaosspot import misbehaviour as m
from chaosspot.services.metadata import AwsSettings
from chaosspot.trainer.__main__ import parse
from chaosspot.trainer.config import InputError
from chaosspot.trainer.watch.detect import LINK_LOCAL, DetectWatch, named
from chaosspot.trainer.watch.values import (
    Answer,
    Blind,
    Moment,
    Notice,
    Pace,
    Sighted,
    Trouble,
    Watch,
)

AWS = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.5:80"}
GCP = {"GCE_METADATA_HOST": "127.0.0.6:8080"}
AZURE = {"AZURE_METADATA_SERVICE_ENDPOINT": "http://127.0.0.7"}


@pytest.mark.parametrize(
    ("option", "environ", "provider", "endpoint"),
    [
        (None, {}, "aws", None),
        (None, {"GCE_METADATA_HOST": ""}, "aws", None),
        (None, AWS, "aws", "http://127.0.0.5:80"),
        (None, GCP, "gcp", "http://127.0.0.6:8080"),
        (None, AZURE, "azure", "http://127.0.0.7"),
        ("aws", {}, "aws", LINK_LOCAL),
        ("gcp", {}, "gcp", LINK_LOCAL),
        ("gcp", AWS | GCP | AZURE, "gcp", "http://127.0.0.6:8080"),
        ("azure", AWS, "azure", LINK_LOCAL),
        ("auto", {}, "auto", LINK_LOCAL),
        ("auto", AZURE, "azure", "http://127.0.0.7"),
    ],
)
def test_options_and_environment_choose_the_provider(
    option: str | None, environ: dict[str, str], provider: str, endpoint: str | None
) -> None:
    more = [] if option is None else ["--metadata", option]
    config = parse(["--data", "d", "--steps", "3", *more], environ)
    assert (config.metadata_provider, config.metadata_endpoint) == (provider, endpoint)


@pytest.mark.parametrize("more", [[], ["--metadata", "auto"]])
def test_two_services_in_the_environment_need_a_choice(more: list[str]) -> None:
    names = "AWS_EC2_METADATA_SERVICE_ENDPOINT and GCE_METADATA_HOST"
    with pytest.raises(InputError, match=f"{names} are set: .*--metadata"):
        parse(["--data", "d", "--steps", "3", *more], AWS | GCP)


def test_the_services_of_the_environment_are_what_the_watch_reads() -> None:
    for cloud, provider in (("aws", "aws"), ("gcp", "gcp"), ("azure", "azure")):
        sky = Sky(cloud)
        environ = sky.provider.environment("http://127.0.0.9:81")
        assert named(environ) == {provider: "http://127.0.0.9:81"}


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_the_provider_is_found_out_when_it_answers_at_last(cloud: str) -> None:
    sky = Sky(cloud, watch="auto")
    sky.misbehave(m.Status(status=503, lasts_s=45.0))
    sky.at(45.0, lambda: sky.misbehave(m.BlackHole(lasts_s=45.0)))
    sky.run(90.0)
    assert sky.of(Notice) == []
    assert [type(found) for _, found in sky.of(Blind, Trouble)] == [Trouble, Blind]
    sky.publish(120.0)
    sky.run(100.0)
    ((_, notice),) = sky.of(Notice)
    assert isinstance(notice, Notice)
    assert notice.provider == cloud
    assert [type(found) for _, found in sky.of(Sighted)] == [Sighted]


def test_a_page_for_every_request_is_no_provider() -> None:
    watch: Watch = DetectWatch.start(Pace(), Moment(now_s=0.0, wall_s=0.0))
    for _ in range(40):
        at = Moment(now_s=watch.ask.at_s, wall_s=watch.ask.at_s)
        page = Answer(status=200, body=b"<html>Sign in</html>", sent=at, received=at)
        watch, _ = watch.hear(page, 0.0)
    assert isinstance(watch, DetectWatch)
    assert watch.ask.at_s == pytest.approx(10 * Pace().interval_s), "four questions a poll"


def test_without_tokens_aws_is_found_out_by_an_instance_id() -> None:
    sky = Sky("aws", watch="auto", settings=AwsSettings(tokens_required=False, hops=1))
    sky.publish(120.0)
    sky.run(20.0)
    assert len(sky.of(Notice)) == 1


def test_the_machines_need_neither_sockets_nor_clocks() -> None:
    code = (
        "import sys; from chaosspot.trainer.watch import aws, azure, detect, gcp\n"
        "used = {n for m in (aws, azure, detect, gcp) for n in vars(m)}\n"
        "print(used & {'socket', 'time', 'random', 'threading', 'select'})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout == "set()\n", found.stderr
