"""What forked processes share: modules, imported and not yet used."""

import encodings.ascii
import encodings.idna
import encodings.utf_8_sig  # noqa: F401
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


import reviser.batch.batch_run
import reviser.cli
import reviser.data.corpus
import reviser.decoding.writer
import reviser.evaluation.suites
import reviser.evaluation.systems
import reviser.own_states.dagger
import reviser.reports.text
import reviser.training.api
import reviser.training.heldout
import reviser.training.loop  # noqa: F401
