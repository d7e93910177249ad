"""A store of assets: files named by the digest of what they hold, so that none is ever stale."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from vitrail.errors import RunError
from vitrail.files import read_tensors, report_write_errors, write_tensors
from vitrail.release.asset import Asset


class AssetStore:
    """`assets/` of the server or of a site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """The file of one asset."""
        return self.folder / f"{digest}.safetensors"

    def put(self, asset: Asset) -> None:
        """Keep an asset; one that is there already is not written again."""
        path = self.path(asset.digest)
        if not path.exists():
            write_tensors(path, asset.tensors, {"digest": asset.digest})

    def get(self, digest: str) -> Asset:
        """Read an asset back, and make sure that it is the one that was meant."""
        path = self.path(digest)
        if not path.exists():
            raise RunError(
                "an asset that this round builds on is not here",
                where=str(path),
                hint="Restore the folder `server/assets` of this run, or start a new run.",
            )
        asset = Asset.of(read_tensors(path)[0])
        if asset.digest != digest:
            raise RunError("this asset is not what its name says", where=str(path))
        return asset

    def take(self, digest: str, source: AssetStore) -> None:
        """Bring an asset over from another store of this machine; on one disk it is one file."""
        target = self.path(digest)
        if target.exists() or not source.path(digest).exists():
            return
        with report_write_errors(target):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source.path(digest), target)
            except FileExistsError:
                return
            except OSError:  # another disk, or one without links
                temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
                shutil.copyfile(source.path(digest), temporary)
                temporary.replace(target)
