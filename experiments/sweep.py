"""Compare combinations of flags, each with several seeds: `python experiments/sweep.py --position alibi,relative`.

`--help` says how; apformer/sweep/sweep.py is where it is done.
"""

import sys

from apformer.errors import UserError
from apformer.sweep.sweep import sweep

if __name__ == "__main__":
    try:
        sweep(sys.argv[1:])
    except UserError as error:
        print(f"sweep: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
