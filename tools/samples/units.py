"""Cut texts into training units: stretches of plain text and conversations.

A unit is a string that ends with the end-of-text token. Every function takes a random generator,
so that several passes over the same text give different cuts. Knows no token ids.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from samples.chat_format import END_OF_TEXT, Turn, render_conversation
from samples.sentences import num_words, sentence_spans

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from samples.sources import Prose, Scene

_SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "Answer in plain English.",
    "You are a careful writer. Keep your answers short.",
)
_SYSTEM_SHARE = 0.1
_ROUNDS = (1, 1, 1, 2, 3)
_TOPIC = re.compile(
    r"\b[Tt]he ([a-z]{3,})(?=(?: (?:of|is|was|are|were|has|have|had|will|and)\b)|[,.;])"
)
_TOPIC_QUESTIONS = (
    "Tell me about the {topic}.",
    "Tell me about the {topic}.",
    "What can you tell me about the {topic}?",
    "What do you know of the {topic}?",
    "Speak to me of the {topic}.",
    "Write about the {topic}.",
)
_MIN_TOPIC_COUNT = 25
# A reply that names its topic late would teach the model to talk past the question.
_TOPIC_WITHIN_CHARACTERS = 45


def _conversation(turns: list[Turn], rng: random.Random) -> str:
    if rng.random() < _SYSTEM_SHARE:
        turns = [Turn(role="system", content=rng.choice(_SYSTEM_PROMPTS)), *turns]
    return render_conversation(turns) + END_OF_TEXT


def _answer(sentences: Sequence[str], start: int, rng: random.Random) -> list[str]:
    """Take sentences from `start` until a random length is reached."""
    wanted_words, limit_words = rng.randint(14, 60), 90
    taken: list[str] = []
    total = 0
    for sentence in sentences[start:]:
        total += num_words(sentence)
        if total > limit_words and taken:
            break
        taken.append(sentence)
        if total >= wanted_words:
            break
    return taken if 5 <= num_words(" ".join(taken)) <= limit_words else []


def prose_text(prose: Prose, rng: random.Random) -> Iterator[str]:
    """Cut one address or chapter into stretches of plain text.

    None is short: a model that saw short ones would end its completions after a sentence or two.
    """
    sentences = [sentence for run in prose.runs for sentence in run]
    start = 0
    while start < len(sentences):
        end = start + rng.randint(16, 32)
        if len(sentences) - end < 16:
            end = len(sentences)
        yield " ".join(sentences[start:end]) + END_OF_TEXT
        start = end


def prose_chats(prose: Prose, rng: random.Random) -> Iterator[str]:
    """Turn consecutive sentences into conversations: a sentence, then what follows it."""
    for run in prose.runs:
        index = rng.randint(0, 2)
        while index < len(run) - 1:
            turns: list[Turn] = []
            for _ in range(rng.choice(_ROUNDS)):
                answer = _answer(run, index + 1, rng)
                if index >= len(run) or not answer or not 3 <= num_words(run[index]) <= 45:
                    break
                turns.append(Turn(role="user", content=run[index]))
                turns.append(Turn(role="assistant", content=" ".join(answer)))
                index += 1 + len(answer)
            if turns:
                yield _conversation(turns, rng)
            else:
                index += 1


def topic_counts(proses: Sequence[Prose]) -> Counter[str]:
    """Count the nouns that sentences speak of, found by the words around them."""
    counts: Counter[str] = Counter()
    for prose in proses:
        for run in prose.runs:
            for sentence in run:
                counts.update(_TOPIC.findall(sentence))
    return counts


def topic_chats(prose: Prose, topics: Counter[str], rng: random.Random) -> Iterator[str]:
    """Ask about a noun of a sentence and answer with that sentence and what follows."""
    for run in prose.runs:
        index = rng.randint(0, 2)
        while index < len(run):
            early = _TOPIC.findall(run[index], 0, _TOPIC_WITHIN_CHARACTERS)
            found = [topic for topic in early if topics[topic] >= _MIN_TOPIC_COUNT]
            answer = _answer(run, index, rng) if found else []
            if answer:
                question = rng.choice(_TOPIC_QUESTIONS).format(topic=found[0])
                reply = " ".join(answer)
                turns = [Turn(role="user", content=question), Turn(role="assistant", content=reply)]
                yield _conversation(turns, rng)
            index += max(1, len(answer))


def scene_text(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Cut one scene into stretches of speeches with the speakers' names."""
    start = 0
    while start < len(scene.speeches):
        end = start + rng.randint(15, 30)
        lines = [f"{speech.speaker}: {speech.text}" for speech in scene.speeches[start:end]]
        yield "\n\n".join(lines) + END_OF_TEXT
        start = end


def _shortened(text: str, limit_words: int, *, keep_end: bool) -> str:
    """Keep whole sentences from one end of a speech, within a number of words."""
    spans = sentence_spans(text)
    last = spans[-1][1]
    cuts = [text[s:last] for s, _ in spans] if keep_end else [text[:e] for _, e in reversed(spans)]
    return next((cut for cut in cuts if num_words(cut) <= limit_words), "")


def scene_chats(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Turn consecutive speeches into conversations."""
    index = rng.randint(0, 1)
    while index < len(scene.speeches) - 1:
        turns: list[Turn] = []
        for _ in range(rng.choice(_ROUNDS)):
            if index >= len(scene.speeches) - 1:
                break
            said = _shortened(scene.speeches[index].text, 40, keep_end=True)
            reply = _shortened(scene.speeches[index + 1].text, 90, keep_end=False)
            if not said or num_words(reply) < 6:
                break
            turns += [Turn(role="user", content=said), Turn(role="assistant", content=reply)]
            index += 2
        if turns:
            yield _conversation(turns, rng)
        else:
            index += 1
