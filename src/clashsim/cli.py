"""The command line: assembles the commands, and reports a user's mistake as one sentence.

Every command has a module in `clashsim.commands`, with its options as a frozen dataclass and a
function that runs it.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Annotated, Any, NamedTuple

import tyro
from tyro.conf import FlagCreatePairsOff, subcommand

from clashsim.commands import (
    advise,
    bench,
    calibrate,
    contact,
    demo,
    doctor,
    evaluate,
    execute,
    export,
    fit,
    import_logs,
    inspect,
    loop,
    plan,
    record,
    sample,
    segment,
    show,
    sweep,
    train,
    view,
)
from clashsim.commands.terminal import plain, plain_output
from clashsim.core.errors import ClashError

ABOUT = "From a MuJoCo scene and about ten recorded impacts to a calibrated collision model."
_USER_MISTAKE = 2  # exit code
_INTERRUPTED = 130  # exit code of a program that Ctrl-C ended
_NARROWEST = 40  # columns: --help is wrapped no narrower, even in a narrower terminal


class Command(NamedTuple):
    """A command.

    Attributes:
        options: Dataclass of its options, whose docstring is its help text.
        run: Function that runs it with these options.
    """

    options: type
    run: Callable[[Any], None]


# In the order in which --help lists them: from logs to a tested model, its uses, then the rest.
COMMANDS: dict[str, Command] = {
    "import": Command(import_logs.ImportOptions, import_logs.run),
    "inspect": Command(inspect.InspectOptions, inspect.run),
    "segment": Command(segment.SegmentOptions, segment.run),
    "calibrate": Command(calibrate.CalibrateOptions, calibrate.run),
    "fit": Command(fit.FitOptions, fit.run),
    "sweep": Command(sweep.SweepOptions, sweep.run),
    "show": Command(show.ShowOptions, show.run),
    "view": Command(view.ViewOptions, view.run),
    "export": Command(export.ExportOptions, export.run),
    "advise": Command(advise.AdviseOptions, advise.run),
    "plan": Command(plan.PlanOptions, plan.run),
    "execute": Command(execute.ExecuteOptions, execute.run),
    "train": Command(train.TrainOptions, train.run),
    "evaluate": Command(evaluate.EvaluateOptions, evaluate.run),
    "loop": Command(loop.LoopOptions, loop.run),
    "sample": Command(sample.SampleOptions, sample.run),
    "contact": Command(contact.ContactOptions, contact.run),
    "record": Command(record.RecordOptions, record.run),
    "bench": Command(bench.BenchCommandOptions, bench.run),
    "demo": Command(demo.DemoOptions, demo.run),
    "doctor": Command(doctor.DoctorOptions, doctor.run),
}


def overview() -> str:
    """All commands, each with the first line of its help, wrapped to the width of the terminal."""
    width = max(_NARROWEST, shutil.get_terminal_size((100, 24)).columns)
    lines = ["usage: clashsim COMMAND ...", "", ABOUT, ""]
    for name, command in COMMANDS.items():
        summary = str(command.options.__doc__).split("\n")[0]
        lines += textwrap.wrap(f"  {name:<10} {summary}", width, subsequent_indent=" " * 13)
    lines += ["", "clashsim COMMAND --help has an example and all options of each."]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments of the command line without the program's name; None takes `sys.argv`.

    Returns:
        The exit code; a user's mistake is one sentence on standard error and exit code 2.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["-h"], ["--help"]):
        print(overview())
        return 0
    try:
        options = _parse(arguments)
        run = next(command.run for command in COMMANDS.values() if type(options) is command.options)
        with plain_output():
            run(options)
        _flush_output()
    except ClashError as error:
        print(plain(f"clashsim: {error}"), file=sys.stderr)
        return _USER_MISTAKE
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        with suppress(OSError):
            _flush_output()
        return 0
    except OSError as error:
        print(plain(f"clashsim: {_sentence(error)}"), file=sys.stderr)
        return _USER_MISTAKE
    except KeyboardInterrupt:
        print(
            "clashsim: interrupted; long work keeps what was finished, "
            "and the same command continues from it",
            file=sys.stderr,
        )
        return _INTERRUPTED
    return 0


def _parse(arguments: list[str]) -> Any:
    """The options of the command that the arguments name."""
    choices = []
    for name, command in COMMANDS.items():
        choices.append(Annotated[command.options, subcommand(name)])
    any_options: Any = reduce(or_, choices)
    return tyro.cli(
        any_options,
        prog="clashsim",
        args=arguments,
        description=ABOUT,
        config=(FlagCreatePairsOff,),
    )


def _sentence(error: OSError) -> str:
    """A sentence on an error of a file, which may be standard output itself."""
    cause = error
    try:
        _flush_output()
    except OSError as output_error:
        if not error.filename:
            cause = output_error
    file = f"{cause.filename}: " if cause.filename else ""
    return f"{file}{cause.strerror or cause}"


def _flush_output() -> None:
    """Flush standard output; if that fails, discard the rest, or Python would retry at exit."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "standard output") from None


if __name__ == "__main__":
    sys.exit(main())
