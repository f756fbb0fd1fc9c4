"""The search on attacks that are predicates: what is found, how small, how often, and again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chaosspot.explore.budget import Budget
from chaosspot.explore.exploring import Exploration, Explorer
from chaosspot.explore.ground import ground_of
from chaosspot.explore.journal import Header, Journal, JournalError
from chaosspot.explore.trial import Strike, Trial, key_of, target_word, trigger_word
from chaosspot.schedule import Kill, Notice, Schedule
from chaosspot.trainers import Trainer
from chaosspot.verdict import Outcome

TRAINER = Trainer(name="made-up", command=("true",))
GROUND = ground_of("minimal", kinds=("kill", "notice", "terminate"), max_nodes=4)
POINTS = {"snapshot.before-rename": 6, "step.after-commit": 30}
Bad = Callable[[Schedule], bool]


class Attack:
    """An attack without processes: ``bad`` decides what fails."""

    def __init__(
        self, bad: Bad, *, recovery_s: Callable[[Schedule], float] = lambda _: 0.0
    ) -> None:
        self.bad = bad
        self.recovery_s = recovery_s
        self.made: list[tuple[str, Schedule]] = []
        self.unknown: set[int] = set()  # numbers of attacks that come to nothing

    def __call__(self, plan: Schedule, purpose: str) -> Trial:
        self.made.append((purpose, plan))
        outcome = Outcome.FAIL if self.bad(plan) else Outcome.PASS
        if len(self.made) - 1 in self.unknown:
            outcome = Outcome.UNKNOWN
        strikes = [
            Strike(
                kind=fault.kind,
                target=target_word(fault),
                trigger=trigger_word(fault.on),
                effect=True,
                step=fault.on.at_step or 5,
                phases=("write" if fault.on.point == "snapshot.before-rename" else "calm",),
            )
            for fault in plan.fault
        ]
        return Trial(
            outcome=outcome,
            oracle="progress" if outcome is Outcome.FAIL else "",
            strikes=tuple(strikes),
            points=POINTS,
            recovery_s=self.recovery_s(plan),
        )

    def schedules(self, *purposes: str) -> list[Schedule]:
        return [plan for purpose, plan in self.made if not purposes or purpose in purposes]


def explore(
    folder: Path, attack: Attack, *, budget: str = "300", seed: int = 1, resume: bool = False
) -> Exploration:
    path = folder / "journal.jsonl"
    if resume:
        journal = Journal.resume(path)
    else:
        journal = Journal.create(path, Header(trainer=TRAINER, ground=GROUND, seed=seed))
    with journal:
        explorer = Explorer(
            ground=GROUND, attack=attack, journal=journal, budget=Budget.parse(budget), seed=seed
        )
        return explorer.run()


def kills(plan: Schedule) -> list[Kill]:
    return [fault for fault in plan.fault if isinstance(fault, Kill)]


def in_a_save(plan: Schedule) -> bool:
    return any(fault.on.point == "snapshot.before-rename" for fault in kills(plan))


def two_together(plan: Schedule) -> bool:
    return len(kills(plan)) >= 2 and len(plan.cluster.nodes()) >= 3


def noticed_late(plan: Schedule) -> bool:
    return any(isinstance(f, Notice) and (f.on.at_step or 0) >= 7 for f in plan.fault)


@pytest.mark.parametrize("bad", [in_a_save, two_together, noticed_late])
@pytest.mark.parametrize("seed", [1, 2])
def test_what_fails_is_found_and_made_as_small_as_it_goes(
    tmp_path: Path, bad: Bad, seed: int
) -> None:
    attack = Attack(bad)
    result = explore(tmp_path, attack, seed=seed)
    found = result.found
    assert result.stopped == "found"
    assert found is not None
    assert bad(found.schedule)
    assert len(found.schedule.fault) == (2 if bad is two_together else 1)
    assert len(found.schedule.cluster.nodes()) == (3 if bad is two_together else 1)
    assert (found.replays, found.failed_again) == (5, 5)
    assert attack.schedules("replay") == [found.schedule] * 5
    if bad is noticed_late:
        assert found.schedule.fault[0].on.at_step == 7
    assert found.shrinks <= 40


def test_nothing_is_tried_twice(tmp_path: Path) -> None:
    attack = Attack(lambda plan: False)
    result = explore(tmp_path, attack, budget="120")
    assert result.stopped == "budget"
    assert result.attacks == len(attack.made) == 120
    assert len(set(map(key_of, attack.schedules()))) == 120


def test_one_seed_is_one_exploration_whatever_hashes_are(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import test_explore_exploring as t
attack = t.Attack(lambda plan: False, recovery_s=lambda plan: float(len(plan.fault)))
t.explore(Path(sys.argv[1]), attack, budget="40", seed=int(sys.argv[2]))
print([t.key_of(plan) for plan in attack.schedules()])
"""
    runs = []
    for number, (hashes, seed) in enumerate([("0", "1"), ("7", "1"), ("0", "2")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = [sys.executable, "-c", script, str(folder), seed]
        environ = {**os.environ, "PYTHONHASHSEED": hashes}
        runs.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
    told = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert told[0] == told[1]
    assert told[0] != told[2]


def test_an_unknown_is_tried_once_more_and_never_found(tmp_path: Path) -> None:
    attack = Attack(lambda plan: False)
    attack.unknown = {3, 4}
    result = explore(tmp_path, attack, budget="20")
    plans = list(map(key_of, attack.schedules()))
    assert plans[3] == plans[4]
    assert plans.count(plans[3]) == 2
    assert result.found is None
    assert not result.unconfirmed


def test_an_unknown_that_fails_the_second_time_is_found(tmp_path: Path) -> None:
    attack = Attack(lambda plan: bool(plan.fault))
    attack.unknown = {1}
    result = explore(tmp_path, attack)
    assert result.found is not None
    assert result.found.attacks == 3


def test_a_trainer_that_fails_undisturbed_is_not_attacked(tmp_path: Path) -> None:
    attack = Attack(lambda plan: True)
    result = explore(tmp_path, attack)
    assert result.stopped == "broken"
    assert result.undisturbed is not None
    assert attack.made == [("undisturbed", attack.made[0][1])]
    assert attack.made[0][1].fault == ()


def test_the_worst_recovery_is_kept_where_nothing_fails(tmp_path: Path) -> None:
    def recovery_s(plan: Schedule) -> float:
        return 2.0 * len(kills(plan)) + 0.1 * max((f.on.at_step or 0) for f in plan.fault or [0])

    attack = Attack(lambda plan: False, recovery_s=lambda p: recovery_s(p) if p.fault else 0.0)
    result = explore(tmp_path, attack, budget="150")
    assert result.worst is not None
    assert len(kills(result.worst.schedule)) == 3


def test_what_fails_by_chance_is_not_found_and_the_search_goes_on(tmp_path: Path) -> None:
    seen: list[str] = []

    def once(plan: Schedule) -> bool:
        seen.append(key_of(plan))
        return len(seen) == 5 or in_a_save(plan)

    result = explore(tmp_path, Attack(once))
    assert [found.failed_again for found in result.unconfirmed] == [0]
    assert result.found is not None
    assert in_a_save(result.found.schedule)


def test_what_fails_only_now_and_then_at_its_edge_is_backed_off_from(tmp_path: Path) -> None:
    asked: dict[str, int] = {}

    def edgy(plan: Schedule) -> bool:
        """Fails from step 8 on, and at steps 6 and 7 every other time."""
        key = key_of(plan)
        asked[key] = asked.get(key, 0) + 1
        step = max((fault.on.at_step or 0 for fault in kills(plan)), default=0)
        return step >= 8 or (step >= 6 and asked[key] % 2 == 1)

    attack = Attack(edgy)
    found = explore(tmp_path, attack).found
    assert found is not None
    assert found.schedule.fault[0].on.at_step == 8
    assert (found.replays, found.failed_again) == (5, 5)
    edge = [plan for plan in attack.schedules("shrink") if edgy(plan)]
    assert min(plan.fault[0].on.at_step or 0 for plan in edge) == 6


@pytest.mark.parametrize("after", [1, 9, 25, 40])
def test_after_a_kill_nothing_is_tried_twice_and_the_same_is_found(
    tmp_path: Path, after: int
) -> None:
    whole = Attack(two_together)
    (tmp_path / "whole").mkdir()
    wanted = explore(tmp_path / "whole", whole)

    class Killed(BaseException):
        pass

    class Dying(Attack):
        def __call__(self, plan: Schedule, purpose: str) -> Trial:
            if len(self.made) == after:
                raise Killed
            return super().__call__(plan, purpose)

    dying = Dying(two_together)
    with pytest.raises(Killed):
        explore(tmp_path, dying)
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"type":"attack","purpose":"sea')  # torn by the kill
    resumed = Attack(two_together)
    result = explore(tmp_path, resumed, resume=True)
    assert dying.made + resumed.made == whole.made
    assert result.found == wanted.found
    assert result.attacks == wanted.attacks


def test_the_budget_also_ends_shrinking_with_what_there_is(tmp_path: Path) -> None:
    whole = Attack(two_together)
    (tmp_path / "whole").mkdir()
    found = explore(tmp_path / "whole", whole).found
    assert found is not None
    result = explore(tmp_path, Attack(two_together), budget=str(found.attacks + 3))
    assert result.stopped == "budget"
    assert result.attacks == found.attacks + 3
    assert result.found is not None
    assert result.found.replays == 0


def test_a_time_budget_ends_it(tmp_path: Path) -> None:
    now = [0.0]
    attack = Attack(lambda plan: False)

    def slow(plan: Schedule, purpose: str) -> Trial:
        now[0] += 2.0
        return attack(plan, purpose)

    header = Header(trainer=TRAINER, ground=GROUND, seed=1)
    with Journal.create(tmp_path / "journal.jsonl", header) as journal:
        Explorer(
            ground=GROUND,
            attack=slow,
            journal=journal,
            budget=Budget.parse("1m"),
            seed=1,
            clock=lambda: now[0],
        ).run()
    assert len(attack.made) == 30


def test_when_all_has_been_tried_it_ends(tmp_path: Path) -> None:
    ground = ground_of("solo", kinds=("hold",), points=("a.b",))
    attack = Attack(lambda plan: False)

    def without_points(plan: Schedule, purpose: str) -> Trial:
        trial = attack(plan, purpose)
        strikes = tuple(
            Strike(kind=s.kind, target="any", trigger="x", step=1) for s in trial.strikes
        )
        return Trial(outcome=trial.outcome, strikes=strikes, points={"a.b": 1})

    header = Header(trainer=TRAINER, ground=ground, seed=1)
    with Journal.create(tmp_path / "journal.jsonl", header) as journal:
        result = Explorer(
            ground=ground,
            attack=without_points,
            journal=journal,
            budget=Budget.parse("500"),
            seed=1,
        ).run()
    assert result.stopped == "exhausted"
    assert result.attacks < 100


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"type":"attack"}\n', b"\xff\n", b"[1]\n"])
def test_a_damaged_journal_is_one_clear_error(tmp_path: Path, line: bytes) -> None:
    explore(tmp_path, Attack(lambda plan: False), budget="3")
    path = tmp_path / "journal.jsonl"
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + line + b"".join(others))
    with pytest.raises(JournalError, match=r"journal\.jsonl:2"):
        Journal.resume(path)


def test_only_one_at_a_time_explores(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with (
        Journal.create(path, Header(trainer=TRAINER, ground=GROUND, seed=1)),
        pytest.raises(JournalError, match="in use"),
    ):
        Journal.resume(path)
    with pytest.raises(JournalError, match="is no exploration"):
        Journal.resume(tmp_path / "other.jsonl")


@pytest.mark.parametrize("text", ["0", "0m", "-3", "ten", "5d", "", "1.5h"])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="budget"):
        Budget.parse(text)
