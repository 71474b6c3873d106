import json
from pathlib import Path

import pytest

from pegainfer_core.testing.byte_tokenizer import BOS_ID, byte_tokenizer
from pegainfer_core.text import ChatTemplate, ChatTemplateError, Tokenizer

_PLAIN = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"
_NEEDS_USER = (
    "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
    "{{ raise_exception('need user') }}{% endif %}" + _PLAIN
)
_CALLS = "{% for m in messages %}{% for c in m.tool_calls or [] %}%s{% endfor %}{% endfor %}"
_WALK = _CALLS.replace(
    "%s", "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}"
)
_DUMP = _CALLS.replace("%s", "{{ c.function.arguments | tojson }}")
_EITHER = _CALLS.replace(
    "%s",
    "{% set a = c.function.arguments %}{% if a is string %}{{ a }}{% else %}{{ a | tojson }}"
    "{% endif %}",
)
_PRINT = _CALLS.replace("%s", "{{ '<' + c.function.arguments + '>' }}")
_SHOW = _CALLS.replace("%s", "<{{ c.function.arguments }}>")


def template(tmp_path: Path, source: str | list[dict[str, str]]) -> ChatTemplate:
    return ChatTemplate.from_dir(byte_tokenizer(tmp_path, chat_template=source))


def _call(arguments: object) -> dict[str, object]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}


def _called(arguments: object) -> list[dict[str, object]]:
    return [
        {"role": "user", "content": "w?"},
        {"role": "assistant", "content": "", "tool_calls": [_call(arguments)]},
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
    ]


class TestMessages:
    """Case A09."""

    def test_text_parts_are_joined_by_a_newline(self, tmp_path: Path) -> None:
        chat = template(tmp_path, _PLAIN)
        parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        for role in ("user", "tool"):
            assert chat.render([{"role": role, "content": parts}]) == f"[{role}|one\ntwo]"

    @pytest.mark.parametrize("content", [{"content": None}, {"content": []}, {}])
    def test_no_content_is_empty(self, tmp_path: Path, content: dict[str, object]) -> None:
        chat = template(tmp_path, _NEEDS_USER)
        assistant = {"role": "assistant", "tool_calls": [_call("{}")], **content}
        messages = [{"role": "user", "content": "w?"}, assistant, {"role": "tool", "content": "5"}]
        assert chat.render(messages) == "[user|w?][assistant|][tool|5]"

    def test_null_fields_and_empty_calls_are_absent(self, tmp_path: Path) -> None:
        chat = template(tmp_path, "{{ messages[0].keys() | list | sort }}")
        message = {"role": "user", "content": "x", "name": None, "tool_calls": []}
        assert chat.render([message]) == "['content', 'role']"

    @pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "thinking"])
    def test_reasoning_under_any_name(self, tmp_path: Path, name: str) -> None:
        chat = template(tmp_path, "{{ messages[0].reasoning_content }}{{ messages[0].reasoning }}")
        assert chat.render([{"role": "assistant", "content": "", name: "hm"}]) == "hmhm"

    def test_a_template_refuses_in_its_own_words(self, tmp_path: Path) -> None:
        chat = template(tmp_path, _NEEDS_USER)
        for role in ("system", "tool"):
            with pytest.raises(ChatTemplateError, match=r"^need user$"):
                chat.render([{"role": role, "content": "x"}])

    @pytest.mark.parametrize(
        ("messages", "param"),
        [
            ([], "messages"),
            ([{"content": "x"}], "messages[0].role"),
            ([{"role": 3}], "messages[0].role"),
            (["x"], "messages[0]"),
            ([{"role": "user", "content": 5}], "messages[0].content"),
            ([{"role": "user", "content": [5]}], "messages[0].content[0]"),
            (
                [
                    {"role": "user", "content": "a"},
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "a"}, {"type": "image_url"}],
                    },
                ],
                "messages[1].content[1]",
            ),
            (
                [{"role": "user", "content": [{"type": "text", "text": None}]}],
                "messages[0].content[0]",
            ),
            ([{"role": "user", "x": {"y": object()}}], "messages[0].x.y"),
            ([{"role": "assistant", "tool_calls": 5}], "messages[0].tool_calls"),
            ([{"role": "assistant", "tool_calls": [5]}], "messages[0].tool_calls[0]"),
            (
                [{"role": "assistant", "tool_calls": [{"function": {"name": None}}]}],
                "messages[0].tool_calls[0].function.name",
            ),
        ],
    )
    def test_wrong_shapes_say_where(self, tmp_path: Path, messages, param: str) -> None:
        with pytest.raises(ChatTemplateError) as caught:
            template(tmp_path, _PLAIN).render(messages)
        assert caught.value.param == param
        assert str(caught.value).startswith(param)

    def test_the_callers_values_stay_as_they_are(self, tmp_path: Path) -> None:
        source = "{% set _ = tools[0].list.append(1) %}{{ tools[0].list }}"
        tools: list[dict[str, object]] = [{"list": []}]
        messages = _called('{"n":3}')
        before = json.dumps(messages)
        chat = template(tmp_path, source)
        assert chat.render(messages, tools=tools) == "[1]"
        assert tools == [{"list": []}]
        assert json.dumps(messages) == before


