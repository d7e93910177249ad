"""Runs with hostile sites as text: accuracy and success, where rules fail, what alarms saw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import TypeVar

from experiments.tables.markdown import to_markdown
from experiments.tables.poisoned_run import PoisonedRun
from vitrail.metrics.binomial import exact_interval
from vitrail.metrics.ranking import auc

LOST = 0.10
"""A rule fails where an attack takes more accuracy than this off a plain mean without attackers."""
OPENED = 0.5
"""A rule fails against a backdoor that opens for more than this share of images."""
ADAPTIVE, NOBODY = "adaptive", "none"
Runs = Sequence[PoisonedRun]
T = TypeVar("T")


def format_poisoning(results: Runs) -> str:
    """Everything that the runs of a grid say, each table where there is something for it."""
    parts = [
        *_format_accuracies(results),
        *_format_breakdowns(results),
        *_format_alarms(results),
        *_format_false_alarms(results),
    ]
    return "\n\n".join(parts)


def _format_accuracies(results: Runs) -> Iterable[str]:
    """Rows are rules, columns attacks; a cell says accuracy, and success where there is one."""
    counts = sorted({len(result.hostile) for result in results} - {0})
    for partition in _list_distinct(result.partition for result in results):
        for count in counts:
            here = [r for r in results if r.partition == partition and len(r.hostile) in (0, count)]
            attacks = _list_distinct(result.attack for result in here)
            rows = [
                [_name_row(rule, here), *(_format_cell(_select(here, rule, a)) for a in attacks)]
                for rule in _list_distinct((r.method, r.rule) for r in here)
            ]
            seeds = len({result.seed for result in here})
            yield (
                f"{count} hostile of the sites, {partition}, mean of {seeds} seeds: accuracy"
                " (and success)\n\n" + to_markdown(["rule", *attacks], rows)
            )


def _name_row(rule: tuple[str, str], here: Runs) -> str:
    """A rule, with its method where there are several."""
    return ": ".join(rule) if len({result.method for result in here}) > 1 else rule[1]


def _select(results: Runs, rule: tuple[str, str], attack: str) -> list[PoisonedRun]:
    return [r for r in results if (r.method, r.rule) == rule and r.attack == attack]


def _format_cell(results: Runs) -> str:
    if not results:
        return "-"
    text = f"{mean(result.accuracy for result in results):.3f}"
    wins = [result.success for result in results if result.success is not None]
    return f"{text} ({mean(wins):.2f})" if wins else text


def _format_breakdowns(results: Runs) -> Iterable[str]:
    """The fewest hostile sites at which each rule fails, oblivious attacks beside the adaptive."""
    attacks = {result.attack for result in results}
    if ADAPTIVE not in attacks or NOBODY not in attacks:
        return
    for partition in _list_distinct(result.partition for result in results):
        here = [result for result in results if result.partition == partition]
        rows = []
        for rule in _list_distinct((r.method, r.rule) for r in here):
            mine = [r for r in here if (r.method, r.rule) == rule]
            base = [r.accuracy for r in _select(here, (rule[0], "mean"), NOBODY)]
            if base:
                rows.append([_name_row(rule, here), *_find_breakdowns(mine, mean(base))])
        yield (
            f"fewest hostile sites at which a rule fails, {partition}: accuracy more than "
            f"{LOST:g} below that of a plain mean without attackers; a trigger opens for more than "
            f"{OPENED:g} of the images\n\n"
            + to_markdown(["rule", "oblivious attacks", "adaptive", "a trigger opens"], rows)
        )


def _find_breakdowns(results: Runs, base: float) -> tuple[str, str, str]:
    """For one rule: by accuracy under oblivious attacks and the adaptive one, and by success."""
    failed: dict[str, dict[int, list[str]]] = {"oblivious": {}, ADAPTIVE: {}, "trigger": {}}
    for attack in _list_distinct(result.attack for result in results):
        for count in sorted({len(r.hostile) for r in results if r.attack == attack}):
            runs = [r for r in results if r.attack == attack and len(r.hostile) == count]
            kind = ADAPTIVE if attack == ADAPTIVE else "oblivious"
            if mean(r.accuracy for r in runs) < base - LOST:
                failed[kind].setdefault(count, []).append(attack)
            wins = [r.success for r in runs if r.success is not None]
            if _is_trigger(attack) and wins and mean(wins) > OPENED:
                failed["trigger"].setdefault(count, []).append(attack)
    if 0 in failed["oblivious"]:
        failed[ADAPTIVE] = {0: []}
    most = max(len(result.hostile) for result in results)
    return (
        _format_breakdown(failed["oblivious"], most),
        _format_breakdown(failed[ADAPTIVE], most),
        _format_breakdown(failed["trigger"], most),
    )


def _is_trigger(attack: str) -> bool:
    return attack.startswith(("backdoor", "model-replacement", "prototype-trigger"))


def _format_breakdown(failed: dict[int, list[str]], most: int) -> str:
    """The smallest number and what did it; where nothing did, more than were tried."""
    if not failed:
        return f"> {most}"
    least = min(failed)
    named = [name for name in failed[least] if name not in (NOBODY, ADAPTIVE)]
    return f"{least} ({', '.join(named)})" if named else str(least)


def _format_alarms(results: Runs) -> Iterable[str]:
    """How well alarms tell hostile sites from honest ones of the same runs, by attack."""
    rows = []
    for attack in _list_distinct(r.attack for r in results if r.attack != NOBODY):
        for several in (False, True):
            runs = [r for r in results if r.attack == attack and (len(r.hostile) > 1) == several]
            if row := _describe_alarms(runs):
                rows.append([attack, "2 or more" if several else "1", *row])
    if rows:
        heads = ["attack", "hostile sites", "AUC", "under alarm", "rounds until then", "honest too"]
        yield "alarms in runs with hostile sites\n\n" + to_markdown(heads, rows)


def _describe_alarms(runs: Runs) -> list[str] | None:
    """AUC of the highest sum by site, who came under alarm and when, and honest sites that did."""
    scored = [(r, site) for r in runs for site in r.peaks]
    hostile = [(r, site) for r, site in scored if site in r.hostile]
    honest = [(r, site) for r, site in scored if site not in r.hostile]
    if not hostile or not honest:
        return None
    area = auc([r.peaks[site] for r, site in hostile], [r.peaks[site] for r, site in honest])
    caught = [r.alarmed[site] for r, site in hostile if site in r.alarmed]
    wrong = sum(site in r.alarmed for r, site in honest)
    return [
        f"{area:.3f}",
        f"{len(caught)} of {len(hostile)}",
        f"{median(caught):g} (at most {max(caught)})" if caught else "-",
        f"{wrong} of {len(honest)}",
    ]


def _format_false_alarms(results: Runs) -> Iterable[str]:
    """In how many runs without hostile sites any site came under alarm in any round."""
    quiet = [result for result in results if result.attack == NOBODY]
    rows = []
    for rule in _list_distinct((r.method, r.rule) for r in quiet):
        for partition in _list_distinct(r.partition for r in quiet):
            runs = [r for r in _select(quiet, rule, NOBODY) if r.partition == partition]
            if runs:
                hits = sum(bool(r.alarmed) for r in runs)
                low, high = exact_interval(hits, len(runs))
                share = f"{100 * low:.1f} to {100 * high:.1f} %"
                accuracy = f"{mean(r.accuracy for r in runs):.3f}"
                row = [_name_row(rule, quiet), partition, accuracy, f"{hits} of {len(runs)}", share]
                rows.append(row)
    if rows:
        heads = ["rule", "partition", "accuracy", "runs with an alarm", "exact 95 % interval"]
        yield "runs without hostile sites\n\n" + to_markdown(heads, rows)


def _list_distinct(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))
