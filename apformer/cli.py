"""The command line: `apformer COMMAND ...`, and the one place where errors become sentences and exit codes.

Commands are imported when they are called, so that `apformer --help` does not wait for JAX.
"""

import difflib
import os
import sys

from apformer.errors import DISK, USAGE, UserError
from apformer.flags import parse

HELP = """usage: apformer COMMAND [RUN] [--flag value ...]

Transformers that learn arithmetic progressions, and know how well.

  train      train a model, then evaluate it on progressions it has never seen
  resume     go on with a run that was stopped, bit for bit
  predict    continue a progression: apformer predict RUN "007 010 013" --terms 3
  evaluate   exact match by position, difference and carries; loss against the Bayes floor
  doctor     versions, devices, disk and permissions

RUN is a run directory; without it, the latest. `apformer COMMAND --help` lists the flags of a command.

exit codes: 0 done, 2 usage, 3 data, 4 checkpoint, 5 non-finite, 6 disk, 7 locked, 130/143 stopped and saved
"""


def train(args):
    from apformer import experiment, recipes

    experiment.train(recipes.parse(args))


def resume(args):
    from apformer import experiment

    experiment.resume(parse(experiment.Resume, args, "apformer resume"))


def predict(args):
    from apformer import predict

    predict.predict(parse(predict.Predict, args, "apformer predict"))


def evaluate(args):
    from apformer import experiment

    experiment.evaluate(parse(experiment.Evaluate, args, "apformer evaluate"))


def doctor(args):
    from apformer import doctor

    doctor.doctor(parse(doctor.Doctor, args, "apformer doctor"))


COMMANDS = {"train": train, "resume": resume, "predict": predict, "evaluate": evaluate, "doctor": doctor}


def main(args=None):
    """Run one command; the exit code of the process. What is not the user's to mend keeps its traceback."""
    args = sys.argv[1:] if args is None else list(args)
    if not args or args[0] in ("-h", "--help"):
        print(HELP, end="", file=sys.stdout if args else sys.stderr)
        return 0 if args else USAGE
    try:
        if args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(COMMANDS)}"
            raise UserError(f"there is no command {args[0]}: {hint}", USAGE)
        COMMANDS[args[0]](args[1:])
        sys.stdout.flush()
    except UserError as error:
        return _fail(error, error.exit_code)
    except BrokenPipeError:
        # Who reads our output has had enough, as in `apformer predict ... | head`.
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