class TestToolArguments:
    """Case A10."""

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            (_WALK, "n=3;"),
            (_DUMP, '{"n": 3}'),
            (_EITHER, '{"n": 3}'),
            (_PRINT, '<{"n":3}>'),
            (_SHOW, '<{"n":3}>'),
        ],
    )
    def test_each_template_gets_its_form(self, tmp_path: Path, source: str, expected: str) -> None:
        assert template(tmp_path, source).render(_called('{"n":3}')) == expected

    @pytest.mark.parametrize(
        ("source", "expected"), [(_WALK, "n=3;"), (_DUMP, '{"n": 3}'), (_PRINT, '<{"n": 3}>')]
    )
    def test_objects_are_taken_too(self, tmp_path: Path, source: str, expected: str) -> None:
        assert template(tmp_path, source).render(_called({"n": 3})) == expected

    @pytest.mark.parametrize("nothing", ["", " ", None, {}, "{}"])
    @pytest.mark.parametrize(
        ("source", "expected"), [(_WALK, ""), (_DUMP, "{}"), (_EITHER, "{}"), (_PRINT, "<{}>")]
    )
    def test_nothing_is_an_empty_object(
        self, tmp_path: Path, source: str, expected: str, nothing: object
    ) -> None:
        assert template(tmp_path, source).render(_called(nothing)) == expected

    @pytest.mark.parametrize("source", [_WALK, _DUMP, _EITHER, _PRINT])
    @pytest.mark.parametrize(
        "broken", ['{"n":', "[1]", "3", "null", '{"n": NaN}', 5, "[" * 100_000]
    )
    def test_broken_arguments_are_refused(
        self, tmp_path: Path, source: str, broken: object
    ) -> None:
        with pytest.raises(ChatTemplateError) as caught:
            template(tmp_path, source).render(_called(broken))
        assert caught.value.param == "messages[1].tool_calls[0].function.arguments"

    def test_a_template_that_checks_for_text(self, tmp_path: Path) -> None:
        source = _CALLS.replace(
            "%s",
            "{% set a = c.function.arguments %}"
            "{% if a is not string %}{{ raise_exception('text') }}{% endif %}{{ a }}",
        )
        assert template(tmp_path, source).render(_called('{"n":3}')) == '{"n":3}'

    def test_html_characters_and_other_scripts_stay(self, tmp_path: Path) -> None:
        rendered = template(tmp_path, _DUMP).render(_called('{"q": "<a href=\'é\'> & 한"}'))
        assert rendered == '{"q": "<a href=\'é\'> & 한"}'


