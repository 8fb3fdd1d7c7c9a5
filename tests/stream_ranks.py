"""Two processes train on a stream; the first part is killed; started by torchrun from test_data_streams.py."""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


class Killed(Exception):
    pass


def main(folder):
    from complearn.core.runs import Run
    from complearn.training.engine.processes import start_processes
    from complearn.training.engine.trainer import Trainer
    from complearn.training.runs.launch import make_trainer

    start_processes("cpu", expected=2)
    make_trainer(Run.open(Path(folder) / "whole"), progress=False).fit()
    after = Trainer.after_step

    def struck(self, result):
        if self.state.step == 10:
            raise Killed
        return after(self, result)

    Trainer.after_step = struck
    try:
        make_trainer(Run.open(Path(folder) / "killed"), progress=False).fit()
    except Killed:
        Trainer.after_step = after
    make_trainer(Run.open(Path(folder) / "killed"), progress=False).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
