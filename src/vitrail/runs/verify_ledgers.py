"""Whether the ledgers of a run are what was once written: chains, heads, signatures.

A simulation has chains; a site's run folder has heads that were countersigned beside its ledger; a
coordinator's has the heads of all sites and no ledger.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.release.head_signatures import (
    fingerprint_certificate,
    fingerprint_public,
    is_issued_by,
    is_signed_by_certificate,
    is_signed_by_node,
)
from vitrail.release.ledger_chain import Chain, walk_chain
from vitrail.release.ledger_heads import HEADS_FILE, HeadFile, KeptHead, find_setback
from vitrail.runs.opened_run import Run


@dataclass(frozen=True)
class TrustedKeys:
    """By whom signatures must be: the authority's certificate, and each site's public keys where
    they are known."""

    authority: bytes
    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteCheck:
    """What was found out about one site: `lines` to say, and the `problem` there is, if any."""

    site: str
    lines: Sequence[str]
    problem: str = ""


def verify_ledgers(
    path: str | Path, heads: Path | None = None, keys: TrustedKeys | None = None
) -> list[SiteCheck]:
    """Check every ledger and every head in a run folder; `heads` are those that somebody else
    kept of the same run."""
    run = Run(path)
    found = _collect_heads(run, heads)
    checks = []
    for site in run.sites:
        ledger = SiteFolder(run.path, site).ledger().path
        if ledger.exists() or found.get(site):
            checks.append(_check_site(site, ledger, found.get(site, []), keys))
    if not checks:
        raise RunError("there is no ledger and no head of one", where=str(run.path))
    return checks


def _collect_heads(run: Run, other: Path | None) -> dict[str, list[KeptHead]]:
    """By site, what was kept in this folder and elsewhere, in the order in which it was told."""
    if other is not None and not other.is_file():
        raise RunError("there is no such file of heads", where=str(other))
    files = [run.folder.server / HEADS_FILE]
    files += [SiteFolder(run.path, site).path / HEADS_FILE for site in run.sites]
    files += [] if other is None else [other]
    by_site: dict[str, dict[KeptHead, None]] = {}
    for file in files:
        for head in HeadFile(file).read():
            by_site.setdefault(head.site, {})[head] = None
    return {site: sorted(kept, key=lambda head: head.lines) for site, kept in by_site.items()}


def _check_site(
    site: str, ledger: Path, heads: Sequence[KeptHead], keys: TrustedKeys | None
) -> SiteCheck:
    lines: list[str] = []
    problem = next(_find_head_problems(heads, keys), "")
    if ledger.exists():
        chain = walk_chain(ledger, {head.lines for head in heads})
        lines.append(_describe_chain(chain))
        problem = chain.problem or next(_find_missing_heads(chain, heads), "") or problem
    lines += _describe_heads(heads, keys)
    return SiteCheck(site, lines, problem)


def _find_missing_heads(chain: Chain, heads: Sequence[KeptHead]) -> Iterator[str]:
    for head in heads:
        if head.lines > chain.lines:
            yield (
                f"lines after {chain.lines} are missing: in round {head.round} there were "
                f"{head.lines}"
            )
        elif not chain.contains(head.head):
            yield (
                f"line {head.lines} is not the one whose hash was told in round {head.round}: it, "
                "or lines before it, were written anew"
            )


def _find_head_problems(heads: Sequence[KeptHead], keys: TrustedKeys | None) -> Iterator[str]:
    """What is wrong with heads by themselves: contradictions, signatures."""
    for before, now in itertools.pairwise(heads):
        if now.run != before.run:
            yield "its heads are of more than one run"
        if setback := find_setback(before.head, now.head):
            yield f"two heads contradict each other: {setback}"
    signed = any(head.signature or head.countersignature for head in heads) or keys is not None
    for head in heads if signed else ():
        where = f"the head of round {head.round} (line {head.lines})"
        if not is_signed_by_node(head.key.encode(), head.statement(), head.signature):
            yield f"{where} is not signed by the site"
        if not is_signed_by_certificate(
            head.certificate, head.counterstatement(), head.countersignature
        ):
            yield f"{where} is not countersigned by the coordinator"
        if keys is not None and not is_issued_by(head.certificate, keys.authority):
            yield f"{where} is countersigned by a certificate of another authority"
        known = () if keys is None else keys.nodes.get(head.site, ())
        if known and head.key not in known:
            yield f"{where} is signed by a key that was never this site's"


def _describe_chain(chain: Chain) -> str:
    if chain.unchained == chain.lines:
        return f"{chain.lines} lines, not chained: an older version wrote them"
    if chain.unchained:
        return (
            f"{chain.lines} lines, chained from line {chain.unchained + 1} on; the lines before it "
            "are covered as a whole"
        )
    return f"{chain.lines} lines, all chained"


def _describe_heads(heads: Sequence[KeptHead], keys: TrustedKeys | None) -> list[str]:
    if not heads:
        return []
    said = f"{len(heads)} heads up to line {heads[-1].lines}"
    if not heads[-1].signature and not heads[-1].countersignature:
        return [f"{said}, unsigned: this federation had no keys"]
    nodes = dict.fromkeys(fingerprint_public(head.key) for head in heads)
    servers = dict.fromkeys(fingerprint_certificate(head.certificate) for head in heads)
    whose = "" if keys else "; whose these are, --keys tells"
    return [
        f"{said}, signed by the key {', '.join(nodes)}",
        f"countersigned by the certificate {', '.join(servers)}{whose}",
    ]
