"""Local models that sites lend each other for an audit, where they agreed to."""

from __future__ import annotations

from pathlib import Path

from vitrail.engine.federation import Federation
from vitrail.engine.site_turn import MODEL
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.files import make_folder_name, read_tensors, write_tensors
from vitrail.release.door import Door
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import ensure_local_model

KIND = "local model"


def locate_lent_model(run: Run, site: str) -> Path:
    """Where the model that a site lent lies, for every site to read."""
    return run.folder.server / "lent" / f"{make_folder_name(site)}.safetensors"


def lend(run: Run, federation: Federation, site: str) -> None:
    """Let a site's local model out, once, with a line in its ledger."""
    if locate_lent_model(run, site).exists():
        return
    ensure_local_model(run, federation, site)
    folder = SiteFolder(run.path, site)
    model = {n: t for n, t in (folder.load_model("local") or {}).items() if n.startswith(MODEL)}
    tensors = Door(site, folder.ledger(), (), ()).release_model(KIND, model)
    write_tensors(locate_lent_model(run, site), tensors, {"site": site, "kind": KIND})


def load_lent_model(run: Run, site: str) -> DeployedModel:
    """The model a site lent, checked before it is used."""
    file = locate_lent_model(run, site)
    tensors, _ = read_tensors(file)
    try:
        model = run.deployed({n.removeprefix(MODEL): t for n, t in tensors.items()})
    except RuntimeError as err:
        raise RunError(
            f"what site {site!r} lent is no model of this run",
            where=str(file),
            hint="Delete the file and ask the site again.",
        ) from err
    if not all(bool(t.isfinite().all()) for t in tensors.values()):
        raise RunError(f"the model that site {site!r} lent is not finite", where=str(file))
    return model
