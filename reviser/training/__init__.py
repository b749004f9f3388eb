"""From a data folder to a checkpoint.

| what | where |
|---|---|
| the whole config of a run | `settings.RunConfig` |
| named configs | `recipes` |
| optimizers and schedules | `optimizer` |
| packed rows as tensors, the loss of a batch | `objective`, `feed` |
| the held-out likelihood bound | `heldout` |
| the run folder and its checkpoints | `runs` |
| several processes | `distributed` |
| the loop | `loop` |
"""
