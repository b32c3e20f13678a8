"""``python -m subjectbench``."""

import sys

from subjectbench.cli import main

sys.exit(main())
