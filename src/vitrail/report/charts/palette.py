"""The colors of the report by role, for light and dark; figures name roles, never colors.

Series are Okabe and Ito's colors, changed only where white paper or a dark page would swallow
them. Nothing rests on color alone: series also differ in dashes, verdicts in shape.
"""

from __future__ import annotations

ROLES: dict[str, tuple[str, str]] = {  # light, dark
    "paper": ("#f7f6f2", "#11151d"),
    "card": ("#ffffff", "#1a202b"),
    "quiet": ("#f1efe8", "#242c3a"),
    "line": ("#dedbd0", "#333c4d"),
    "axis": ("#8b8d92", "#7c8698"),
    "soft": ("#555e70", "#aab2c2"),
    "ink": ("#1b2130", "#edeff4"),
    "for": ("#0069a6", "#63b8ec"),
    "against": ("#b34700", "#f4a063"),
    "mark": ("#f0e442", "#f0e442"),
    "bad": ("#b3261e", "#ff9d94"),
    "warn": ("#855600", "#f2c063"),
    "fine": ("#00664a", "#5fd3ac"),
    "c1": ("#0069a6", "#63b8ec"),
    "c2": ("#c24e00", "#f4a063"),
    "c3": ("#007a5a", "#4fd0a6"),
    "c4": ("#a8487c", "#e79cc6"),
    "c5": ("#8a6a00", "#e8c34d"),
    "c6": ("#5b4bb7", "#b3a8f5"),
    "c7": ("#50545e", "#c3c8d2"),
}
SERIES = ("c1", "c2", "c3", "c4", "c5", "c6", "c7")
DASHES: tuple[tuple[float, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))


def get_light_color(role: str) -> str:
    """The color of a role on paper."""
    return ROLES[role][0]


def make_css_variables() -> str:
    """The roles as CSS custom properties: light, dark by preference, and by choice."""
    day, night = (";".join(f"--{name}:{pair[i]}" for name, pair in ROLES.items()) for i in (0, 1))
    paints = "".join(f".f-{n}{{fill:var(--{n})}}.s-{n}{{stroke:var(--{n})}}" for n in ROLES)
    return (
        f":root{{color-scheme:light;{day}}}"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;"
        f"{night}}}}}:root[data-theme=dark]{{color-scheme:dark;{night}}}"
        f"@media print{{:root,:root[data-theme=dark]{{color-scheme:light;{day}}}}}{paints}"
    )
