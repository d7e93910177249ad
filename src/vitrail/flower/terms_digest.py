"""The terms of a run as JSON, and the digest an operator agrees to. Imports nothing heavy."""

from __future__ import annotations

import hashlib
import json
from typing import Any

Terms = dict[str, dict[str, Any]]


def digest_terms(terms: Terms) -> str:
    """A fingerprint of the terms: what an operator agreed to, and nothing else."""
    text = json.dumps(terms, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
