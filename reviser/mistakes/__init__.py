"""Mistakes in clean text, fresh every time: what a proofreader is trained on. No torch here.

kinds.py             the kinds of mistakes and their rates
english.py           English words that are confused, left out or exchanged
word_sources.py      misspellings and inflections out of installed packages, and the words of a corpus
word_table.py        all that into a table for one tokenizer
mistake_table.py     the table, and how text falls into words
word_bpe.py          a word's bytes to tokens
table_file.py        the table as a file
make.py              mistakes in one text, in plain Python
mistake_kernels.py   the same in many texts, by a kernel
"""
