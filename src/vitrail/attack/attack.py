"""What an attack is: a view of a server in, findings out. Attacks register beside themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from pydantic import ValidationError

from vitrail.attack.findings import Findings
from vitrail.attack.job import Job
from vitrail.attack.view import Needs, View
from vitrail.config.load import to_config_error
from vitrail.config.schema import Section
from vitrail.errors import ConfigError, suggest_name
from vitrail.registry import Registry


class Attack:
    """One way to find something out. `needs` says what it works on; `Options` are its keys.

    An `adaptive` attacker looks at several rounds together and leaves out what a defense noised.
    """

    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    needs: ClassVar[Needs] = "updates"
    adaptive: ClassVar[bool] = False
    Options: ClassVar[type[Section]] = Section

    def __init_subclass__(cls) -> None:
        if cls.needs not in get_args(Needs):
            raise ConfigError(
                f"an attack cannot need {cls.needs!r}",
                where=cls.__name__,
                hint=suggest_name(cls.needs, get_args(Needs)),
            )

    def __init__(
        self, name: str, options: Mapping[str, Any] | None = None, source: str = "config"
    ) -> None:
        self.name = name
        try:
            self.options: Any = self.Options.model_validate_json(
                json.dumps(dict(options or {})), strict=True
            )
        except ValidationError as err:
            raise to_config_error(err, source, self.Options, f"attack.{name}") from None

    def run(self, view: View, job: Job) -> Findings:
        """Try what can be tried with a server's view; `job.truth` is for scoring only."""
        raise NotImplementedError(f"{type(self).__name__} must define run")


ATTACKS: Registry[type[Attack]] = Registry("attack", "attacks")
