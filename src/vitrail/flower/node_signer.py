"""Signatures of a site's node key, by which the others know that a public key is its own.

Without them a coordinator, or whoever sits on its wire, could hand out keys of its own and read
every mask. They are worth as much as the node keys are: a coordinator that made the key pairs
(`vitrail flower keys init --site`) has held every private half, and could sign any mask's key in
any site's name. Against it they help only where each site made its own pair (`vitrail flower keys
site`) and compared the public halves it was handed with the other sites; against others, always.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from vitrail.errors import RunError
from vitrail.flower.keys import locate_peer_key
from vitrail.flower.node_key import NODE_KEY
from vitrail.release.head_signatures import is_signed_by_node

_SIGNATURE = ec.ECDSA(hashes.SHA384())


@dataclass(frozen=True)
class NodeSigner:
    """Signs with the node key in a folder; knows the sites whose public keys lie beside it."""

    folder: Path

    def sign(self, statement: bytes) -> str:
        """This site's signature, in hexadecimal."""
        return sign_statement(self.folder / NODE_KEY, statement)

    def accepts(self, site: str, statement: bytes, signature: str) -> bool:
        """Whether a site that this one knows signed a statement."""
        file = locate_peer_key(self.folder, site)
        if not file.is_file():
            raise RunError(
                f"the public key of {site!r} is not here, so its masks cannot be trusted",
                where=str(file.parent),
                hint="Ask the coordinator for the folder that `vitrail flower keys init` made.",
            )
        return verify_statement(file, statement, signature)


def sign_statement(private: Path, statement: bytes) -> str:
    """A signature with the private key in a file, in hexadecimal."""
    try:
        key = serialization.load_ssh_private_key(private.read_bytes(), None)
    except (OSError, ValueError) as err:
        raise RunError(f"the node key cannot be read ({err})", where=str(private)) from err
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RunError("the node key is of another kind", where=str(private))
    return key.sign(statement, _SIGNATURE).hex()


def verify_statement(public: Path, statement: bytes, signature: str) -> bool:
    """Whether the public key in a file fits a signature under a statement."""
    return is_signed_by_node(public.read_bytes(), statement, signature)
