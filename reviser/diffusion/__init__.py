"""Masked diffusion models of the same blocks, data and trainer: MDLM and SEDD.

| what | where |
|---|---|
| what is masked, and what it counts | `noise` |
| the networks, and what they make of a canvas | `denoiser.Mdlm`, `denoiser.Sedd` |
| likelihood bounds | `bound`, `heldout_canvases` |
| writing | `sampler` |
| rows of canvases, the loss | `canvases`, `denoising_loss` |
| what training asks of them | `families` |
| model folders | `denoiser_folder` |
"""
