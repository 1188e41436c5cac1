"""The budget for requests and answers: who is let in, who waits, who is cut off."""

from collections.abc import Sequence

import pytest

from holdfast.rpc.core.memory import (
    ANSWER_LEAST_BYTES,
    LITTLE_HELD_BYTES,
    SLOW_MS,
    STALLED_MS,
    STARVED_MS,
    Account,
    Charge,
    CutOff,
    CutReason,
    Effect,
    MemoryBudget,
    Pool,
    Retry,
    cost_of,
)

KIB, MIB = 1 << 10, 1 << 20
LIMIT = 128 * MIB


class Bench:
    """A budget of 128 MiB: 64 for large requests, 16 for modest ones, 8 for little ones, 8 for members, and
    32 for answers."""

    def __init__(self) -> None:
        self.budget = MemoryBudget(LIMIT)
        self.now_ms = 0

    def begin(self, cost_bytes: int, account: Account | None = None) -> tuple[Account, Charge | None]:
        """A connection whose request has begun to arrive, if there was room."""
        account = account or self.budget.open()
        charge = self.budget.admit(account, cost_bytes, self.now_ms)
        if charge is not None:
            self.budget.arriving(account, charge, self.now_ms)
        return account, charge

    def fill(self, cost_bytes: int, pool: Pool) -> list[Account]:
        """Connections with a request each, until this pool is full."""
        found: list[Account] = []
        while True:
            account, charge = self.begin(cost_bytes)
            if charge is None or charge.pool is not pool:
                if charge is not None:
                    self.budget.arrived(account)
                    self.budget.release(account, charge)
                self.budget.close(account)
                return found
            found.append(account)

    def unread(self, size_bytes: int, account: Account | None = None) -> tuple[Account, Sequence[Effect]]:
        account = account or self.budget.open()
        return account, self.budget.note_unread(account, size_bytes, self.now_ms)

    def check_after(self, duration_ms: int) -> Sequence[Effect]:
        self.now_ms += duration_ms
        return self.budget.check(self.now_ms)


def cut(reason: CutReason, *accounts: Account) -> list[CutOff]:
    return [CutOff(account.account_id, reason) for account in accounts]


@pytest.mark.parametrize(
    ("cost_bytes", "pool"),
    [(1, Pool.LITTLE), (16 * KIB, Pool.LITTLE), (16 * KIB + 1, Pool.MODEST), (5 * MIB, Pool.LARGE)],
)
def test_a_request_has_the_pool_of_its_size(cost_bytes: int, pool: Pool) -> None:
    _, charge = Bench().begin(cost_bytes)
    assert charge == Charge(pool, cost_bytes)


def test_a_body_counts_as_what_it_takes_unpacked() -> None:
    assert cost_of(100, 60) == 100
    assert cost_of(1_100_000, 1 * MIB) > 20 * MIB


def test_large_requests_leave_room_for_modest_and_little_ones() -> None:
    bench = Bench()
    assert len(bench.fill(20 * MIB, Pool.LARGE)) == 3
    assert bench.begin(20 * MIB)[1] is None
    assert len(bench.fill(1 * MIB, Pool.MODEST)) == 16
    assert bench.begin(1 * KIB)[1] is not None


def test_a_smaller_request_takes_the_room_of_larger_ones_when_its_own_pool_is_full() -> None:
    bench = Bench()
    bench.fill(1 * MIB, Pool.MODEST)
    _, charge = bench.begin(1 * MIB)
    assert charge is not None
    assert charge.pool is Pool.LARGE


