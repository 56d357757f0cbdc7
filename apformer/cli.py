"""The command line: `apformer COMMAND ...`, and the one place where errors become sentences and exit codes.

Commands are imported when they are called, so that `apformer --help` does not wait for JAX.
"""

import difflib
import os
import sys

from apformer.commands import certify as certify_
from apformer.errors import DISK, USAGE, UserError
from apformer.flags import parse


def train(args):
    """Train a model, then evaluate it on progressions it has never seen."""
    from apformer.commands import train as experiment
    from apformer.runs import recipes

    experiment.train(recipes.parse(args))


def resume(args):
    """Go on with a run that was stopped, bit for bit."""
    from apformer.commands import train as experiment

    experiment.resume(parse(experiment.Resume, args, "apformer resume"))


def predict(args):
    """Continue a progression: apformer predict RUN "007 010 013" --terms 3."""
    from apformer.commands import predict

    predict.predict(parse(predict.Predict, args, "apformer predict"))


def generate(args):
    """Write text with a language model: apformer generate RUN --prompt "ROMEO:" --tokens 200."""
    from apformer.commands import generate as compose

    compose.generate(parse(compose.Generate, args, "apformer generate"))


def translate(args):
    """Translate a sentence, or a file of them: apformer translate RUN "seven hundred and five"."""
    from apformer.commands import translate

    translate.translate(parse(translate.Translate, args, "apformer translate"))


def evaluate(args):
    """Measure exact match by position, difference and carries, and the loss against the Bayes floor."""
    from apformer.commands import evaluate as examine

    examine.evaluate(parse(examine.Evaluate, args, "apformer evaluate"))


def certify(args):
    """Enumerate every context there is: the count, the errors, the smallest margin."""

    certify_.certify(parse(certify_.Certify, args, "apformer certify"))


def report(args):
    """Write one offline page that shows a run, and its model at work: apformer report RUN."""
    from apformer.commands import report as page

    page.report(parse(page.Report, args, "apformer report"))


def export(args):
    """Write the model to one file for other programs: apformer export RUN --to safetensors|stablehlo."""
    from apformer.commands import export

    export.export(parse(export.Export, args, "apformer export"))


def doctor(args):
    """Say what runs here would run on: versions, devices, disk and permissions."""
    from apformer.commands import doctor

    doctor.doctor(parse(doctor.Doctor, args, "apformer doctor"))


COMMANDS = {
    command.__name__: command
    for command in (train, resume, predict, generate, translate, evaluate, certify, report, export, doctor)
}

HELP = f"""usage: apformer COMMAND [RUN] [--flag value ...]

Transformers that learn arithmetic progressions, and know how well; language models of a text, and translators.

{"".join(f"  {name:10}{command.__doc__}{chr(10)}" for name, command in COMMANDS.items())}
RUN is a run directory; without it, the latest. `apformer COMMAND --help` lists the flags of a command.

exit codes: 0 done, 2 usage, 3 data, 4 checkpoint, 5 non-finite, 6 disk, 7 locked, 130/143 stopped and saved
"""


def main(args=None):
    """Run one command; the exit code of the process. What is not the user's to mend keeps its traceback."""
    args = sys.argv[1:] if args is None else list(args)
    try:
        if not args or args[0] in ("-h", "--help"):
            print(HELP, end="", file=sys.stdout if args else sys.stderr, flush=True)
            return 0 if args else USAGE
        if args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(COMMANDS)}"
            raise UserError(f"there is no command {args[0]}: {hint}", USAGE)
        COMMANDS[args[0]](args[1:])
        sys.stdout.flush()
    except UserError as error:
        return _fail(error, error.exit_code)
    except BrokenPipeError:
        # Who reads our output has had enough, as in `apformer predict ... | head`; say no more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}; see `apformer doctor` for disk and permissions", DISK)
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    return 0


def _fail(sentence, exit_code):
    print(f"apformer: {sentence}", file=sys.stderr)
    return exit_code
