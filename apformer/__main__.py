"""`python -m apformer` is `apformer`."""

import sys

from apformer.cli import main

sys.exit(main())
