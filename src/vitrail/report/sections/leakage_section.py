"""What attacks got out of what was released: a table and a picture, references beside them.

Reads what `vitrail attack --json` and `vitrail leakage --json` write; it takes no pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from vitrail.report.blocks import Block, Figure, MissingNote
from vitrail.report.charts.chart_rows import Dot, draw_dots
from vitrail.report.charts.drawing import Drawing, Sign
from vitrail.report.charts.scale import format_percent, format_value
from vitrail.report.html import el, format_html
from vitrail.report.html_table import Column, Table

REFERENCE = "reference"
_SIGNS: tuple[Sign, ...] = ("circle", "square", "diamond", "triangle", "ring")
_COLUMNS: tuple[tuple[str, str], ...] = (
    ("attack", "attack"),
    ("defense", "defense"),
    ("psnr", "PSNR, dB"),
    ("psnr_sd", "SD"),
    ("ssim", "SSIM"),
    ("identified", "identified"),
    ("chance", "by chance"),
    ("p_value", "p"),
    ("labels", "labels"),
    ("label_recovery", "labels that can be inferred"),
    ("images", "images"),
    ("accuracy", "accuracy of the model"),
    ("energy", "noise energy"),
    ("epsilon", "epsilon"),
    ("iterations", "steps"),
    ("planned", "steps planned"),
)
_SHARES = ("identified", "chance", "label_recovery", "accuracy")
Row = Mapping[str, Any]


def flatten_attack_rows(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The plain values of every attack, flat; those of a defense stand in each of its rows."""
    rows: list[dict[str, Any]] = []
    for row in _list_rows(results, "references"):
        rows.append({"defense": REFERENCE, **_flatten_row(row)})
    for defense in _list_rows(results, "defenses"):
        shared = {k: v for k, v in _flatten_row(defense).items() if k != "attacks"}
        rows += [{**shared, **_flatten_row(row)} for row in _list_rows(defense, "attacks")]
    return rows + [_flatten_row(row) for row in _list_rows(results, "rows")]


def is_reference(row: Row) -> bool:
    """Whether a row is something to compare with, not an attack: no search was made for it."""
    return row.get("defense") == REFERENCE or row.get("iterations") == 0


def _list_rows(results: Mapping[str, Any], key: str) -> list[Row]:
    rows = results.get(key, ())
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return []
    return [row for row in rows if isinstance(row, Mapping)]


def _flatten_row(row: Row) -> dict[str, Any]:
    plain = {k: v for k, v in row.items() if v is None or isinstance(v, str | int | float)}
    if plain.get("images") == 1:
        plain["psnr_sd"] = None  # one image has no spread
    luck, threat = row.get("identification"), row.get("threat")
    if isinstance(luck, Mapping):
        plain |= {key: luck.get(key) for key in ("chance", "p_value")}
    if isinstance(threat, Mapping) and threat.get("sees") != "images":
        plain["labels"] = threat.get("labels")
    if plain.get("note") and "attack" in plain:
        plain["attack"] = f"{plain['attack']} ({plain['note']})"
    return plain


def make_leakage_blocks(name: str, results: Mapping[str, Any]) -> tuple[Block, ...]:
    """PSNR by defense and attack as a picture, everything as a table, who the attacker was."""
    rows = flatten_attack_rows(results)
    other_tables = [
        *_make_member_tables(name, results),
        *_make_matching_tables(name, results),
        *_make_unit_tables(name, results),
    ]
    if not rows:
        return tuple(other_tables) or (
            MissingNote(format_html("The file of attacks has no rows.")),
        )
    blocks: list[Block] = []
    values = _make_dots(rows)
    if values:

        def draw(width: float) -> Drawing:
            title = "Likeness of recovered images, by defense"
            return draw_dots(values, title, "PSNR in dB, with its SD over images", width)

        caption = format_html(
            "How like the true images the recovered ones are; further to the right is worse for "
            "privacy. References are images that no attack is needed for. An image is identified "
            "if it is nearer to the one it was taken for than to all others; how often luck does "
            "that, and the p-value of a permutation test within classes, stand beside it."
        )
        blocks.append(Figure(f"{name}-leakage", caption, draw))
    blocks.append(_make_table(name, rows))
    threat = _describe_threat(results)
    if threat is not None:
        blocks.append(el("p", threat, class_="soft"))
    return (*blocks, *other_tables)


