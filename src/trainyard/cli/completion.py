"""`trainyard completion SHELL`: the script that a shell sources to complete commands. command/job_names.py
completes the names of jobs."""

from __future__ import annotations

import click

_PROGRAM, _VARIABLE = "trainyard", "_TRAINYARD_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options and the names of jobs.

    \b
    bash: trainyard completion bash >> ~/.bash_completion
    zsh:  trainyard completion zsh > ~/.zfunc/_trainyard     (a folder of $fpath)
    fish: trainyard completion fish > ~/.config/fish/completions/trainyard.fish
    """
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    if shell_class is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    # Not source(): that starts bash to check its version, which must be at least 4.4 as the documents say.
    completer = shell_class(click.get_current_context().find_root().command, {}, _PROGRAM, _VARIABLE)
    click.echo(completer.source_template % completer.source_vars())
