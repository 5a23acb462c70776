"""Models that sleep or close so that another fits on its devices."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.run.loaded_models import FULL, Allocation, Turn, share_a_device, turn

GPU = frozenset({0})
SHARES = st.sampled_from([0.0, 0.1, 0.3, 0.45, 0.5, 0.9, 1.0])


def conflict(one: Allocation, other: Allocation) -> bool:
    """Whether two models cannot be awake at the same time."""
    alone = one.alone or other.alone
    return share_a_device(one, other) and (alone or one.share + other.share > FULL)


@st.composite
def allocations(draw: st.DrawFn, name: str, *, asleep: bool | None = None) -> Allocation:
    """Draw a model on some of three cards, or on no card."""
    can_sleep = draw(st.booleans())
    return Allocation(
        name=name,
        devices=frozenset(draw(st.sets(st.integers(0, 2)))),
        share=draw(SHARES),
        trace=draw(st.sampled_from([0.0, 0.05, 0.1])),
        ram=draw(st.integers(0, 5)),
        alone=draw(st.booleans()),
        can_sleep=can_sleep,
        asleep=draw(st.booleans()) and can_sleep if asleep is None else asleep,
    )


@st.composite
def loaded_models(draw: st.DrawFn) -> tuple[list[Allocation], Allocation, int]:
    """Draw models in loading order, the next model, and the RAM for sleeping models."""
    ram = draw(st.integers(0, 10))
    loaded: list[Allocation] = []
    for number in range(draw(st.integers(0, 5))):
        model = draw(allocations(f"model {number}", asleep=False))
        loaded = [*after(loaded, model, turn(loaded, model, ram=ram)), model]
    if loaded and draw(st.booleans()):
        return loaded, replace(draw(st.sampled_from(loaded)), asleep=False), ram
    return loaded, draw(allocations("wanted", asleep=False)), ram


def after(loaded: list[Allocation], wanted: Allocation, moved: Turn) -> list[Allocation]:
    """Return the other models that stay loaded, asleep or not."""
    return [
        replace(t, asleep=t.asleep or t.name in moved.asleep)
        for t in loaded
        if t.name not in moved.closed and t.name != wanted.name
    ]


@given(loaded_models())
def test_wanted_finds_room(given: tuple[list[Allocation], Allocation, int]) -> None:
    loaded, wanted, ram = given
    moved = turn(loaded, wanted, ram=ram)
    left = after(loaded, wanted, moved)
    for device in wanted.devices:
        there = [t for t in left if device in t.devices]
        taken = sum(t.trace if t.asleep else t.share for t in there)
        assert not there or taken + wanted.share <= FULL
    assert not any(conflict(t, wanted) for t in left if not t.asleep)
    assert sum(t.ram for t in left if t.asleep) <= ram
    assert all(t.can_sleep for t in left if t.asleep)
    gone = {*moved.asleep, *moved.closed}
    assert all(share_a_device(t, wanted) for t in loaded if t.name in gone)
    assert turn(left, wanted, ram=ram) == Turn()
    assert wanted.name not in gone


def test_two_engines_share_a_card() -> None:
    policy, critic = (Allocation(name=n, devices=GPU, share=0.45, can_sleep=True) for n in "pc")
    assert not conflict(policy, critic)
    assert turn([policy], critic, ram=0) == Turn()
    assert conflict(policy, replace(critic, share=0.6))
    assert not conflict(policy, replace(critic, share=0.6, devices=frozenset({1})))


def test_least_recently_used_gives_way() -> None:
    first, second = (
        Allocation(name=n, devices=GPU, share=0.5, can_sleep=True) for n in ("first", "second")
    )
    wanted = Allocation(name="wanted", devices=GPU, share=0.5)
    assert turn([first, second], wanted, ram=0) == Turn(asleep=("first",))
    assert turn([second, first], wanted, ram=0) == Turn(asleep=("second",))
    model = Allocation(name="m", devices=GPU, share=0.9, ram=16, can_sleep=True)
    training = Allocation(name="training", devices=GPU, alone=True)
    assert turn([model], training, ram=16) == Turn(asleep=("m",))
    assert turn([model], training, ram=15) == Turn(closed=("m",))
