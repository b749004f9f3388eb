"""docs/samples.md: what the shipped model writes, unselected; `python tools/make_samples.py > docs/samples.md`.

Each prompt is used once per seed, with the commands' default sampling.
"""

from __future__ import annotations

from reviser.decoding.presets import DEFAULT, PAPER
from reviser.decoding.writer import Text, Writer
from reviser.proofreading.edits import shift
from reviser.proofreading.proofread import Edited

SEEDS = (1, 2)
PROMPTS = (
    "The old lighthouse", "Photosynthesis is", "In 1923, the city of", "The river Thames", "Neurons in the brain",
    "She was born in", "The main difference between cats and dogs", "A black hole", "During the Second World War",
    "To install the package,", "The village has a population of", "Our results suggest that", "Bees are",
    "The film was directed by", "Once upon a time", "My favourite recipe", "Many people think that",
)  # fmt: skip
GAPS = (
    ("The old lighthouse", " until morning."),
    ("The capital of France is", ", a city on the river Seine."),
    ("Water freezes at", " and boils at 100 degrees."),
    ("She opened the door and", " before she went to sleep."),
    ("The university was founded in", " and has about 20,000 students."),
    ("Bees are important because", ". Without them many crops would fail."),
    ("In the experiment, mice were", ", and their behaviour was recorded."),
    ("He played for", " until he retired in 1998."),
)
MANY = ("The ___ lighthouse ___ until ___.", "___ storm ___ boat ___ morning ___")
REVISED = ("The old lighthouse", "My first job was in a bakery, and", "To install the package,")
ERRORS = (
    "Dear Mr Smith, thank you for you're letter of monday, wich I recieved this morning.",
    "I am writting to you becuase the package have not arrive yet.",
    "The goverment should to reduce the taxes for peoples who has a low income.",
    "In my opinion, every students must have there own computer in these days.",
    "To instal the package, run the folowing command and than restart you're server.",
    "This function return a list of all file in the the folder, sorted by there size.",
    "She looked at him and don't said nothing, because she was to tired too argue.",
    "It was a dark and stormy night, and the dogs was barking at the moon.",
    "He go to school by bus everyday and he like it very much.",
    "The results suggests that the effect of temperature on growth are small.",
    "We met in the café where my grandmother used to sell her paintings.",
    "Its been a long time since the cat licked it's paw.",
)

HEAD = """# Samples of the shipped model

Nothing here is selected: two seeds for every prompt, one after the other, from
`python tools/make_samples.py > docs/samples.md`. The commands give the same, for example
`reviser generate 'Bees are' --seed 1` and `reviser infill 'He played for ___ until he retired in 1998.' --seed 2`; on
another kind of processor a close choice may fall the other way. What was proofread was written
to have errors, all but one; ~~old~~ became **new**, as in the drafts that were revised by
`reviser generate TEXT --seed 1 --max-tokens 120 --sampling paper --revise 2`. Elsewhere the given text is **bold**.
What was told to be written out of order was told so by `--out-of-order`.
After each text: actions for tokens, how many insertions were not at the end of the text so far, and "cut off" where a
limit ended it.
"""


def show_text(text: Text, before: str, behind: str) -> str:
    """One text as a Markdown quotation."""
    new = text.new.strip("\n").replace("\n", "  \n> ")
    return f"> **{before}**{new}{f'**{behind}**' if behind else ''} ({describe(text)})"


def show_line(text: str) -> str:
    return text.strip("\n").replace("\n", "  \n> ")


def show_edits(edited: Edited) -> str:
    """A text with its changes and their probabilities."""
    shown, place = "", 0
    for edit in edited.edits:
        before, after = edit.before, edit.after
        space = " " if before[:1] == after[:1] == " " else ""  # marks that begin with a space are none
        before, after = before.removeprefix(space), after.removeprefix(space)
        shown += edited.original[place : edit.start] + space
        shown += f"~~{before}~~" if before.strip() else before
        shown += f"**{after}** ({edit.probability:.2f})" if after.strip() else after
        place = edit.end
    return shown + edited.original[place:]


def describe(text: Text) -> str:
    states, alphabet = list(text.trajectory.states()), text.draft.rules.alphabet
    suffix = text.draft.suffix
    inside = sum(
        alphabet.is_insert(action) and before.cursor < len(before.tokens) - suffix
        for action, before in zip(text.trajectory.actions, states, strict=False)
    )
    ended = "" if text.has_stopped else ", cut off"
    return f"{text.num_actions} for {text.num_tokens}, {inside} inside{ended}"


def main() -> None:
    writer = Writer.from_pretrained()
    print(HEAD)
    print("## Continued\n")
    for prompt in PROMPTS:
        for seed in SEEDS:
            [text] = writer.generate(prompt, seed=seed, sampling=DEFAULT)
            print(f"{show_text(text, prompt, '')}\n")
    print("## Told to write out of order\n")
    for prompt in REVISED:
        for seed in SEEDS:
            [text] = writer.generate(prompt, seed=seed, sampling=DEFAULT, out_of_order=True)
            print(f"{show_text(text, prompt, '')}\n")
    print("## Filled\n")
    for prefix, suffix in GAPS:
        for seed in SEEDS:
            [text] = writer.infill(prefix, suffix, seed=seed, sampling=DEFAULT)
            print(f"{show_text(text, prefix, suffix)}\n")
    for parts in MANY:
        for seed in SEEDS:
            [text] = writer.infill(parts, seed=seed, sampling=DEFAULT)
            print(f"> {parts.replace('_', chr(92) + '_')}  \n> {show_line(text.text)}\n")
    print("## Drafts and their revisions\n")
    for prompt in REVISED:
        [text] = writer.generate(prompt, seed=SEEDS[0], max_tokens=120, sampling=PAPER, revise=2)
        assert text.revision is not None, "it was asked for"
        shown = show_edits(Edited(text.revision.original[len(prompt) :], shift(text.revision.edits, -len(prompt))))
        print(f"> **{prompt}**{show_line(shown)} ({text.revision.num_actions} actions to revise)\n")
    print("## Proofread\n")
    for given in ERRORS:
        print(f"> {show_edits(writer.edit(given))}\n")


if __name__ == "__main__":
    main()
