"""Actions and canvases in, scores of the next action out.

| what | where |
|---|---|
| the Transformer, parallel and step by step | `transformer.Transformer`, `cache.Cache` |
| packed rows and the attention kernels | `attention.Layout`, `attention.choose` |
| what it sees of the canvas, by name | `canvas_kinds.CanvasKind`, `conditioning.CanvasInput` |
| where a JUMP goes | `pointer.Pointer` |
| negative log-likelihood over valid actions | `loss` |
| parameters and floating-point operations | `transformer.num_parameters`, `transformer.flops_per_position` |
| model folders | `checkpoint.save_pretrained`, `checkpoint.from_pretrained` |
| the published checkpoints | `author.import_checkpoint` |
"""
