"""Model folders to and from the Hugging Face hub, or a server that speaks its protocol.

| what | where |
|---|---|
| the connection: address, token, and what can go wrong as one line | `hub_client.Hub` |
| a folder here to a model there | `pushing.push` |
| a model there to a folder here | `pulling.pull` |

Only the four files of a model folder travel (model/folder.py says which). Nothing in them is executed.
"""
