"""Local models that sites lend each other for an audit, where they agreed to."""

from __future__ import annotations

from pathlib import Path

from vitrail.engine.deployed import Deployed
from vitrail.engine.federation import Federation
from vitrail.engine.host import MODEL
from vitrail.engine.loaded import Run
from vitrail.engine.reference import ensure_local
from vitrail.engine.sitefolder import SiteFolder
from vitrail.errors import RunError
from vitrail.files import folder_name, read_tensors, write_tensors
from vitrail.release.door import Door

KIND = "local model"


def lent_file(run: Run, site: str) -> Path:
    """Where the model that a site lent lies, for every site to read."""
    return run.folder.server / "lent" / f"{folder_name(site)}.safetensors"


def lend(run: Run, federation: Federation, site: str) -> None:
    """Let a site's local model out, once, with a line in its ledger."""
    if lent_file(run, site).exists():
        return
    ensure_local(run, federation, site)
    own = SiteFolder(run.path, site)
    model = {n: t for n, t in (own.load_model("local") or {}).items() if n.startswith(MODEL)}
    tensors = Door(site, own.ledger(), (), ()).lend(KIND, model)
    write_tensors(lent_file(run, site), tensors, {"site": site, "kind": KIND})


def lent(run: Run, site: str) -> Deployed:
    """The model a site lent, checked before it is used."""
    file = lent_file(run, site)
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