class TestSelection:
    def test_without_a_template(self, tmp_path: Path) -> None:
        chat = ChatTemplate.from_dir(byte_tokenizer(tmp_path))
        assert not chat
        with pytest.raises(ChatTemplateError, match=r"no chat template.*chat_template\.jinja"):
            chat.render([{"role": "user", "content": "x"}])

    def test_named_templates(self, tmp_path: Path) -> None:
        chat = template(
            tmp_path,
            [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}],
        )
        message = [{"role": "user", "content": "x"}]
        assert chat.render(message) == "plain"
        assert chat.render(message, tools=[]) == "plain"
        assert chat.render(message, tools=[{"type": "function"}]) == "tools"

    def test_only_another_name(self, tmp_path: Path) -> None:
        chat = template(tmp_path, [{"name": "rag", "template": "x"}])
        with pytest.raises(ChatTemplateError, match=r"no default chat template.*rag"):
            chat.render([{"role": "user", "content": "x"}])

    def test_files_go_before_the_config(self, tmp_path: Path) -> None:
        byte_tokenizer(tmp_path, chat_template="config")
        (tmp_path / "chat_template.jinja").write_text("file")
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tool file")
        chat = ChatTemplate.from_dir(tmp_path)
        assert chat.sources == {"default": "file", "tool_use": "tool file"}
        assert chat.render([{"role": "user", "content": "x"}]) == "file"

    @pytest.mark.parametrize("entry", [5, [5], [{"name": "default"}]])
    def test_unknown_form(self, tmp_path: Path, entry: object) -> None:
        byte_tokenizer(tmp_path)
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": entry}))
        with pytest.raises(ChatTemplateError, match=r"tokenizer_config\.json must be"):
            ChatTemplate.from_dir(tmp_path)

    def test_syntax_error_names_file_and_line(self, tmp_path: Path) -> None:
        (tmp_path / "chat_template.jinja").write_text("a\n{% if %}")
        with pytest.raises(ChatTemplateError, match=r"chat_template\.jinja, line 2"):
            ChatTemplate.from_dir(tmp_path)


class TestVariables:
    def test_special_tokens_and_kwargs(self, tmp_path: Path) -> None:
        source = "{{ bos_token }}{{ eos_token }}{{ unk_token }}|{{ enable_thinking }}"
        chat = ChatTemplate.from_dir(
            byte_tokenizer(tmp_path, chat_template=source, prepend_bos=True)
        )
        message = [{"role": "user", "content": "x"}]
        rendered = chat.render(message, template_kwargs={"enable_thinking": False})
        assert rendered == "<bos><eos>|False"

    @pytest.mark.parametrize("name", ["messages", "tools", "chat_template", "a b", "tokenize"])
    def test_reserved_names(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ChatTemplateError) as caught:
            template(tmp_path, _PLAIN).render(
                [{"role": "user", "content": "x"}], template_kwargs={name: "y"}
            )
        assert caught.value.param == f"chat_template_kwargs.{name}"

    def test_documents(self, tmp_path: Path) -> None:
        chat = template(tmp_path, "{{ documents | tojson }}{{ tools }}")
        message = [{"role": "user", "content": "x"}]
        assert chat.render(message, documents=[{"title": "t"}]) == '[{"title": "t"}]None'

    def test_one_bos_whoever_writes_it(self, tmp_path: Path) -> None:
        """Case A14."""
        for source, expected in (("{{ bos_token }}Hi", [BOS_ID, 72, 105]), ("Hi", [72, 105])):
            folder = byte_tokenizer(tmp_path, chat_template=source, prepend_bos=True)
            rendered = ChatTemplate.from_dir(folder).render([{"role": "user", "content": "x"}])
            ids = Tokenizer.from_dir(folder).encode(rendered, add_special_tokens=False)
            assert ids == expected


class TestContinuation:
    _CHATML = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )

    def _render(self, tmp_path: Path, source: str, final: object) -> str:
        messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": final}]
        return template(tmp_path, source).render(
            messages, add_generation_prompt=False, continue_final_message=True
        )

    @pytest.mark.parametrize("final", ["The answer is ", "", "x\n"])
    def test_ends_with_the_message(self, tmp_path: Path, final: str) -> None:
        rendered = self._render(tmp_path, self._CHATML, final)
        assert rendered == f"<|user|>q<|end|>\n<|assistant|>{final}"

    def test_parts(self, tmp_path: Path) -> None:
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}]
        assert self._render(tmp_path, self._CHATML, parts).endswith("<|assistant|>a\nb ")

    def test_a_template_that_trims(self, tmp_path: Path) -> None:
        source = self._CHATML.replace("m.content", "m.content | trim")
        assert self._render(tmp_path, source, " so ").endswith("<|assistant|>so")

    def test_a_template_that_leaves_the_message_out(self, tmp_path: Path) -> None:
        with pytest.raises(ChatTemplateError, match=r"leaves out the final message"):
            self._render(tmp_path, "{{ messages[0].content }}", "x")

    def test_excludes_the_generation_prompt(self, tmp_path: Path) -> None:
        with pytest.raises(ChatTemplateError, match=r"exclude each other"):
            template(tmp_path, _PLAIN).render(
                [{"role": "assistant", "content": "x"}], continue_final_message=True
            )
