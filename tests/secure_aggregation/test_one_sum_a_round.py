"""One sum a round: a server that plays it again, in parts or with others, gets no second one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.secure_aggregation.rehearsed_link import MemoryStore, make_link

from vitrail.secure_aggregation.server_steps import LostAttemptError, SecureRound
from vitrail.secure_aggregation.steps import KeyRequest, SurvivorRequest, UnmaskRequest

pytest.importorskip("cryptography")


class Server:
    """A lying server: who is asked to confirm, who unmasks, and whom each attempt is told of."""

    def __init__(self, link, colluders=()):
        self.link, self.colluders, self.sums = link, set(colluders), []

    def play(self, attempt, sites, asked, confirm=None):
        """One attempt at round 1; only `confirm` hear of the last two steps."""
        for name in self.colluders & set(sites):  # they forget what they agreed to
            self.link.sites[name] = replace(self.link.sites[name], store=MemoryStore())
        heard = set(sites if confirm is None else confirm)
        weights = dict.fromkeys({*sites, *asked}, 1.0)
        round_ = SecureRound("run", 1, "digest", weights, Deaf(self.link, heard))
        round_._asked = dict.fromkeys(sorted(asked), 1.0)
        try:
            result = round_._play(attempt, list(sites))
        except LostAttemptError:
            return
        self.sums.append(result.survivors)

    def find_compared(self):
        """Honest sites that are in two different sums."""
        seen, twice = {}, set()
        for survivors in self.sums:
            for site in set(survivors) - self.colluders:
                if seen.setdefault(site, survivors) != survivors:
                    twice.add(site)
        return twice


class Deaf:
    """A link on which some sites never hear of the last two steps."""

    def __init__(self, link, heard):
        self.link, self.heard = link, heard

    def exchange(self, requests):
        late = (SurvivorRequest, UnmaskRequest)
        return self.link.exchange(
            [r for r in requests if not isinstance(r, late) or r.site in self.heard]
        )

    def collect(self, requests, *rest):
        return self.link.collect(requests, *rest)


def test_three_of_ten_that_were_left_out_give_no_sum_of_their_own() -> None:
    """Seven unmasked the sum of ten, then the three that had not been asked to help gave a sum of
    three: the difference is a sum of seven, and the ledger had booked one release."""
    link = make_link(10)
    names, server = list(link.sites), Server(link)
    server.play(1, names, names, confirm=names[:7])
    assert server.sums == [tuple(names)]
    server.play(2, names[7:], names)
    server.play(2, names[7:], names[7:])  # as if the round had begun with three
    server.play(3, names[7:], names[7:])
    assert len(server.sums) == 1


def test_sites_that_were_in_a_round_do_not_add_up_with_others() -> None:
    link = make_link(14)
    names, server = list(link.sites), Server(link)
    server.play(1, names[:10], names[:10], confirm=names[:7])
    server.play(2, names[7:], names[7:])
    assert server.sums == [tuple(names[:10])]


def test_who_confirmed_is_in_no_other_attempt() -> None:
    """Six of ten confirm, too few to unmask; a second attempt with other survivors would let a
    server show two lists of survivors, each confirmed."""
    link = make_link(10)
    names, server = list(link.sites), Server(link)
    server.play(1, names, names, confirm=names[:6])
    told = link.sites[names[0]].answer(KeyRequest(names[0], 1, 2, "digest"))
    assert "confirmed already" in told.withheld
    server.play(2, names[:9], names)
    assert not server.sums


@pytest.mark.parametrize("seed", range(8))
def test_no_honest_site_is_in_two_sums_whatever_a_server_and_its_sites_try(seed) -> None:
    """Random attempts: who is asked, who the round is said to have begun with, who confirms; less
    than a third of the sites work for the server and forget what they agreed to."""
    draw = np.random.Generator(np.random.PCG64(seed))
    sums = 0

    def pick(names, least, always):
        size = int(draw.integers(least, len(names) + 1))
        return sorted({*draw.choice(names, size, replace=False).tolist(), *always})

    for _ in range(12):
        count = int(draw.integers(3, 10))
        link = make_link(count, 1)
        names = np.array(list(link.sites))
        colluders = draw.choice(names, -(-count // 3) - 1, replace=False).tolist()
        server = Server(link, colluders)
        for attempt in (1, 2, 2, 3, 3):
            sites = pick(names, 2, colluders)
            asked = pick(names, 2, colluders) if draw.random() < 0.5 else names.tolist()
            server.play(attempt, sites, {*asked, *sites}, pick(names, 1, colluders))
        sums += len(server.sums)
        assert not server.find_compared()
    assert sums > 0
