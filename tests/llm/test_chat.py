from __future__ import annotations

import pytest

from pegainfer_core import SamplingParams
from pegainfer_core.llm import PromptError
from tests.llm.conftest import MakeLLM, script

GREEDY = SamplingParams(temperature=0)
ABC = script(64, 65, 66, 67, 256)
USER = {"role": "user", "content": "yo"}


def test_one_conversation(make_llm: MakeLLM) -> None:
    (output,) = make_llm(ABC).chat([USER], GREEDY, use_tqdm=False)
    assert output.prompt == "hi|user:yo|@"
    assert output.prompt_token_ids == list(b"hi|user:yo|@")
    assert (output.text, output.finish_reason) == ("ABC", "stop")


def test_several_conversations_and_template_variables(make_llm: MakeLLM) -> None:
    conversations = [
        [USER],
        [USER, {"role": "assistant", "content": [{"type": "text", "text": "A"}]}],
    ]
    outputs = make_llm(ABC).chat(
        conversations, GREEDY, chat_template_kwargs={"greeting": "ho"}, stop="B", use_tqdm=False
    )
    assert [output.prompt for output in outputs] == ["ho|user:yo|@", "ho|user:yo|assistant:A|@"]
    assert [output.text for output in outputs] == ["A", "A"]


def test_continuing_the_last_message(make_llm: MakeLLM) -> None:
    messages = [USER, {"role": "assistant", "content": "zA"}]
    (output,) = make_llm(ABC).chat(messages, GREEDY, continue_final_message=True, use_tqdm=False)
    assert output.prompt == "hi|user:yo|assistant:zA"
    assert output.text == "BC"


def test_no_generation_prompt(make_llm: MakeLLM) -> None:
    (output,) = make_llm(ABC).chat(
        [{"role": "user", "content": "A"}],
        SamplingParams(max_tokens=0),
        add_generation_prompt=False,
        use_tqdm=False,
    )
    assert output.prompt == "hi|user:A|"


def test_a_bad_conversation_is_named(make_llm: MakeLLM) -> None:
    llm = make_llm(ABC)
    with pytest.raises(PromptError, match=r"prompt 1: messages\[0\]\.role must be a string"):
        llm.chat([[USER], [{"content": "yo"}]], GREEDY, use_tqdm=False)
    with pytest.raises(PromptError, match="prompt 0: messages must not be empty"):
        llm.chat([[]], GREEDY, use_tqdm=False)
    assert llm.chat([USER], GREEDY, use_tqdm=False)[0].text == "ABC"