def _make_dots(rows: Sequence[Row]) -> list[Dot]:
    attacks = list(dict.fromkeys(str(row.get("attack", "attack")) for row in rows))
    dots = []
    for row in rows:
        psnr, attack = row.get("psnr"), str(row.get("attack", "attack"))
        if isinstance(psnr, int | float):
            at = attacks.index(attack)
            spread = float(row.get("psnr_sd") or 0.0)
            place = str(row.get("defense") or "this run")
            kind = attack if len(attacks) <= len(_SIGNS) else ""
            role, sign = f"c{at % 7 + 1}", _SIGNS[at % len(_SIGNS)]
            dots.append(Dot(place, psnr, psnr - spread, psnr + spread, role, sign, kind))
    return dots


def _make_table(name: str, rows: Sequence[Row]) -> Table:
    known = [(key, head) for key, head in _COLUMNS if any(row.get(key) is not None for row in rows)]
    columns = tuple(_make_column(key, head, rows) for key, head in known)
    values = tuple(tuple(row.get(key) for key, _ in known) for row in rows)
    return Table(f"{name}-leakage", "What each attack got", columns, values)


def _make_column(key: str, head: str, rows: Sequence[Row]) -> Column:
    numbers = all(isinstance(row.get(key), int | float | None) for row in rows)
    show = partial(format_percent, places=0) if key in _SHARES else _format_cell
    return Column(head, show, number=numbers)


def _format_cell(value: object) -> str:
    return format_value(value, 2) if isinstance(value, float) else str(value)


def _describe_threat(results: Mapping[str, Any]) -> str | None:
    """What the attacker of the first search knew."""
    rows = [*_list_rows(results, "rows")]
    for defense in _list_rows(results, "defenses"):
        rows += _list_rows(defense, "attacks")
    threat = next((row["threat"] for row in rows if isinstance(row.get("threat"), Mapping)), None)
    if threat is None:
        return None
    if threat.get("sees") == "images":
        return (
            f"The attacker has the {threat.get('images', '?')} images that sites shared, and knows "
            "the model that was sent and how they were made."
        )
    sees = "one site's update" if threat.get("sees") == "update" else "only the sum of all updates"
    return (
        f"The attacker knows the model that was sent and sees {sees}; labels "
        f"{threat.get('labels', 'unknown')}, {threat.get('images', '?')} images, "
        f"{threat.get('local_steps', '?')} local steps."
    )


def _make_member_tables(name: str, results: Mapping[str, Any]) -> list[Table]:
    """How well members of the training images are told from others."""
    rows = _list_rows(results, "members")
    if not rows:
        return []
    columns = (
        Column("attack"),
        Column("on"),
        Column("AUC", format_value, "0.5 is chance", number=True),
        Column("members found", partial(format_percent, places=1), number=True),
        Column("at false alarms", partial(format_percent, places=0), number=True),
        Column("members", number=True),
        Column("others", number=True),
    )
    keys = ("name", "target", "auc", "tpr", "fpr", "members", "others")
    values = tuple(tuple(_read_member(row, key) for key in keys) for row in rows)
    return [Table(f"{name}-members", "Who was among the images?", columns, values)]


def _read_member(row: Row, key: str) -> Any:
    """A value; none where so few others cannot show how rare a false alarm is."""
    others, fpr = row.get("others"), row.get("fpr")
    if key == "tpr" and isinstance(others, int) and isinstance(fpr, float) and others * fpr < 1:
        return None
    return row.get(key)


def _make_matching_tables(name: str, results: Mapping[str, Any]) -> list[Table]:
    """How often a shared image finds the one it was made of."""
    rows = _list_rows(results, "matchings")
    if not rows:
        return []
    columns = (
        Column("distance"),
        Column("find their original", partial(format_percent, places=1), number=True),
        Column("shared images", number=True),
        Column("candidates", number=True),
    )
    keys = ("norm", "found", "images", "candidates")
    values = tuple(tuple(row.get(key) for key in keys) for row in rows)
    return [Table(f"{name}-matchings", "Do shared images find their originals?", columns, values)]


def _make_unit_tables(name: str, results: Mapping[str, Any]) -> list[Table]:
    """What released prototypes or subspaces give away of a site's patches."""
    sites = results.get("patches")
    if not isinstance(sites, Mapping) or not sites:
        return []
    columns = (
        Column("site"),
        Column("attack"),
        Column("units", number=True),
        Column("PSNR, dB", partial(format_value, places=1), number=True),
        Column("SSIM", partial(format_value, places=2), number=True),
        Column("activation reached", partial(format_value, places=2), number=True),
    )
    keys = ("name", "units", "psnr", "ssim", "reached")
    values = tuple(
        (site, *(row.get(key) for key in keys)) for site in sites for row in _list_rows(sites, site)
    )
    return [Table(f"{name}-units-attacked", "What a released part gives away", columns, values)]
