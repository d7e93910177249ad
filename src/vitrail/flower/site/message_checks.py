"""What a site checks before it plays a turn: names, versions, and that it was agreed on."""

from __future__ import annotations

from collections.abc import Mapping

from vitrail.engine.plan import Plan
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.tasks import Task
from vitrail.files import make_folder_name
from vitrail.flower.site.policy import SitePolicy
from vitrail.flower.site.site_errors import Refusal
from vitrail.flower.versions import find_version_conflict


def check_run_name(run: str) -> None:
    """A run has one name and one folder: noise is drawn by the name, so a second name for a folder
    would draw it anew for a round that was answered."""
    if make_folder_name(run) != run or run != run.lower():
        raise Refusal(f"{run!r:.40} is no name of a run: small letters and digits")


def check_versions(theirs: Mapping[str, str], runtime: str) -> None:
    """Refuse another version at the other end before anything is computed."""
    if conflict := find_version_conflict(theirs, runtime):
        raise Refusal(conflict, hint="Install the same versions everywhere.")


def check_task(task: Task, plan: Plan, policy: SitePolicy) -> None:
    """A run has the rounds that were agreed on, and one closing turn after them; it brings what
    its method declares, and adds up over as many sites as the policy asks for."""
    rounds = plan.config.run.rounds
    if undeclared := sorted(set(task.assets) - set(plan.list_assets())):
        raise Refusal(f"the message brings {undeclared[0]!r:.40}, which the method does not use")
    if not set(task.lacks) <= set(task.assets.values()):
        raise Refusal("the message brings assets that it does not name")
    senders = None if task.masks is None else len(task.masks.senders)
    if senders is not None and policy.cohort is not None and senders < policy.cohort:
        raise Refusal("the sum is over fewer sites than this site's policy asks for")
    if not task.closing:
        check_round(task.round, plan)
    elif task.round != rounds + 1:
        raise Refusal(
            f"the closing turn of round {task.round!s:.20} is none of the {rounds} rounds agreed on"
        )
    if not 0 <= task.floor <= task.base < task.round:
        raise Refusal("the message would have this site forget what it builds on")


def check_unfinished(folder: RunFolder) -> None:
    """After its closing turn a run asks for nothing more: what it spent has been added up."""
    if (folder.server / "finished").exists():
        raise Refusal("this run had its closing turn here, and nothing leaves for it any more")


def check_round(round_: int, plan: Plan) -> None:
    """A run has the rounds that were agreed on."""
    rounds = plan.config.run.rounds
    if not 1 <= round_ <= rounds:
        raise Refusal(f"a turn of round {round_!s:.20} is none of the {rounds} rounds agreed on")
