"""The section on the audit: verdicts by site and class, the place, counterfactuals, readings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from vitrail.report.audit_figures import empty_frame
from vitrail.report.audit_words import NEITHER, p_text
from vitrail.report.document.account import AUDIT, Account
from vitrail.report.document.block import Block, Choice, Figure, Folded, Missing
from vitrail.report.document.chart_matrix import Cell, matrix
from vitrail.report.document.chart_rows import Dot, dots
from vitrail.report.document.markup import Html, el, join, say
from vitrail.report.document.scale import figure, percent
from vitrail.report.document.scene import Scene
from vitrail.report.document.sights import Sight, pictures
from vitrail.report.document.signs import key, mark, sign_of
from vitrail.report.document.table import Column, Table

Found = Mapping[str, Any]
_DOUBTED = 4  # findings that are told at length


def auditing(account: Account, sights: Sequence[Sight]) -> tuple[Block, ...]:
    """What the audit's file says; `sights` are pictures that the reader may see."""
    found = account.found.get(AUDIT)
    if found is None:
        return (
            Missing(
                say(
                    "No audit was made of this run. {} says which site taught the model something "
                    "it should not know; it needs a model with parts and at least two sites.",
                    el("code", f"vitrail audit {account.name}"),
                )
            ),
        )
    doubted = sorted(
        (f for f in findings(found) if f["verdict"] != "clear"), key=lambda f: -f["score"]
    )
    return (
        _headline(found, doubted),
        _matrix(account, found),
        key(),
        *(_finding(account, one, sights) for one in doubted[:_DOUBTED]),
        *_sights(account, sights, doubted),
        *_alarm(account, found),
        Folded("Every class of every site, in numbers", _table(account, found)),
        _meaning(found),
    )


def findings(found: Found) -> list[dict[str, Any]]:
    """All findings of an audit, each with its site."""
    return [{**one, "site": site["site"]} for site in found["sites"] for one in site["classes"]]


def verdict_of(found: Found) -> tuple[str, Html]:
    """The verdict on the whole, and the sentence that says it."""
    every = findings(found)
    if not every:
        return "clear", say("Nothing could be tested: too few images of each class.")
    worst = max(
        every, key=lambda f: (f["verdict"] == "biased", f["verdict"] != "clear", f["score"])
    )
    if worst["verdict"] == "biased":
        return "biased", say("Bias found: {} at {}", worst["class"], worst["site"])
    if worst["verdict"] == "suspect":
        told = "Nothing certain, but a suspicion: {} at {}"
        return "suspect", say(told, worst["class"], worst["site"])
    return "clear", say("No bias seen ({} tests, one for each class of each site)", len(every))


def _headline(found: Found, doubted: Sequence[Found]) -> Html:
    verdict, words = verdict_of(found)
    told = None
    if not doubted and findings(found):
        told = el(
            "p",
            "At no place of the image, nor in it as a whole, does a class stand out at one site as "
            "it does at no other. That is no proof that there is no bias: weak marks and small "
            "sites are missed.",
        )
    return join([el("p", mark(verdict, words), class_="headline"), told])


def _matrix(account: Account, found: Found) -> Figure:
    sites = [site["site"] for site in found["sites"]]
    classes = list(account.run.classes)
    known = {(f["site"], f["class"]): f for f in findings(found)}
    cells = [[_cell(known.get((site, name))) for name in classes] for site in sites]

    def draw(width: float) -> Scene:
        return matrix(sites, classes, cells, "Verdicts by site and class", width)

    told = say(
        "The score of each class at each site: how much better some place of the image, alone, "
        "tells the class there than at the other sites, in standard errors. Empty: too few images."
    )
    return Figure(f"{account.name}-audit", told, draw)


def _cell(finding: Found | None) -> Cell:
    if finding is None:
        return Cell(None, "", "not tested")
    sign, role = sign_of(finding["verdict"])
    score = figure(finding["score"], 1)
    return Cell(0.0, score, f"{finding['verdict']}, score {score}", sign, role)


def _finding(account: Account, one: Found, sights: Sequence[Sight]) -> Html:
    """One doubted class at length: what, where, how sure, what follows, both readings."""
    facts = [
        ("Site", el("b", one["site"])),
        ("Class", el("b", one["class"])),
        ("Place", one["where"]),
        (
            "What stands out",
            say(
                "by this place alone the class is told from others with an area under the curve "
                "of {} here and {} at the other sites (0.5 is chance)",
                el("b", figure(one["here"], 2)),
                figure(one["elsewhere"], 2),
            ),
        ),
        ("How sure", say("p {}, corrected for all tests", p_text(one["p_value"]))),
        ("Without the place", _covered(one)),
        ("Put into other images", _swapped(one)),
        ("What to do", say("{}. People decide, not this page.", el("b", one["action"]))),
    ]
    if one.get("prototypes"):
        units = ", ".join(str(unit) for unit in one["prototypes"])
        facts.insert(-1, ("Looked at by", f"parts {units} of the shared model"))
    rows = [part for name, text in facts for part in (el("dt", name), el("dd", text))]
    shown = any(s.site == one["site"] and s.label == one["class"] for s in sights)
    place = None if shown else _place(account, one)
    head = el("h3", mark(one["verdict"], f"{one['class']} at {one['site']}"))
    return join([head, place, el("dl", *rows, class_="facts"), _readings(one)])


