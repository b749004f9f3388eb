"""Text files to token shards (`sources`, `corpus`, `writer`, `shards`), token shards to batches (`batches`)."""
