"""From a draft and a model to a trajectory.

| what | where |
|---|---|
| texts in, texts out: generate, infill, edit, stream | `writer.Writer` |
| what is asked for and given back: requests, events, results | `requests` |
| many sequences at once: rows that are filled again | `row_loop.RowLoop` |
| the same, cached, in torch | `engine.Engine` |
| the same without torch, for int8 weights on a CPU | `cpu.array_engine.ArrayEngine` |
| the plain decoder: one sequence, no cache | `reference.decode` |
| settings of sampling, without torch | `presets.Sampling` |
| how an action is chosen | `sampling.Chooser` |
| drafts as arrays and tensors | `drafts.draft_arrays`, `drafts.draft_inputs` |
| many canvases as tensors | `board.Board` |
| which implementation of step, board and chooser decodes | `backends` |
| numba kernels for few rows on a CPU | `cpu.kernel_model`, `cpu.array_board`, `cpu.array_chooser` |
| the same behind torch's tensors | `cpu.step`, `cpu.board`, `cpu.sampling` |
| the same by Triton kernels and CUDA graphs on a GPU | `gpu.step`, `gpu.board`, `gpu.sampling`, `gpu.graph` |
"""
