"""From a seed and a model to a trajectory.

| what | where |
|---|---|
| the plain decoder: one sequence, no cache | `reference.decode` |
| many sequences at once, cached, rows refilled | `engine.Engine` |
| texts in, texts out: generate, infill, edit, stream | `writer.Writer` |
| how an action is chosen | `sampling.Sampling`, `sampling.Chooser` |
| many canvases as tensors | `board.Board` |
| the same for few rows on a CPU, in float32 and int8 | `lean.CpuStep`, `lean_board`, `lean_sampling` |
"""
