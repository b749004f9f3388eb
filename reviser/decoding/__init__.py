"""From a draft and a model to a trajectory.

| what | where |
|---|---|
| texts in, texts out: generate, infill, edit, stream | `writer.Writer` |
| what is asked for and given back: requests, events, results | `requests` |
| many sequences at once, cached, rows refilled | `engine.Engine` |
| the plain decoder: one sequence, no cache | `reference.decode` |
| settings of sampling, without torch | `presets.Sampling` |
| how an action is chosen | `sampling.Chooser` |
| drafts as tensors | `drafts.draft_inputs` |
| many canvases as tensors | `board.Board` |
| which implementation of step, board and chooser decodes | `backends` |
| the same by numba kernels for few rows on a CPU, in float32 and int8 | `cpu.step`, `cpu.board`, `cpu.sampling` |
| the same by Triton kernels and CUDA graphs on a GPU | `gpu.step`, `gpu.board`, `gpu.sampling`, `gpu.graph` |
| how fast decoding is | `decode_speed.measure` |
"""
