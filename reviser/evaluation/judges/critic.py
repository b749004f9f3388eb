"""A judge on this machine: a `transformers` chat model that replies with a verdict alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from reviser.errors import CheckpointError, ConfigError, DataError
from reviser.evaluation.judges.judgments import FAILED, Judgment
from reviser.evaluation.judges.messages import CRITIC_TEMPLATE, make_message, read_verdict, short_hash
from reviser.evaluation.judges.pairs import Pair

if TYPE_CHECKING:
    from reviser.evaluation.evaluator import Evaluator


class CriticJudge:
    """Decodes greedily and reads the verdict."""

    def __init__(
        self, evaluator: Evaluator, batch: int = 8, reply_tokens: int = 16, template: str = CRITIC_TEMPLATE
    ) -> None:
        if batch < 1 or reply_tokens < 1:
            raise ConfigError(f"--batch {batch} and --reply-tokens {reply_tokens} must be at least 1")
        if not evaluator.tokenizer.chat_template:
            raise CheckpointError(f"{evaluator.name} has no chat template; give a chat model or choose another judge")
        self.evaluator, self.batch, self.reply_tokens, self.template = evaluator, batch, reply_tokens, template
        self.sha256: str | None = evaluator.sha256
        dtype = evaluator.about["dtype"]
        self.name = f"critic {evaluator.name} {evaluator.sha256[:8]} in {dtype}, message {short_hash(template)}"

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        source = iter(pairs)
        while chunk := list(islice(source, self.batch)):
            for pair, reply in zip(chunk, self._replies(chunk), strict=True):
                yield Judgment.of(pair, read_verdict(reply, "AB") or FAILED, reply, self.name)

    def _replies(self, pairs: list[Pair]) -> list[str]:
        import torch

        tokenizer, model = self.evaluator.tokenizer, self.evaluator.model
        tokenizer.padding_side = "left"
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        messages = [[{"role": "user", "content": make_message(self.template, pair)}] for pair in pairs]
        given = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to(self.evaluator.device)
        length = given["input_ids"].shape[1]
        if length + self.reply_tokens > self.evaluator.limit:
            raise DataError(
                f"{self.evaluator.name} reads {self.evaluator.limit} tokens, but a pair takes {length} and its reply "
                f"{self.reply_tokens}; choose a critic with a longer context"
            )
        with torch.inference_mode():
            ids = model.generate(
                **given, max_new_tokens=self.reply_tokens, do_sample=False, temperature=None, top_p=None, top_k=None,
                use_cache=True, pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        replies: list[str] = tokenizer.batch_decode(ids[:, length:], skip_special_tokens=True)
        return replies
