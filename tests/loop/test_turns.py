"""Who sleeps and who is closed so that a model finds room on its devices."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.run.turns import FULL, MACHINE, Tenant, Turn, conflict, share_a_device, turn

GPU = frozenset({0})
SHARES = st.sampled_from([0.0, 0.1, 0.3, 0.45, 0.5, 0.9, 1.0])


@st.composite
def tenants(draw: st.DrawFn, name: str, *, asleep: bool | None = None) -> Tenant:
    """Draw a model on some of three cards, or on none."""
    can_sleep = draw(st.booleans())
    return Tenant(
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
def houses(draw: st.DrawFn) -> tuple[list[Tenant], Tenant, int]:
    """Draw models, as one after another came in, what is wanted next, and room for sleepers."""
    ram = draw(st.integers(0, 10))
    inside: list[Tenant] = []
    for number in range(draw(st.integers(0, 5))):
        newcomer = draw(tenants(f"model {number}", asleep=False))
        inside = [*after(inside, newcomer, turn(inside, newcomer, ram=ram)), newcomer]
    if inside and draw(st.booleans()):
        return inside, replace(draw(st.sampled_from(inside)), asleep=False), ram
    return inside, draw(tenants("wanted", asleep=False)), ram


def after(inside: list[Tenant], wanted: Tenant, moved: Turn) -> list[Tenant]:
    """Return who is left besides `wanted`, and how."""
    return [
        replace(t, asleep=t.asleep or t.name in moved.asleep)
        for t in inside
        if t.name not in moved.closed and t.name != wanted.name
    ]


@given(houses())
def test_whoever_is_wanted_finds_room(house: tuple[list[Tenant], Tenant, int]) -> None:
    inside, wanted, ram = house
    left = after(inside, wanted, turn(inside, wanted, ram=ram))
    for device in wanted.devices:
        there = [t for t in left if device in t.devices]
        taken = sum(t.trace if t.asleep else t.share for t in there)
        assert not there or taken + wanted.share <= FULL
    assert not any(conflict(t, wanted) for t in left if not t.asleep)


@given(houses())
def test_sleepers_fit_into_the_machines_memory(house: tuple[list[Tenant], Tenant, int]) -> None:
    inside, wanted, ram = house
    left = after(inside, wanted, turn(inside, wanted, ram=ram))
    assert sum(t.ram for t in left if t.asleep) <= ram
    assert all(t.can_sleep for t in left if t.asleep)


@given(houses())
def test_who_is_on_other_devices_or_in_nobodys_way_is_left_alone(
    house: tuple[list[Tenant], Tenant, int],
) -> None:
    inside, wanted, ram = house
    moved = turn(inside, wanted, ram=ram)
    gone = {*moved.asleep, *moved.closed}
    assert all(share_a_device(t, wanted) for t in inside if t.name in gone)
    left = after(inside, wanted, moved)
    assert turn(left, wanted, ram=ram) == Turn()
    assert wanted.name not in gone


@given(houses())
def test_nobody_is_closed_who_could_sleep(house: tuple[list[Tenant], Tenant, int]) -> None:
    inside, wanted, ram = house
    moved = turn(inside, wanted, ram=ram)
    for tenant in (t for t in inside if t.name in moved.closed and t.can_sleep and not t.asleep):
        slept = sum(t.ram for t in after(inside, wanted, moved) if t.asleep)
        traces = tenant.trace > 0 and not wanted.alone
        assert slept + tenant.ram > ram or traces or wanted.share + tenant.trace > FULL


def test_two_engines_share_a_card_while_their_shares_fit_together() -> None:
    policy, critic = (Tenant(name=n, devices=GPU, share=0.45, can_sleep=True) for n in "pc")
    assert not conflict(policy, critic)
    assert turn([policy], critic, ram=0) == Turn()
    assert conflict(policy, replace(critic, share=0.6))
    assert not conflict(policy, replace(critic, share=0.6, devices=frozenset({1})))


def test_who_was_used_longest_ago_gives_way_first_and_no_more_than_needed() -> None:
    first, second = (
        Tenant(name=n, devices=GPU, share=0.5, can_sleep=True) for n in ("first", "second")
    )
    wanted = Tenant(name="wanted", devices=GPU, share=0.5)
    assert turn([first, second], wanted, ram=0) == Turn(asleep=("first",))
    assert turn([second, first], wanted, ram=0) == Turn(asleep=("second",))


@pytest.mark.parametrize(("ram", "moved"), [(16, Turn(asleep=("m",))), (15, Turn(closed=("m",)))])
def test_a_model_that_the_machine_cannot_hold_asleep_is_closed(ram: int, moved: Turn) -> None:
    model = Tenant(name="m", devices=GPU, share=0.9, ram=16, can_sleep=True)
    assert turn([model], Tenant(name="training", devices=GPU, alone=True), ram=ram) == moved


def test_a_training_wants_its_cards_alone_but_for_the_traces_of_sleepers() -> None:
    training = Tenant(name="training", devices=GPU, alone=True, share=0.8)
    small = Tenant(name="small", devices=GPU, share=0.1, trace=0.05, can_sleep=True)
    beside = Tenant(name="beside", devices=frozenset({1}), share=0.9, can_sleep=True)
    assert turn([small, beside], training, ram=0) == Turn(asleep=("small",))
    sleepers = [replace(small, name=str(n), asleep=True, trace=0.08) for n in range(4)]
    assert turn(sleepers, training, ram=0) == Turn(closed=("0", "1"))


def test_on_a_machine_without_cards_all_stay_while_its_memory_holds_them() -> None:
    models = [Tenant(name=str(n), devices=frozenset({MACHINE}), share=0.3) for n in range(3)]
    wanted = Tenant(name="wanted", devices=frozenset({MACHINE}), share=0.1)
    assert turn(models, wanted, ram=0) == Turn()
    assert turn(models, replace(wanted, share=0.2), ram=0) == Turn(closed=("0",))


def test_what_is_served_elsewhere_is_in_nobodys_way() -> None:
    elsewhere = Tenant(name="endpoint", share=1.0, alone=True)
    here = Tenant(name="here", devices=GPU, share=1.0)
    assert not share_a_device(elsewhere, here)
    assert turn([elsewhere], here, ram=0) == Turn()
    assert turn([here], elsewhere, ram=0) == Turn()
