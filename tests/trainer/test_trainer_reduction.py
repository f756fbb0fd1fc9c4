"""The sum is the same for every partition, and what does not fit is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosspot.trainer.config import TrainConfig
from chaosspot.trainer.reduction import ExactReduction, NotFiniteError
from chaosspot.trainer.state import TrainState

CPU = torch.device("cpu")
N = 7


def micro_shards(count: int, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-9, 4, (count, 1), generator=generator)
    gradients = torch.randn(count, N, generator=generator) * scale
    return [(g, g.abs().sum()) for g in gradients]


def reduced(
    shards: list[tuple[torch.Tensor, torch.Tensor]], owner: list[int]
) -> tuple[torch.Tensor, list[int], float]:
    """What all ranks hold after the all-reduce when ``owner[k]`` computed micro-shard k."""
    ranks = [ExactReduction(N, len(shards), CPU) for _ in range(max(owner) + 1)]
    for rank, reduction in enumerate(ranks):
        reduction.clear()
        for k in reversed(range(len(shards))):  # the order within a rank does not matter either
            if owner[k] == rank:
                reduction.add(k, *shards[k])
    total = sum(reduction.to_host().clone() for reduction in ranks)
    assert isinstance(total, torch.Tensor)
    ranks[0].buffer.copy_(total)
    gradient = torch.zeros(N)
    ranks[0].gradient_into(gradient)
    return gradient, ranks[0].samples(), ranks[0].loss()


@settings(max_examples=60)
@given(st.data(), st.integers(1, 9), st.integers(0, 1000))
def test_any_partition_gives_the_same_bits(data: st.DataObject, count: int, seed: int) -> None:
    shards = micro_shards(count, seed)
    alone = reduced(shards, [0] * count)
    owner = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    shared = reduced(shards, owner)
    assert torch.equal(alone[0], shared[0])
    assert alone[1:] == shared[1:]
    assert shared[1] == [1] * count


def test_it_is_the_mean() -> None:
    shards = micro_shards(8, 3)
    gradient, _, loss = reduced(shards, [0, 1, 2, 0, 1, 2, 0, 1])
    expected = torch.stack([g.double() for g, _ in shards]).mean(0)
    assert torch.allclose(gradient.double(), expected, rtol=1e-6, atol=1e-11)
    assert loss == pytest.approx(sum(float(x) for _, x in shards) / 8, rel=1e-9)


def test_lost_and_doubled_shards_show() -> None:
    reduction = ExactReduction(N, 3, CPU)
    (gradient, loss), *_ = micro_shards(1, 0)
    reduction.add(0, gradient, loss)
    reduction.add(0, gradient, loss)
    reduction.add(2, gradient, loss)
    assert reduction.samples() == [2, 0, 1]
    reduction.clear()
    assert reduction.samples() == [0, 0, 0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30, -1e7])
@pytest.mark.parametrize("where", ["gradient", "loss"])
def test_what_does_not_fit_is_an_error_and_adds_nothing(bad: float, where: str) -> None:
    reduction = ExactReduction(N, 8, CPU)
    gradient, loss = torch.ones(N), torch.ones(())
    (gradient if where == "gradient" else loss).view(-1)[0] = bad
    with pytest.raises(NotFiniteError, match=f"{where} of micro-shard 5"):
        reduction.add(5, gradient, loss)
    assert not reduction.buffer.any()


def test_the_largest_values_that_fit_do_not_overflow() -> None:
    shards = 8
    reduction = ExactReduction(N, shards, CPU)
    largest = torch.full((N,), 2.0**22 / shards * 0.99)
    for k in range(shards):
        reduction.add(k, largest, torch.ones(()))
    gradient = torch.zeros(N)
    reduction.gradient_into(gradient)
    assert torch.allclose(gradient, largest)


def tiny(**changes: object) -> TrainConfig:
    settings_ = {"width": 16, "layers": 1, "heads": 2, "seq_len_bytes": 8} | changes
    return TrainConfig(data=Path("unused"), steps=1, **settings_)  # type: ignore[arg-type]


def trained(state: TrainState, steps: int) -> TrainState:
    for _ in range(steps):
        rows = torch.arange(9).view(1, 9) + state.step
        state.gradient.zero_()
        state.model.loss(rows).backward()
        state.update()
    return state


def test_training_moves_the_parameters_the_model_computes_with() -> None:
    state = TrainState(tiny(learning_rate=0.05), CPU)
    rows = torch.arange(9).view(1, 9)
    before = state.model.loss(rows).item()
    for _ in range(20):
        state.gradient.zero_()
        state.model.loss(rows).backward()
        state.update()
    assert state.model.loss(rows).item() < before / 2


def test_the_update_is_adamw() -> None:
    state = TrainState(tiny(learning_rate=0.01), CPU)
    theirs = torch.nn.Parameter(state.parts()["parameters"].clone())
    optimizer = torch.optim.AdamW([theirs], lr=0.01)
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        gradient = torch.randn(state.n, generator=generator) * 10.0**-seed
        state.gradient.copy_(gradient)
        theirs.grad = gradient
        state.update()
        optimizer.step()
        assert torch.allclose(state.parts()["parameters"], theirs, rtol=1e-5, atol=1e-7)


def test_the_model_does_not_look_ahead() -> None:
    model = TrainState(tiny(), CPU).model
    one = torch.zeros(1, 8, dtype=torch.int64)
    two = one.clone()
    two[0, 5:] = 77
    assert torch.equal(model(one)[0, :5], model(two)[0, :5])
    assert not torch.equal(model(one)[0, 5:], model(two)[0, 5:])


def test_a_state_that_was_carried_over_goes_on_bit_for_bit() -> None:
    source = trained(TrainState(tiny(), CPU), 3)
    target = trained(TrainState(tiny(seed=9), CPU), 1)
    assert source.digest() != target.digest()
    target.load_state_dict(source.state_dict())
    assert source.digest() == target.digest()
    assert trained(source, 2).digest() == trained(target, 2).digest()


@pytest.mark.parametrize("part", ["parameters", "exp_avg", "exp_avg_sq"])
def test_one_bit_anywhere_changes_the_digest(part: str) -> None:
    state = trained(TrainState(tiny(), CPU), 1)
    before = state.digest()
    state.parts()[part].view(torch.int32)[11] ^= 1
    assert state.digest() != before


def test_position_and_random_state_are_in_the_digest() -> None:
    state = TrainState(tiny(), CPU)
    before = state.digest()
    state.step += 1
    assert state.digest() != before
    state.step -= 1
    assert state.digest() == before
    torch.rand(1)
    assert state.digest() != before
