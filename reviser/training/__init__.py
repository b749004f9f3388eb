"""From a data folder to a model.

| what | where |
|---|---|
| training from Python, and from the command line | `api.train` |
| the whole config of a run | `settings.RunConfig` |
| named configs | `recipes` |
| optimizers and schedules | `optimizer` |
| what a family of models provides | `families`, `reviser_family` |
| packed rows as tensors, the loss of a batch | `objective`, `feed` |
| the held-out likelihood bound | `heldout` |
| the run folder and its checkpoints | `runs` |
| what is shown of a run | `progress` |
| several processes | `distributed` |
| the loop | `loop` |
"""
