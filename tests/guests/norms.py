"""An action from outside complearn: writes how long the model's parameters are."""

import torch

from complearn.training.engine.trainer import ACTIONS


@ACTIONS.register("norms")
def write_norm(trainer, result, label: str = "norm"):
    if trainer.processes.main:
        norm = torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()]).norm()
        trainer.state.log({"kind": label, "step": result.step, "value": float(norm)})
