"""The reference of options, from the command line: `python -m vitrail.cli.option_reference`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vitrail.cli.app import COMMANDS, load_command

HEAD = """# Options

Every option of every command; made from the code by `python -m vitrail.cli.option_reference`. What
the commands are for stands under [commands](commands.md).
"""


def list_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by its words, those of groups one by one."""
    for name in COMMANDS:
        yield from _list_inside(name, load_command(name))


def _list_inside(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name, inside in command.commands.items():
        yield from _list_inside(f"{words} {name}", inside)


def list_options(command: click.Command) -> list[click.Option]:
    """What a user may add to a command, but for `--help`."""
    options = [p for p in command.params if isinstance(p, click.Option)]
    return [option for option in options if "--help" not in option.opts and not option.hidden]


def make_reference_lines() -> Iterator[str]:
    """The page, line by line."""
    yield HEAD
    for words, command in list_commands():
        given = [p for p in command.params if isinstance(p, click.Argument)]
        names = "".join(f" {argument.make_metavar(click.Context(command))}" for argument in given)
        yield f"## `vitrail {words}{names}`\n"
        options = list_options(command)
        if not options:
            yield "No options.\n"
            continue
        yield "| option | value | meaning |\n|---|---|---|"
        for option in options:
            opts = ", ".join(f"`{text}`" for text in (*option.opts, *option.secondary_opts))
            value = "" if option.is_flag else f"`{option.make_metavar(click.Context(command))}`"
            cells = (opts, value, " ".join((option.help or "").split()))
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        yield ""


if __name__ == "__main__":
    print("\n".join(make_reference_lines()), end="")
