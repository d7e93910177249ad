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
    try:
        from vitrail.cli.app import app

        app(standalone_mode=True)
    except KeyboardInterrupt:
        _say("stopped; what was finished is kept. `vitrail resume RUN` goes on.")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as err:
        if debug:
            traceback.print_exc()
        sys.exit(_report(err))


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
