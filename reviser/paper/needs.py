"""What a step of a reproduction needs that may not be there: enough prompts, and packages that score texts."""

from __future__ import annotations

from reviser.errors import MissingPackageError
from reviser.evaluation.plan import Step
from reviser.evaluation.texts import MIN_TEXTS
from reviser.paper.setup import NEEDS_EVALUATOR, Setup


def missing_reason(setup: Setup, step: Step) -> str:
    """Why a step is left out: too few prompts or, in scale debug, which must run anywhere, no evaluator."""
    from reviser.evaluation.evaluators import require

    if step.name == "mauve" and (count := num_written(setup)) < MIN_TEXTS:
        more = f"--n {MIN_TEXTS}" if count == setup.num_prompts else "more documents"
        return f"MAUVE needs at least {MIN_TEXTS} prompts, and there are {count}; give {more}"
    if setup.scale.name != "debug" or step.kind not in NEEDS_EVALUATOR:
        return ""
    try:
        if step.name == "mauve":
            require("mauve")
        require_evaluator(setup)
    except MissingPackageError as error:
        return str(error)
    return ""


def require_evaluator(setup: Setup) -> None:
    from reviser.evaluation.evaluators import PACKAGES, require

    require("transformers")
    if setup.evaluator in PACKAGES:
        PACKAGES[setup.evaluator].find()


def num_written(setup: Setup) -> int:
    """Prompts that texts continue: as many as are asked for, or as the documents gave."""
    from reviser.evaluation.generations import read_generations

    written = setup.written("continuation", "ar")
    found = {each.prompt_id for each in read_generations(written)} if written.is_file() else range(setup.num_prompts)
    return min(len(found), setup.num_prompts)
