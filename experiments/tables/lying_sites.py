"""What a site that lies in its audit tables achieves, and whether it is noticed: a simulation.

`python -m experiments.tables.lying_sites [REPEATS]`. Gaussian features, three classes, 40 images of
each at each site; honest sites differ by 0.1 SD in every feature; a mark moves four by 3 SD.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from experiments.tables.markdown import to_markdown
from vitrail.audit.detection.class_summary import ClassSummary
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.exchange import Exchange, Pair, SiteFeatures
from vitrail.audit.detection.feature_layout import Unit
from vitrail.audit.detection.halves import split_halves
from vitrail.audit.detection.histogram import Counts, count_bins
from vitrail.audit.detection.told_consistency import check_told
from vitrail.rng import Key, derive_server_key

UNITS = (
    *(
        Unit("tone", "place", np.arange(4 * k, 4 * k + 4), (k / 8, 0, (k + 1) / 8, 1))
        for k in range(8)
    ),
    Unit("spectrum", "image-wide", np.arange(32, 40), joint=True),
)
CLASSES, IMAGES, LIAR, VICTIM, LABEL = 3, 40, "s0", "s1", 1
Sites = dict[str, SiteFeatures]
Told = dict[str, dict[Pair, Counts]]
Summaries = dict[str, ClassSummary]
Tell = Callable[[Exchange], Told]


def make_sites(count: int, marked: bool, key: Key) -> Sites:
    """Honest images; with `marked`, the liar's images of one class carry a mark."""
    sites = {}
    for at in range(count):
        draw = key.at("site", at).numpy()
        labels = np.repeat(np.arange(CLASSES), IMAGES).astype(np.int64)
        rows = draw.normal(0, 1, (len(labels), 40)) + 0.3 * labels[:, None]
        rows += 0.1 * draw.normal(0, 1, (CLASSES, 40))[labels]
        if marked and at == 0:
            rows[np.flatnonzero(labels == LABEL)[:, None], np.arange(8, 12)] += 3.0
        halves = split_halves(labels, None, key.at("halves", at))
        sites[f"s{at}"] = SiteFeatures(rows, labels, halves.a, halves.b, halves.group, CLASSES)
    return sites


def _clean(site: SiteFeatures) -> SiteFeatures:
    """The liar's images as they would be without the mark."""
    rows = site.features.copy()
    rows[np.flatnonzero(site.labels == LABEL)[:, None], np.arange(8, 12)] -= 3.0
    return replace(site, features=rows)


def tell_the_truth(sites: Sites) -> tuple[Summaries, Tell]:
    """Nobody lies."""
    summaries = {name: site.summarize(UNITS) for name, site in sites.items()}
    return summaries, lambda exchange: {n: s.count(exchange.directions) for n, s in sites.items()}


def hide_in_b(sites: Sites) -> tuple[Summaries, Tell]:
    """True means; the histograms of the marked class as if it were like everybody's."""
    summaries, tell = tell_the_truth(sites)

    def lie(exchange: Exchange) -> Told:
        told = tell(exchange)
        for pair in [pair for pair in told[LIAR] if pair[1] == LABEL]:
            told[LIAR][pair] = _clean(sites[LIAR]).count(exchange.directions)[pair]
        return told

    return summaries, lie


def hide_in_both(sites: Sites) -> tuple[Summaries, Tell]:
    """Both halves of images without the mark."""
    return tell_the_truth({**sites, LIAR: _clean(sites[LIAR])})


def frame_in_b(sites: Sites) -> tuple[Summaries, Tell]:
    """Asked along the victim's direction, the liar says that it lies far on the other side."""
    summaries, tell = tell_the_truth(sites)

    def lie(exchange: Exchange) -> Told:
        told = tell(exchange)
        for pair in [pair for pair in told[LIAR] if pair == (VICTIM, LABEL)]:
            size = int(told[LIAR][pair].sum())
            values = np.linspace(-9, -3, size)
            told[LIAR][pair] = count_bins(values)
        return told

    return summaries, lie


def frame_in_both(sites: Sites) -> tuple[Summaries, Tell]:
    """Both halves moved away from the victim's: the liar knows how the victim's class looks."""
    liar, victim = sites[LIAR], sites[VICTIM]
    rows = liar.features.copy()
    of_class = liar.labels == LABEL
    apart = victim.features[victim.labels == LABEL].mean(0) - rows[of_class].mean(0)
    rows[of_class] -= 6.0 * apart
    return tell_the_truth({**sites, LIAR: replace(liar, features=rows)})


def frame_together(sites: Sites) -> tuple[Summaries, Tell]:
    """The same by two sites that agreed."""
    victim = sites[VICTIM].features[sites[VICTIM].labels == LABEL].mean(0)
    moved = {}
    for name in (LIAR, list(sites)[-1]):
        rows = sites[name].features.copy()
        of_class = sites[name].labels == LABEL
        rows[of_class] -= 6.0 * (victim - rows[of_class].mean(0))
        moved[name] = replace(sites[name], features=rows)
    return tell_the_truth({**sites, **moved})


LIES: Mapping[str, tuple[bool, Callable[[Sites], tuple[Summaries, Tell]]]] = {
    "a mark, no lie": (True, tell_the_truth),
    "hides in B": (True, hide_in_b),
    "hides in A and B": (True, hide_in_both),
    "no mark, no lie": (False, tell_the_truth),
    "frames in B": (False, frame_in_b),
    "frames in A and B": (False, frame_in_both),
    "two frame in A and B": (False, frame_together),
}


def play(name: str, count: int, seed: int) -> tuple[list[Contrast], dict[str, str]]:
    """One federation and one lie: the contrasts, and who is doubted."""
    marked, lie = LIES[name]
    key = derive_server_key(seed).at("lies", count)
    summaries, tell = lie(make_sites(count, marked, key))
    exchange = Exchange(summaries, UNITS)
    told = tell(exchange)
    return exchange.compare(told, key.at("permutations")), check_told(exchange, told)


def measure(name: str, count: int, repeats: int) -> list[str]:
    """How often the liar's and the victim's class are biased, and who is noticed."""
    liar = victim = noticed = wrong = 0
    for seed in range(repeats):
        contrasts, doubts = play(name, count, seed)
        biased = {(c.site, c.label) for c in contrasts if c.verdict == "biased"}
        liar += (LIAR, LABEL) in biased
        victim += (VICTIM, LABEL) in biased
        noticed += LIAR in doubts
        wrong += bool(set(doubts) - {LIAR})
    cells = (liar, victim, noticed, wrong)
    return [name, str(count), *(f"{100 * cell / repeats:.0f} %" for cell in cells)]


def main(repeats: int) -> None:
    """Print the table."""
    rows = [measure(name, count, repeats) for name in LIES for count in (3, 4, 8)]
    head = ["", "sites", "liar's class `biased`", "victim's class `biased`"]
    print(to_markdown([*head, "liar noticed", "an honest site doubted"], rows))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
