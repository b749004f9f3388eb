"""Text files to token shards to batches.

sources and unpack read files, stream makes batches of documents, corpus and writer make the data folder that
shards reads, batches draws trajectories from it.
"""
