"""A multistage run of two processes; started by torchrun from test_training_multistage.py."""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


def main(folder):
    from complearn.core.runs import Run
    from complearn.data.attributes.cluster_sampler import Groups
    from complearn.training.runs.launch import make_trainer

    folder = Path(folder)
    trainer = make_trainer(Run.open(folder / "multistage-s0"), progress=False)
    trainer.fit()
    loader = trainer.loader_of(trainer.phases[2])
    batches = [loader.batch(number) for number in range(2 * loader.batches_per_epoch)]
    drawn = {"keys": [batch.keys for batch in batches], "groups": [batch[Groups].numbers.tolist() for batch in batches]}
    drawn |= {
        "assignments": trainer.state.extra["assignments"],
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
    }
    torch.save(drawn, folder / f"drawn-{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
