"""Text files to token shards to batches.

sources and unpack read files, stream makes batches of documents, corpus and shard_writer make the data folder that
shards reads. examples cuts documents into what is given and what is to be written, drawing draws a trajectory for
each, packing and filling put them into rows, batches does all that in the background, in threads or in workers.
"""
