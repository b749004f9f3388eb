"""A model's jobs for files of any number of lines: in one process, or on the processes of a Ray cluster.

input_lines   a file to blocks of lines
line_job      a line to what a job makes of it
block_worker  a block to answers and failures, by a model
part_files    answers and failures on their way to the output, whole blocks at a time
batch_run     all of it: blocks in order, resumed where it stopped
"""
