"""What two processes do together; started by torchrun from test_training_processes.py."""

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


def vectors():
    def draw(seed):
        return torch.randn(8, 6, generator=torch.Generator().manual_seed(seed))

    ids = torch.tensor([0, 1, 2, 1, 3, 4, 0, 5])  # two photos with two captions, in both processes' shares
    return draw(0), draw(1), ids


def loss_and_gradients(rank, world, held=None):
    """The contrastive loss of this process's rows, and its gradient for them."""
    from complearn.training.objectives.losses import JointPairs, contrastive_loss, gather

    a, b, ids = vectors()
    share = slice(rank * 8 // world, (rank + 1) * 8 // world)
    a = a[share].requires_grad_()
    b = b[share].requires_grad_()
    scale = torch.tensor(9.0, requires_grad=True)
    pairs = JointPairs(gather(ids[share]), None, share.start, len(a))
    loss = contrastive_loss(F.normalize(a, dim=-1), F.normalize(b, dim=-1), scale, pairs.same, held)
    loss.backward()
    return [loss.detach(), a.grad, b.grad, scale.grad]


def gathered_part(rank):
    """A part of this process's share, and the same part of all processes."""
    from complearn.training.objectives.losses import gather

    rows = 2 * rank + torch.arange(2)
    own = gathered_kind()(rows.float().requires_grad_(), rows % 3 == 0, tuple(map(str, rows.tolist())))
    every = gather(own)
    (every.values * torch.arange(4)).sum().backward()
    return [every.values.detach(), every.marks, every.names, own.values.grad, every.absent is None]


def gathered_kind():
    from complearn.data.pairs import Part

    @dataclass(frozen=True)
    class Three(Part):
        values: torch.Tensor
        marks: torch.Tensor
        names: tuple
        absent: torch.Tensor | None = None

    return Three


def sigmoid_run(folder, processes):
    """A run with a learned bias; its values in this process after each step."""
    from training_objectives import sigmoid_phases, trainer_of

    phases = sigmoid_phases()
    values = []
    if processes.rank:
        # as if this process had drawn another: the main process's value counts
        phases[0].objective.bias.data.fill_(0.0)

    def action(trainer, result):
        return values.append(trainer.objectives[0].bias.item())

    trainer_of(folder, phases, processes, actions=[action]).fit()
    return torch.tensor(values)


def shared_evaluation(trainer, folder):
    """What an evaluation encodes with the help of the other process, without it where that one fails, and alone; and
    how many images each batch of this process had."""
    from complearn.models.scoring import encode_all, evaluation_mode

    model = trainer.model
    pairs = [trainer.loader.pairs[k] for k in range(23)]
    vectors = []
    batches = []
    encode = model.encode_images

    def counted(batch):
        batches.append(len(batch))
        return encode(batch)

    def broken(batch):
        raise MemoryError("no room")

    def evaluation(model):
        sides = {"images": [pair.image for pair in pairs], "texts": [pair.caption for pair in pairs]}
        encoded = [encode_all(model, **{side: items}, batch_size=4) for side, items in sides.items()]
        encoded.append(encode_all(model, images=sides["images"][:3]))  # a batch, which is not divided
        vectors.append([each.values for each in encoded])
        return [{"vectors": sum(map(len, encoded))}]

    trainer.evaluations = {"vectors": evaluation}
    model.encode_images = counted
    trainer.evaluate()
    model.encode_images = broken if trainer.processes.rank else encode
    trainer.evaluate()
    del model.encode_images
    if trainer.processes.main:
        with evaluation_mode(model):
            evaluation(model)
    torch.save([vectors, batches], folder / f"shared-{trainer.processes.rank}.pt")


def main(folder):
    from complearn.core.runs import Run
    from complearn.training.engine.processes import start_processes
    from complearn.training.runs.launch import make_trainer

    folder = Path(folder)
    processes = start_processes("cpu", expected=2)
    assert processes.world == dist.get_world_size() == 2 and processes.rank == dist.get_rank()
    for name, held in (("loss", None), ("blocks", 16)):  # all rows at once, two at a time
        torch.save(loss_and_gradients(processes.rank, 2, held), folder / f"{name}-{processes.rank}.pt")
    torch.save(gathered_part(processes.rank), folder / f"part-{processes.rank}.pt")
    for name in ("whole", "parts"):
        trainer = make_trainer(Run.open(folder / name), progress=False)
        at_phases = []
        keep = trainer.end_phase

        def end_phase(trainer=trainer, at_phases=at_phases, keep=keep):
            at_phases.append({n: v.clone() for n, v in trainer.model.state_dict().items()})
            keep()

        trainer.end_phase = end_phase
        trainer.fit()
        torch.save(at_phases, folder / f"{name}-{processes.rank}.pt")
        if name == "parts":
            shared_evaluation(trainer, folder)
    torch.save(sigmoid_run(folder / "sigmoid", processes), folder / f"sigmoid-{processes.rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
