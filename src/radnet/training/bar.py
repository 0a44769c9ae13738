"""The progress bar of a training run, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(wanted: bool | None, total: int, done: int) -> Iterator[Callable[[float], None]]:
    """A bar on stderr with the loss and the pace."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda value: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("loss {task.fields[loss]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=total, completed=done, loss="-", pace="")

        def tick(value: float) -> None:
            pace = shown.tasks[0].speed
            shown.update(task, advance=1, loss=f"{value:.3e}", pace=f"{pace:.0f} epochs/s" if pace else "")

        yield tick
