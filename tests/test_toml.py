"""Errors in TOML files name what may stand there."""

from __future__ import annotations

import re

import pytest

from chaosspot import toml
from chaosspot.schedule import Schedule
from chaosspot.toml import FileError
from chaosspot.trainers import Trainer

KINDS = (
    "valid: kill, terminate, notice, kill-child, pause, slow, hold, disk-full, slow-flash, grow, "
    "misbehave, object-store, network, partition, out-of-memory, throttle-cpu, dns-gone"
)
FAULT = "[[fault]]\non = { at_s = 1.0 }\n"


@pytest.mark.parametrize(
    ("text", "into", "message"),
    [
        (
            f'{FAULT}kind = "kil"',
            Schedule,
            f"fault[0].kind = 'kil': {KINDS}; did you mean 'kill'?",
        ),
        (f'{FAULT}kind = "x"', Schedule, f"fault[0].kind = 'x': {KINDS}"),
        (f"{FAULT}kind = 3", Schedule, f"fault[0].kind = 3: {KINDS}"),
        (FAULT, Schedule, f"fault[0]: Object missing required field `kind`; {KINDS}"),
        (
            f'{FAULT}kind = "terminate"\nscope = "mian"',
            Schedule,
            "fault[0].scope = 'mian': valid: tree, main; did you mean 'main'?",
        ),
        (
            '[[cluster.group]]\ncount = 1\npool = "spt"',
            Schedule,
            "cluster.group[0].pool = 'spt': valid: spot, reserved; did you mean 'spot'?",
        ),
        (
            f'{FAULT}kind = "kill"\ntarget = {{ correlation = {{ kind = "beta" }} }}',
            Schedule,
            "fault[0].target.correlation.kind = 'beta': valid: beta-binomial, common-shock",
        ),
        (
            f'{FAULT}kind = "kill"\ntarget = {{ pool = "resrve" }}',
            Schedule,
            "fault[0].target.pool = 'resrve': valid: spot, reserved, any; did you mean 'reserved'?",
        ),
        (
            'command = ["x"]\n[promises]\nsamples = "twice"',
            Trainer,
            "promises.samples = 'twice': valid: exactly-once, at-least-once, none",
        ),
        (f'{FAULT}kind = "kill"\nonn = 1', Schedule, "unknown key 'onn' in 'fault[0]'"),
        ('[[fault]]\nkind = "kill"', Schedule, "fault[0]: Object missing required field `on`"),
        ("seed = -1", Schedule, "seed = -1: Expected `int` >= 0"),
        ('title = "a\\nb"', Schedule, "file: title has a control character: 'a\\nb'"),
        ('source = "\\u001b[2J"', Schedule, "file: source has a control character"),
        (f'{FAULT}kind = "kill"\ntarget = {{ nodes = ["a\\nb"] }}', Schedule, "target.nodes[0]"),
    ],
)
def test_an_error_says_what_may_stand_there(text: str, into: type, message: str) -> None:
    with pytest.raises(FileError, match=re.escape(message)):
        toml.loads(text, into)


def test_prose_may_have_several_lines() -> None:
    assert toml.loads('imitates = "a\\nb"', Schedule).imitates == "a\nb"
