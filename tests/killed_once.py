"""hinge_siglip, whose process is killed in the middle of the second phase the first time that a run is launched."""

import os
import signal
import sys
from pathlib import Path

from hinge_siglip import Hinge, Sigmoid

from complearn.training.engine.phases import Phase
from complearn.training.methods.registry import method


class KilledOnce(Sigmoid):
    def after_step(self, step):
        mark = Path(sys.argv[1]) / "killed"  # the run's folder, as `python -m complearn.launch` is given it
        if step >= 14 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@method("killed_once", about="a margin hinge, then SigLIP", colour=6)
def killed_once(model, steps, ramp=0):
    first = max(1, steps // 2)
    return [Phase("hinge", first, Hinge(), ramp=ramp), Phase("sigmoid", steps - first, KilledOnce())]
