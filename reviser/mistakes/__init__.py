"""Mistakes in clean text, fresh every time: what a proofreader is trained on. No torch here.

mistake_kinds.py     the kinds of mistakes and their rates
english.py           English words that are confused, left out or exchanged, and spelling by ear
word_sources.py      the words of a corpus; misspellings and inflections out of installed packages
word_table.py        all that into a table for one tokenizer
mistake_table.py     the table, and how text falls into words
word_bpe.py          a word's bytes to tokens
table_file.py        the table as a file
make.py              mistakes in one text, in plain Python
word_kernels.py      numba versions of mistake_table.py and word_bpe.py      mistake_kernels.py  of make.py
mistake_maker.py     many texts through the kernels
"""
