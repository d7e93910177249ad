"""The reference of defenses, from their options: `python -m vitrail.release.defense_reference`."""

from __future__ import annotations

from collections.abc import Iterator

from vitrail.config.reference_page import make_rows
from vitrail.release import DEFENSES

HEAD = """# Defenses

What can stand in `release.defenses`, with the keys of `[release.<name>]`; made from the code by
`python -m vitrail.release.defense_reference`. Formal ones come with an epsilon of the whole run;
the others prove nothing. `release.energy` scales those that add noise, formal ones excepted.
"""


def make_reference_lines() -> Iterator[str]:
    """The page, line by line."""
    yield HEAD
    for name in DEFENSES:
        defense = DEFENSES[name]
        if not defense.__module__.startswith("vitrail."):
            continue
        summary = " ".join((defense.__doc__ or "").split())
        facts = [
            "formal" if defense.formal else "no guarantee",
            "looks at images" if defense.uses_data else "looks at no image",
            "acts in every step" if defense.acts == "training" else "acts at the door",
        ] + (["adds noise"] if defense.additive else [])
        yield f"## `{name}`\n\n{summary}\n\n{'; '.join(facts).capitalize()}.\n"
        if defense.Options.model_fields:
            yield from make_rows(defense.Options)
            yield ""


if __name__ == "__main__":
    print("\n".join(make_reference_lines()), end="")
