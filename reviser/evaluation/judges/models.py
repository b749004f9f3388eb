"""All judges and their messages under one name."""

from reviser.evaluation.judges.chat import ChatJudge
from reviser.evaluation.judges.critic import CriticJudge
from reviser.evaluation.judges.likelihood_judge import EvaluatorScorer, LikelihoodJudge
from reviser.evaluation.judges.messages import CHAT_TEMPLATE, CRITIC_TEMPLATE, read_template

__all__ = [
    "ChatJudge", "CriticJudge", "LikelihoodJudge", "EvaluatorScorer", "CHAT_TEMPLATE", "CRITIC_TEMPLATE",
    "read_template",
]  # fmt: skip
