"""Whether terms keep to a site's policy: one sentence for each line that they break."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vitrail.engine.federation import load_federation
from vitrail.engine.plan import Plan
from vitrail.engine.release_summary import format_share, summarize_release
from vitrail.engine.resolve_config import resolve_config
from vitrail.flower.run_terms import is_audited, make_agreed_plan
from vitrail.flower.site.policy import SitePolicy, classify_unit
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.terms_file import read_terms
from vitrail.flower.terms_signature import TermsSignature, find_valid_signers
from vitrail.release.accounting.promise import hides_from_server


@dataclass(frozen=True)
class PolicyBreach:
    """A line of the policy that terms break, and how."""

    line: str
    says: str

    def describe(self) -> str:
        """One sentence for the site's operator and its log."""
        return f"the terms break this site's policy: {self.says} (policy.{self.line})"


def find_breaches(
    policy: SitePolicy,
    plan: Plan,
    site: str,
    examples: int | None = None,
    signed_by: Collection[str] = (),
) -> Iterator[PolicyBreach]:
    """Every line that a plan breaks at a site. Without `examples`, its training images, nothing
    is said about an epsilon that depends on them."""
    yield from _check_training(policy, plan)
    yield from _check_what_leaves(policy, plan)
    yield from _check_sums(policy, plan)
    yield from _check_proof(policy, plan, site, examples)
    for name in policy.signers:
        if name not in signed_by:
            yield PolicyBreach("signers", f"{name!r} has not signed them")


def check_terms(
    terms_file: Path, site_file: Path, keys: Path | None, signatures: Sequence[Path]
) -> tuple[list[PolicyBreach], list[str]]:
    """What terms break of the policy of a site, and the lines they keep. Images are counted, so
    that an epsilon that depends on their number is known."""
    site, terms = SiteConfig.open(site_file), read_terms(terms_file)
    loaded = site.merge_terms(terms)
    loaded = replace(loaded, config=resolve_config(loaded))
    plan, _ = make_agreed_plan(loaded)
    given = {one.name: one.signature for one in map(TermsSignature.read, signatures)}
    signed = find_valid_signers(terms, given, keys)
    breaches = list(find_breaches(site.policy, plan, site.name, None, signed))
    if not breaches and site.policy.epsilon is not None:
        examples = len(load_federation(loaded).sites[site.name].train)
        breaches = list(find_breaches(site.policy, plan, site.name, examples, signed))
    broken = {breach.line for breach in breaches}
    kept = [line for line in site.policy.describe() if line.split(".")[1].split()[0] not in broken]
    return breaches, kept


def _check_training(policy: SitePolicy, plan: Plan) -> Iterator[PolicyBreach]:
    name, rounds = plan.config.method.name, plan.config.run.rounds
    if policy.methods is not None and name not in policy.methods:
        allowed = ", ".join(policy.methods) or "none"
        yield PolicyBreach("methods", f"the method is {name!r}, and allowed are: {allowed}")
    if policy.rounds is not None and rounds > policy.rounds:
        yield PolicyBreach("rounds", f"{rounds} rounds are more than {policy.rounds}")


def _check_what_leaves(policy: SitePolicy, plan: Plan) -> Iterator[PolicyBreach]:
    kept = dict.fromkeys(field.name for s in plan.stages for field in s.schema.up_kept)
    if not policy.images and kept:
        yield PolicyBreach("images", f"{', '.join(kept)} would leave one by one")
    told = [*plan.setting.told, *_list_labels(plan)]
    if not policy.histograms and told:
        yield PolicyBreach("histograms", f"{', '.join(dict.fromkeys(told))} would leave")
    if not policy.audits and is_audited(plan):
        yield PolicyBreach(
            "audits",
            "tables for everybody's audit would leave, unless run.local_reference is false",
        )
    summary = summarize_release(plan)
    most = max((stage.model for stage in summary.stages), default=0)
    if policy.model_share is not None and most > policy.model_share * max(1, summary.of):
        share = format_share(most, summary.of)
        yield PolicyBreach(
            "model_share", f"{share} of the model would leave, over {policy.model_share:.2%}"
        )


def _list_labels(plan: Plan) -> list[str]:
    """What tells the classes of images one by one or by number beside what a method counts."""
    labels = [f.name for s in plan.stages for f in s.schema.up_kept if f.name.endswith("/targets")]
    return [
        *labels,
        *(["the images of each class in tables for audits"] if is_audited(plan) else []),
    ]


def _check_sums(policy: SitePolicy, plan: Plan) -> Iterator[PolicyBreach]:
    open_stages = [s.stage.name for s in plan.stages if s.masked is None and s.schema.up]
    if policy.secure_sum and (not plan.secure or open_stages):
        where = f" in stage {open_stages[0]!r}" if plan.secure and open_stages else ""
        yield PolicyBreach("secure_sum", f"updates would leave without masks{where}")
    least = plan.config.run.min_sites
    if policy.cohort is not None and least < policy.cohort:
        yield PolicyBreach(
            "cohort",
            f"a round counts with {least} sites, and {policy.cohort} are the least here "
            "(run.min_sites of the terms)",
        )


def _check_proof(
    policy: SitePolicy, plan: Plan, site: str, examples: int | None
) -> Iterator[PolicyBreach]:
    """Every proof that the terms promise, against what counts as one here."""
    asked = [n for n in ("epsilon", "delta", "units", "mechanisms") if getattr(policy, n)]
    if not asked:
        return
    formal = [defense for defense in plan.defenses() if defense.formal]
    if not formal:
        yield PolicyBreach(asked[0], "nothing that leaves would be covered by a proof")
        return
    bare = [f.name for s in plan.stages for f in s.schema.up_kept]
    if bare:
        yield PolicyBreach(
            asked[0],
            f"{bare[0]} would leave beside what the proof of {formal[0].name!r} covers",
        )
    for defense in formal:
        forecast = defense.forecast(site, max(1, examples or 1))
        name, unit = defense.name, classify_unit(str(forecast["unit"]))
        if not hides_from_server(str(forecast["against"])):
            yield PolicyBreach(
                asked[0],
                f"the noise of {name!r} is the coordinator's to add: it hides nothing from it",
            )
            continue
        if policy.mechanisms is not None and name not in policy.mechanisms:
            yield PolicyBreach("mechanisms", f"{name!r} does not count here")
        if policy.units is not None and unit not in policy.units:
            yield PolicyBreach("units", f"{name!r} hides {forecast['unit']}, which does not count")
        if policy.delta is not None and forecast["delta"] > policy.delta:
            yield PolicyBreach("delta", f"delta {forecast['delta']:g} is over {policy.delta:g}")
        if policy.epsilon is None or (examples is None and "epsilon" not in forecast):
            continue
        epsilon = defense.compute_planned_epsilon(site, examples or 1)
        if epsilon > policy.epsilon:
            yield PolicyBreach(
                "epsilon", f"epsilon {epsilon:.4g} of {name!r} is over {policy.epsilon:g}"
            )
