"""What an operator is asked to agree to: what will leave this site under some terms."""

from __future__ import annotations

from vitrail.data.patients import PatientCount
from vitrail.engine.plan import Plan
from vitrail.engine.release_summary import summarize_release
from vitrail.flower.plain_text import clean_text
from vitrail.flower.run_terms import is_audited, make_agreed_plan
from vitrail.flower.site.policy import SitePolicy
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.terms_digest import Terms
from vitrail.release.defenses.defense import Defense
from vitrail.release.patient_budgets import plan_patient_budgets

_AUDIT = (
    "at the end, for everybody's audit: how many images of each class are here, mean features of "
    "half of them, and how the other half lies along directions that all sites' means give",
)
_IN_CLEAR = (
    "these figures are not masked, and the sites of a round learn how much each of them counts"
)


def summarize_terms(
    config: SiteConfig, terms: Terms, examples: int, patients: PatientCount | None = None
) -> list[str]:
    """What will leave this site, which has so many training images, under some terms: lines for
    its operator. Names in them came over the wire, so nothing but plain text is left of them."""
    loaded = config.merge_terms(terms)
    plan, _ = make_agreed_plan(loaded)
    shared = summarize_release(plan)
    run, release, debias = loaded.config.run, loaded.config.release, loaded.config.debias
    remedies, suspected = ", ".join(debias.remedies), ", ".join(debias.suspected)
    lines = [
        f"method {loaded.config.method.name}, {run.rounds} rounds, "
        f"{run.local_epochs} local epochs, backbone {loaded.config.model.backbone}",
        f"classes: {', '.join(plan.classes)}",
        *((f"remedies against a bias: {remedies}; suspected: {suspected}",) if remedies else ()),
        *shared.lines(),
        f"in all: {shared.text()}",
        f"also: {_describe_numbers(plan)}",
        *((_IN_CLEAR,) if plan.secure else ()),
        f"defenses: {', '.join(release.defenses) or 'none: updates leave as they are'}",
        *_describe_guarantees(plan, config.name, examples),
        *(
            f"NOT A GUARANTEE FOR A PATIENT: {budget.sentence()}"
            for budget in plan_patient_budgets(config.name, examples, patients, plan.defenses())
        ),
        _describe_weight(plan, examples),
        *(_AUDIT if is_audited(plan) else ()),
        *_describe_policy(config.policy),
        _describe_kept(plan, config.name),
    ]
    return [clean_text(line) for line in lines]


def _describe_guarantees(plan: Plan, site: str, examples: int) -> list[str]:
    """What is promised, for whom, against whom, and with how much noise, over the whole run."""
    formal = [defense for defense in plan.defenses() if defense.formal]
    if not formal:
        return ["guarantee: none; what defenses do to an update is not proved to hide anything"]
    return [_describe_proof(defense, site, examples, plan.config.run.rounds) for defense in formal]


def _describe_proof(defense: Defense, site: str, examples: int, rounds: int) -> str:
    forecast = defense.forecast(site, examples)
    epsilon = defense.compute_planned_epsilon(site, examples)
    clip = getattr(defense.options, "clip", None)
    clipped = "" if clip is None else f" (clip {clip:g})"
    return (
        f"guarantee of {forecast['mechanism']} over {rounds} rounds: epsilon {epsilon:.6g} at "
        f"delta {forecast['delta']:g}, for {forecast['unit']}, against {forecast['against']}; "
        f"noise {forecast['noise']:.4g} times the sensitivity{clipped}"
    )


def _describe_weight(plan: Plan, examples: int) -> str:
    """How much this site counts in a sum."""
    if plan.private or plan.config.aggregate.weights == "uniform":
        return "weight in a sum: that of every other site"
    if plan.config.aggregate.weights == "examples":
        what = f"{examples}, its training images"
    else:
        what = f"the method's choice, from {examples} training images"
    largest = plan.config.aggregate.largest_weight
    bound = "" if largest is None else f"; nobody counts more than {largest:g} times the median"
    return f"weight in a sum: {what}{bound}"


def _describe_policy(policy: SitePolicy) -> list[str]:
    """That the terms keep to the site's policy: else nobody is asked."""
    if policy.is_empty:
        return ["this site has no policy: nothing but the answer to this keeps a run away"]
    return [f"this site's policy holds: {', '.join(policy.describe())}"]


def _describe_numbers(plan: Plan) -> str:
    """The exact numbers that leave beside the tensors."""
    told = [] if plan.private else ["how many training images", "which classes have none"]
    told += plan.setting.told
    figures = dict.fromkeys(name for stage in plan.stages for name in stage.schema.metrics)
    told += [f"figures ({', '.join(figures)})"] if figures else []
    return ", ".join(told) or "no count of images and no figure"


def _describe_kept(plan: Plan, site: str) -> str:
    """What leaves as it is instead of in a mean; only where nothing does, no image can."""
    fields = dict.fromkeys(field.name for stage in plan.stages for field in stage.schema.up_kept)
    if not fields:
        return "no image leaves this site"
    return (
        f"BESIDE THE MODEL LEAVE, one by one: {', '.join(fields)}; "
        f"protection: {plan.method.protection(site)}"
    )
