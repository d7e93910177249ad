"""Links and commands of the docs are true."""

import re

import pytest

from vitrail.cli.app import COMMANDS, load_command
from vitrail.methods import METHODS
from vitrail.release.defense_reference import make_reference_lines as defense_lines

PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")


def pages(project):
    return sorted(page for pattern in PAGES for page in project.glob(pattern))


def test_every_relative_link_leads_somewhere(project):
    broken = [
        f"{page.relative_to(project)} -> {target}"
        for page in pages(project)
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def test_every_page_can_be_reached_from_the_index(project):
    seen, todo = set(), [project / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            found = (page.parent / target).resolve()
            if found.suffix == ".md" and found.exists():
                todo.append(found)
    assert set(pages(project)) <= seen


def test_every_command_and_method_is_in_the_reference(project):
    commands = (project / "docs/reference/commands.md").read_text(encoding="utf-8")
    methods = (project / "docs/reference/methods.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"`vitrail {name}" in commands
    for name, method in METHODS.items():
        if method.__module__.startswith("vitrail."):
            assert f"| `{name}` |" in methods
            assert "arXiv" not in method.paper or method.paper in methods


@pytest.mark.parametrize("word", ["vitrail run", "vitrail init", "vitrail data check"])
def test_the_readme_starts_a_user_with_commands_that_exist(project, word):
    assert word in (project / "README.md").read_text(encoding="utf-8")


def test_the_reference_of_defenses_is_what_the_code_says(project):
    page = (project / "docs" / "reference" / "defenses.md").read_text(encoding="utf-8")
    assert page == "\n".join(defense_lines())


def test_every_hop_of_the_walk_and_every_room_exists(project):
    """The architecture page names files and what in them does the work: each must be there."""
    page = (project / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    source = project / "src" / "vitrail"
    hops = re.findall(r"^\|[^|]*\| `([a-z_/]+\.py)` \| (.*) \|$", page, re.M)
    assert len(hops) > 15
    for file, what in hops:
        text = (source / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([A-Za-z_.]+)`", what):
            last = name.split(".")[-1]
            if last != "py":
                assert re.search(rf"(def|class) {last}\b", text), f"{file} has no {name}"
    rooms = {path.name for path in source.iterdir() if (path / "__init__.py").exists()}
    named = set(re.findall(r"^\| `([a-z_]+)/` \|", page, re.M))
    assert rooms == named, rooms ^ named


def test_every_template_that_is_named_exists(project):
    from vitrail.plugin_templates import KINDS

    text = (project / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--kind ([a-z-]+)", text)) <= set(KINDS)


@pytest.mark.parametrize("page", ["run-a-real-federation", "watch-a-real-federation"])
def test_the_commands_on_real_federations_exist_with_their_options(project, page):
    """Refuted by a command, or an option of one, that nobody can type."""
    text = (project / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    vitrail (.+)$", text, re.MULTILINE)
    assert lines
    for line in lines:
        words = line.split()
        command = load_command(words.pop(0))
        while getattr(command, "commands", None):
            command = command.commands[words.pop(0)]
        known = {option for param in command.params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
