"""``python -m subjectbench``, as the rules call it."""

import gc
import sys

# Importing torch and transformers makes some hundred thousand objects that live to the end. To
# look among them for garbage takes a quarter of a small job's time.
gc.set_threshold(50_000, 20, 20)

from subjectbench.cli import main  # noqa: E402

status = main()
gc.freeze()
sys.exit(status)