def _place(account: Account, one: Found) -> Html | None:
    """Where the place lies, in a frame without a pixel of any image."""
    side = int(account.run.card["image_size"])
    box = one.get("box")
    if box is None:
        return None
    width, height = max(side, *box[0::2]), max(side, *box[1::2])
    x0, y0, x1, y1 = (int(v) for v in box)
    label = f"the place in an empty frame: pixels {x0} to {x1} across, {y0} to {y1} down"
    drawn = Html(empty_frame((height, width), [], (x0, y0, x1, y1), label))
    caption = el("figcaption", "The place, in a frame of the image's size. The image is not shown.")
    return el("div", el("figure", drawn, caption), class_="grid")


def _covered(one: Found) -> Html:
    parts = []
    for name, words in (("local", "the site's own model"), ("shared", "the shared model")):
        told = one["covered"][name]
        parts.append(
            say(
                "{} is right in {} of the images of the class instead of {}",
                words,
                el("b", percent(told["without"], 0)),
                percent(told["accuracy"], 0),
            )
        )
    return join(parts, "; ")


def _swapped(one: Found) -> Html:
    moved = one["flipped"]
    return say(
        "{} more of them are taken for the class by the site's own model, {} by the shared one",
        el("b", percent(moved["local"], 0)),
        el("b", percent(moved["shared"], 0)),
    )


def _readings(one: Found) -> Html:
    """Both readings, and which of them the numbers support."""
    told = {
        "shortcut": (
            "A shortcut",
            "The class is told by a mark that has nothing to do with it. Losing more than half of "
            "its right answers when the place is covered speaks for this reading.",
        ),
        "minority": (
            "A minority",
            "The feature is real and seen at this site only. Keeping at least three quarters of "
            "its right answers without it, because the model knows more, speaks for this reading.",
        ),
    }
    cards = []
    for name, (title, text) in told.items():
        yes = one["reading"] == name
        head = f"{title}: what the numbers support" if yes else title
        cards.append(el("div", el("h4", head), text, class_="yes" if yes else None))
    neither = el("p", NEITHER) if one["reading"] == "open" else None
    return join([neither, el("div", *cards, class_="readings")])


def _sights(
    account: Account, sights: Sequence[Sight], doubted: Sequence[Found]
) -> tuple[Block, ...]:
    if not sights:
        return ()
    wanted = {(f["site"], f["class"]) for f in doubted}
    order = sorted(sights, key=lambda s: (s.site, s.label) not in wanted)
    views: tuple[tuple[str, tuple[Block, ...]], ...] = tuple(
        (f"{s.site}: {s.label}", (pictures(s, f"{account.name}-{at}"),))
        for at, s in enumerate(order)
    )
    return (
        Html("<h3>What the models look at, and what happens without it</h3>"),
        Choice(f"{account.name}-sight", "Site and class", views),
    )


def _alarm(account: Account, found: Found) -> tuple[Block, ...]:
    values = []
    for site in found["sites"]:
        gap, spread = float(site["alarm"]["gap"]), float(site["alarm"]["spread"])
        values.append(Dot(site["site"], gap, gap - 2 * spread, gap + 2 * spread))
    if not values:
        return ()

    def draw(width: float) -> Scene:
        words = partial(percent, places=0)
        title = "Shared model minus own model, by site"
        return dots(values, title, "difference in accuracy", width, words, zero=0.0)

    told = say(
        "Accuracy of the shared model minus that of the site's own, on the site's images, with "
        "twice its standard error. Far below zero means that the shared model learned elsewhere "
        "what does not hold here."
    )
    head = Html("<h3>The alarm an unbiased site hears</h3>")
    return head, Figure(f"{account.name}-alarm", told, draw)


def _table(account: Account, found: Found) -> Table:
    columns = (
        Column("class"),
        Column("site"),
        Column("verdict", lambda v: mark(v)),
        Column("score", partial(figure, places=1), "In standard errors", number=True),
        Column("p, corrected", p_text, number=True),
        Column("AUC here", partial(figure, places=2), number=True),
        Column("AUC elsewhere", partial(figure, places=2), number=True),
        Column("own model, right", partial(percent, places=0), number=True),
        Column("place covered", partial(percent, places=0), number=True),
        Column("place"),
    )
    rows = tuple(
        (
            f["class"],
            f["site"],
            f["verdict"],
            f["score"],
            f["p_value"],
            f["here"],
            f["elsewhere"],
            f["covered"]["local"]["accuracy"],
            f["covered"]["local"]["without"],
            f["where"],
        )
        for f in sorted(findings(found), key=lambda f: -cast(float, f["score"]))
    )
    skipped = [f"{name} at {s['site']}" for s in found["sites"] for name in s.get("skipped", ())]
    note = f"Not tested, too few images: {', '.join(skipped[:40])}." if skipped else ""
    return Table(f"{account.name}-audit", "Findings, the highest score first", columns, rows, note)


def _meaning(found: Found) -> Html:
    about = str(found.get("null") or "").rstrip(".")
    source = f" They come from {about}." if about else ""
    return el(
        "p",
        say(
            "A p-value is the share of classes in unbiased federations that score as high or "
            "higher, corrected (Holm) for every class of every site.{} It is not the chance that "
            "a site is honest, not a measure of harm, and no proof of absence.",
            source,
        ),
        class_="soft",
    )
