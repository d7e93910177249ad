"""From an audit's JSON, perhaps edited by an expert, to the `[debias]` section of a new run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import ValidationError

from vitrail.config.debias_section import Debias, Remedy
from vitrail.config.load import Loaded, to_config_error
from vitrail.config.schema import Config
from vitrail.engine.resolve_config import fingerprint_config, resolve_config
from vitrail.errors import ConfigError, suggest_name

REMEDIES: tuple[Remedy, ...] = get_args(Remedy)


def apply_remedies(loaded: Loaded, audit: Path, remedies: Sequence[str] = ()) -> Loaded:
    """`plan_remedies` with an audit's file."""
    return plan_remedies(loaded, _read(audit), str(audit), remedies)


def plan_remedies(
    loaded: Loaded, stored: dict[str, Any], where: str, remedies: Sequence[str] = ()
) -> Loaded:
    """The same run with remedies against what an audit calls `biased`; a finding whose `plan` is
    empty is left alone.

    The remedies are those asked for, else those the JSON lists under `remedies`, else those of
    the file, else `weigh`. Rounds that a remedy needs come after the run's own, in the place of
    those that earlier remedies needed.
    """
    config = loaded.config
    wanted = tuple(remedies) or tuple(stored.get("remedies", ())) or config.debias.remedies
    for name in wanted:
        if name not in REMEDIES:
            raise ConfigError(
                f"there is no remedy {name!r}",
                where=where,
                hint=suggest_name(str(name), REMEDIES),
            )
    section = config.debias.model_dump(mode="json")
    section |= {"remedies": wanted or ("weigh",), "findings": _select_biased(stored, where)}
    try:
        debias = Debias.model_validate_json(json.dumps(section), strict=True)
    except ValidationError as err:
        raise to_config_error(err, where, Debias) from None
    if debias.by_number:
        _check_same_run(loaded, stored, where)
    rounds = config.run.rounds - config.debias.last_rounds + debias.last_rounds
    run = config.run.model_copy(update={"rounds": rounds})
    return replace(loaded, config=config.model_copy(update={"debias": debias, "run": run}))


def compute_config_digest(config: Config) -> str:
    """What an audit says of the configuration it audited; remedies and their rounds left out."""
    rounds = config.run.rounds - config.debias.last_rounds
    run = config.run.model_copy(update={"rounds": rounds})
    return fingerprint_config(config.model_copy(update={"debias": Debias(), "run": run}))


def _read(audit: Path) -> dict[str, Any]:
    try:
        stored = json.loads(audit.read_text(encoding="utf-8"))
    except OSError as err:
        raise ConfigError(
            f"there is no file {audit}", hint="`vitrail audit RUN --json FILE` writes one."
        ) from err
    except ValueError as err:
        raise ConfigError(f"this is not valid JSON ({err})", where=str(audit)) from err
    if not isinstance(stored, dict) or not isinstance(stored.get("sites"), list):
        raise ConfigError(
            "this is not an audit: it has no list of sites",
            where=str(audit),
            hint="`vitrail audit RUN --json FILE` writes one.",
        )
    return stored


def _select_biased(stored: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """The classes of sites whose verdict is `biased` and whose reading calls for a remedy."""
    findings, spared = [], []
    for site in stored["sites"]:
        for entry in _parse_entries(site, where):
            if entry.get("verdict") == "biased" and entry.get("plan") == []:
                spared.append(f"{entry['class']} at {site['site']} ({entry.get('reading')})")
            elif entry.get("verdict") == "biased":
                findings.append(
                    {
                        "site": site["site"],
                        "label": entry["class"],
                        "score": entry.get("score", 0.0),
                        "prototypes": entry.get("prototypes", []),
                        "look": entry.get("look", []),
                    }
                )
    if not findings and spared:
        raise ConfigError(
            f"no reading of this audit calls for a remedy: {', '.join(spared)}",
            where=where,
            hint="Who knows better takes `plan` out of that class's entry.",
        )
    if not findings:
        raise ConfigError(
            "this audit calls no class of any site `biased`, so there is nothing to remedy",
            where=where,
            hint="Who knows better sets a verdict to biased in the file.",
        )
    return findings


def _parse_entries(site: Any, where: str) -> list[dict[str, Any]]:
    entries = site.get("classes") if isinstance(site, dict) else None
    whole = isinstance(entries, list) and all(isinstance(e, dict) and "class" in e for e in entries)
    if not whole or "site" not in site:
        raise ConfigError(
            "every site needs a name under `site` and a list of `classes`, each with its `class`",
            where=where,
        )
    return cast(list[dict[str, Any]], entries)


def _check_same_run(loaded: Loaded, stored: dict[str, Any], where: str) -> None:
    """Prototypes go by number, and another configuration trains others under these numbers."""
    known = stored.get("config")
    if known is not None and known != compute_config_digest(resolve_config(loaded)):
        raise ConfigError(
            "this audit is of a run with another configuration, where prototypes have other "
            "numbers",
            where=where,
            hint="Use the config.toml of that run, or a remedy without numbers: weigh, leave-out.",
        )
