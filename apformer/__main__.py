import sys

from apformer.cli import main

sys.exit(main())
