"""What the process that answers at a site writes down for the one that its operator watches."""

from __future__ import annotations

from typing import Any

from vitrail.engine.class_watch import read_watch
from vitrail.engine.release_summary import format_size
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.flower.envelope import OpenedMessage, Shares
from vitrail.flower.events import EVENTS_FILE, EventLog
from vitrail.flower.site.site_config import SiteConfig


def open_events(config: SiteConfig) -> EventLog:
    """The events of a site, in its own folder."""
    return EventLog(config.folder / EVENTS_FILE, {"site": config.name})


def write_answered(config: SiteConfig, message: OpenedMessage) -> None:
    """One event for a message that was answered, and a line in the log of its run here; of a turn
    with the site's own figures."""
    run, folder = message.run, config.run_folder(message.run)
    if message.kind == "step":  # of a secure sum: its turn is what there is to say
        return
    if message.kind == "start":  # its line is in the log already
        shares = Shares.read(message)
        open_events(config).write("shares", shares.describe(), run=run, **shares.model_dump())
        return
    kind, facts = "finished", {}
    text = f"run {run} is finished"
    if message.kind == "hello":
        kind, text = "joined", f"{config.name} takes part in run {run}"
    elif message.kind == "turn":
        task = message.body["task"]
        kind = "closing" if task["closing"] else "round"
        figures = collect_figures(folder, config.name, task["round"])
        text = describe_turn(task["round"], bool(task["closing"]), figures)
        facts = {"round": task["round"], **figures}
        write_drops(config, run, task["round"])
    open_events(config).write(kind, text, run=run, **facts)
    folder.log(text)


def write_drops(config: SiteConfig, run: str, round_: int) -> None:
    """Warn the operator where the model that came has unlearned a class; nobody else hears it."""
    folder = config.run_folder(run)
    seen = read_watch(SiteFolder(folder.path, config.name).path)
    for drop in seen[-1]["drops"] if seen and seen[-1]["round"] == round_ - 1 else ():
        text = f"round {round_}: the model that came has unlearned {drop}"
        open_events(config).write("warning", text, run=run, round=round_)
        folder.log(text)


def write_trouble(config: SiteConfig, run: str, kind: str, sentence: str) -> None:
    """One event for a message that was not answered as asked; the whole reason stays here."""
    if kind == "hello":
        text = f"{config.name} does not take part in run {run}: {sentence}"
        open_events(config).write("declined", text, run=run, why=sentence)
    elif kind != "farewell":  # also said to sites that declined: no trouble of theirs
        open_events(config).write("error", f"run {run}: {sentence}", run=run, why=sentence)


def collect_figures(folder: RunFolder, site: str, round_: int) -> dict[str, Any]:
    """The site's own figures of a turn: those of the model that came belong to the round before."""
    rows = {row["round"]: row for row in folder.rows() if row["site"] == site}
    came, played = rows.get(round_ - 1, {}), rows.get(round_, {})
    figures = {
        "accuracy": came.get("accuracy"),
        "loss": came.get("loss"),
        "train_loss": played.get("train_loss"),
        "bytes": played.get("bytes_up"),
        "seconds": played.get("seconds"),
    }
    return {name: value for name, value in figures.items() if value is not None}


def describe_turn(round_: int, closing: bool, figures: dict[str, Any]) -> str:
    """A turn in a line."""
    head = "final model" if closing else f"round {round_}"
    words = [
        f"{name.replace('_', ' ')} {figures[name]:.3f}"
        for name in ("accuracy", "loss", "train_loss")
        if name in figures
    ]
    parts = [f"{', '.join(words)} on this site's images"] if words else []
    if "bytes" in figures:
        parts.append(f"{format_size(int(figures['bytes']))} left")
    if "seconds" in figures:
        parts.append(f"{figures['seconds']:.1f} s")
    return f"{head}: {'; '.join(parts) or 'played'}"
