"""`vitrail personalize`: a head of one's own, and a way back."""

from typer.testing import CliRunner

from vitrail.cli.app import app


def test_the_command_says_what_changed_and_what_did_not(tiny):
    run = tiny(method={"name": "fedgrasp"}, run={"rounds": 1, "local_reference": False})
    site = run.sites[0]
    done = CliRunner().invoke(app, ["personalize", str(run.path), "--site", site, "--epochs", "2"])
    assert done.exit_code == 0, done.output
    assert f"global model at {site}" in done.output and "accuracy" in done.output
    assert "the global model is unchanged" in done.output


def test_a_site_is_required_and_epochs_are_positive(tiny):
    run = tiny(method={"name": "fedgrasp"}, run={"rounds": 0, "local_reference": False})
    assert CliRunner().invoke(app, ["personalize", str(run.path)]).exit_code == 2
    none = ["personalize", str(run.path), "--site", run.sites[0], "--epochs", "0"]
    assert CliRunner().invoke(app, none).exit_code == 2
