"""The command line: `vitrail`."""

from __future__ import annotations

import os
import sys
import traceback


def main() -> None:
    """Run the command line; an error is one sentence on stderr and a code that is not 0."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    if "--allow-plugins" in sys.argv:
        sys.argv.remove("--allow-plugins")
        from vitrail.registry import allow_folder_plugins

        allow_folder_plugins()
    code = _run_app(debug)
    try:
        sys.stdout.flush()  # else Python complains of a closed pipe after the last word
    except BrokenPipeError:
        _silence_stdout()
    sys.exit(code)


def _run_app(debug: bool) -> int | str | None:
    """The exit code of the command that the words name."""
    try:
        from vitrail.cli.app import app

        app()
    except SystemExit as end:
        if _is_caused_by(end, BrokenPipeError):
            _silence_stdout()
            return 0
        return _report_stop() if _is_caused_by(end, KeyboardInterrupt) else end.code
    except KeyboardInterrupt:  # before typer had a say
        return _report_stop()
    except Exception as err:
        if debug:
            traceback.print_exc()
        return _report(err)
    return 0


def _is_caused_by(end: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether an exit came of something else: typer and rich make their own exit of it."""
    while end is not None and not isinstance(end, kind):
        end = end.__context__
    return end is not None


def _report_stop() -> int:
    _say("stopped; what was finished is kept. `vitrail resume RUN` goes on.")
    return 130


def _silence_stdout() -> None:
    """Nobody reads stdout any more: what is left to say goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(err: Exception) -> int:
    from vitrail.errors import VitrailError

    if isinstance(err, VitrailError):
        _say(str(err))
        return err.code
    if isinstance(err, MemoryError):
        _say("memory ran out. Use fewer workers, a smaller image_size or data.limit.")
        return 3
    name = type(err).__name__
    _say(f"{name}: {err}. This is a fault of Vitrail: please report what --debug prints.")
    return 70


def _say(text: str) -> None:
    print(f"vitrail: {text}", file=sys.stderr)