def test_a_connection_with_many_little_requests_does_not_fill_the_pool_of_the_little_ones() -> None:
    bench = Bench()
    greedy = bench.budget.open()
    for _ in range(2 * LITTLE_HELD_BYTES // KIB):
        assert bench.budget.admit(greedy, KIB, 0) is not None
    assert bench.budget.used_bytes[Pool.LITTLE] == LITTLE_HELD_BYTES
    assert greedy.held_bytes == 2 * LITTLE_HELD_BYTES


def test_one_request_larger_than_the_largest_pool_takes_all_of_it() -> None:
    _, charge = Bench().begin(LIMIT)
    assert charge == Charge(Pool.LARGE, LIMIT // 2)


def test_room_that_is_given_back_wakes_those_that_fit() -> None:
    bench = Bench()
    (holder, charge), _ = bench.begin(40 * MIB), bench.begin(20 * MIB)
    large, _ = bench.begin(60 * MIB)
    small, _ = bench.begin(30 * MIB)
    assert charge is not None
    assert bench.budget.release(holder, charge) == [Retry(small.account_id)]
    assert bench.begin(30 * MIB, small)[1] is not None
    assert bench.budget.waiting_count == 1
    assert large.wanted_bytes == 60 * MIB


def test_a_closed_connection_gives_back_what_was_arriving_but_not_what_has_no_answer_yet() -> None:
    bench = Bench()
    account, charge = bench.begin(30 * MIB)
    assert bench.budget.arrived(account) == charge
    bench.begin(20 * MIB, account)
    bench.budget.close(account)
    assert bench.budget.used_bytes[Pool.LARGE] == 30 * MIB
    assert charge is not None
    bench.budget.release(account, charge)
    assert bench.budget.used_bytes[Pool.LARGE] == 0


def test_members_have_room_when_strangers_have_taken_all_of_theirs() -> None:
    bench = Bench()
    for size in (4 * MIB + 1, 1 * MIB, 16 * KIB, 1 * KIB):
        while bench.begin(size)[1] is not None:
            pass
    member = bench.budget.open()
    assert bench.budget.admit(member, 1 * KIB, 0) is None
    bench.budget.vouch(member)
    assert bench.budget.admit(member, 1 * KIB, 0) == Charge(Pool.MEMBERS, 1 * KIB)


# --- slow senders -----------------------------------------------------------------------------------------


def test_while_no_other_waits_a_slow_sender_has_its_time() -> None:
    bench = Bench()
    bench.fill(20 * MIB, Pool.LARGE)
    assert not bench.budget.is_contended
    assert bench.check_after(2 * SLOW_MS) == []


def test_senders_that_stopped_within_a_request_are_cut_off_when_others_wait() -> None:
    bench = Bench()
    stalled = bench.fill(20 * MIB, Pool.LARGE)
    waiting, _ = bench.begin(20 * MIB)
    assert bench.budget.is_contended
    assert bench.check_after(STALLED_MS - 1) == []
    stalled[1].heard_ms = bench.now_ms
    assert bench.check_after(1) == cut(CutReason.SLOW_SENDER, stalled[0], stalled[2])
    assert bench.budget.close(stalled[0]) == [Retry(waiting.account_id)]


def test_a_sender_that_trickles_is_cut_off_in_the_end() -> None:
    bench = Bench()
    (trickling, *_) = bench.fill(20 * MIB, Pool.LARGE)
    bench.begin(20 * MIB)
    for _ in range(SLOW_MS // 500 - 1):
        trickling.heard_ms = bench.now_ms
        assert CutOff(trickling.account_id, CutReason.SLOW_SENDER) not in bench.check_after(500)
    trickling.heard_ms = bench.now_ms
    assert CutOff(trickling.account_id, CutReason.SLOW_SENDER) in bench.check_after(500)


def test_a_member_is_not_cut_off_for_being_slow() -> None:
    bench = Bench()
    member, _ = bench.begin(40 * MIB)
    bench.budget.vouch(member)
    bench.begin(40 * MIB)
    assert bench.check_after(SLOW_MS) == []


def test_when_no_one_is_slow_and_others_starve_the_greediest_is_cut_off() -> None:
    """Requests that arrived whole and are not answered."""
    bench = Bench()
    small, large = bench.begin(21 * MIB)[0], bench.begin(41 * MIB)[0]
    bench.budget.arrived(small)
    bench.budget.arrived(large)
    bench.begin(20 * MIB)
    assert bench.check_after(STARVED_MS - 1) == []
    assert bench.check_after(1) == cut(CutReason.NO_MEMORY, large)


def test_bytes_without_room_are_bounded_too() -> None:
    bench = Bench()
    largest = bench.budget.open()
    assert bench.budget.note_backlog(largest, 300 * KIB) == ()
    effects: Sequence[Effect] = ()
    for _ in range(63):
        assert effects == ()
        effects = bench.budget.note_backlog(bench.budget.open(), 256 * KIB)
    assert effects == cut(CutReason.NO_MEMORY, largest)
    bench.budget.close(largest)
    assert bench.budget.backlog_bytes == 63 * 256 * KIB


# --- answers ----------------------------------------------------------------------------------------------


def test_each_answer_may_have_half_of_what_is_left() -> None:
    bench = Bench()
    rooms = []
    for _ in range(10):
        account = bench.budget.open()
        rooms.append(bench.budget.room_for_answer(account))
        bench.unread(rooms[-1], account)
    assert rooms[:3] == [16 * MIB, 8 * MIB, 4 * MIB]
    assert rooms[-1] == 0
    assert sum(rooms) <= 32 * MIB
    assert min(filter(None, rooms)) >= ANSWER_LEAST_BYTES


def test_a_request_for_a_large_answer_waits_until_others_took_theirs() -> None:
    bench = Bench()
    slow, _ = bench.unread(33 * MIB)
    waiting = bench.budget.open()
    assert not bench.budget.may_be_answered(waiting, 0)
    assert bench.unread(20 * MIB, slow)[1] == [Retry(waiting.account_id)]
    assert bench.budget.may_be_answered(waiting, 0)
    assert bench.budget.waiting_count == 0


def test_readers_that_take_nothing_are_cut_off_once_half_of_the_room_is_gone() -> None:
    bench = Bench()
    idle, _ = bench.unread(10 * MIB)
    assert bench.check_after(SLOW_MS) == []
    reading, _ = bench.unread(10 * MIB)
    bench.now_ms += STALLED_MS
    bench.unread(9 * MIB, reading)
    assert bench.check_after(0) == cut(CutReason.SLOW_READER, idle)


def test_a_reader_that_trickles_is_cut_off_in_the_end() -> None:
    bench = Bench()
    trickling, _ = bench.unread(20 * MIB)
    for second in range(1, SLOW_MS // 1_000):
        bench.now_ms = 1_000 * second
        bench.unread(20 * MIB - second, trickling)
        assert bench.check_after(0) == []
    assert bench.check_after(1_000) == cut(CutReason.SLOW_READER, trickling)


def test_twice_the_room_is_never_passed() -> None:
    """Answers that were asked for before, and are made all at once."""
    bench = Bench()
    large, _ = bench.unread(40 * MIB)
    assert bench.unread(20 * MIB)[1] == ()
    assert bench.unread(5 * MIB)[1] == cut(CutReason.NO_MEMORY, large)


def test_what_members_have_not_taken_is_counted_apart() -> None:
    bench = Bench()
    member, _ = bench.unread(30 * MIB)
    bench.budget.vouch(member)
    assert bench.budget.unread_bytes == (0, 30 * MIB)
    assert bench.budget.room_for_answer(bench.budget.open()) == 16 * MIB
    bench.budget.close(member)
    assert bench.budget.unread_bytes == (0, 0)
