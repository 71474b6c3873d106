"""The offline door: prompts in, answers out, in one Python process and without a server."""

from __future__ import annotations

import logging
import os
import weakref
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.contract import CoreOptions, EngineError, HealthState, SamplingParams
from pegainfer_core.llm.answer import TextSettings
from pegainfer_core.llm.batch import run_batch
from pegainfer_core.llm.conversations import read_conversations
from pegainfer_core.llm.job import make_jobs, read_prompts
from pegainfer_core.llm.options import split_options
from pegainfer_core.llm.progress import ProgressBar
from pegainfer_core.llm.prompt_error import PromptError
from pegainfer_core.llm.session import EngineSession
from pegainfer_core.plugin import PluginHost, choose_model, plan_launch
from pegainfer_core.text import ModelText

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from pegainfer_core.contract import EngineInfo, EngineMetrics
    from pegainfer_core.llm.answer import Answer
    from pegainfer_core.llm.conversations import Conversations
    from pegainfer_core.llm.job import ParamsArgument, Prompt, Prompts
    from pegainfer_core.llm.options import OptionValue
    from pegainfer_core.llm.request_output import RequestOutput
    from pegainfer_core.text import Tokenizer

_log = logging.getLogger("pegainfer.llm")


class LLM:
    """A model loaded in this process.

    Use it as a context manager or call `close`; a forgotten one is closed when it is collected or
    the program ends. Works inside a running event loop, notebooks included, and from several
    threads at once.

    Sampling parameters: a `SamplingParams` means exactly what it says, its own defaults included.
    Without one, the checkpoint's generation_config.json applies, and `SamplingParams`' defaults
    where it is silent; `default_params` gives these to change single fields. That is the server's
    precedence: request, then generation_config.json, then the defaults.

    Args:
        model: A checkpoint folder, or a repo id in the Hugging Face cache.
        family: Model family to use without asking which one claims the checkpoint.
        revision: Commit or ref of a cached repo.
        generation_config: Where defaults come from: "auto" (the checkpoint), "none" (its end
            tokens alone), or another folder or file.
        threads: Compute threads of a CPU backend; None leaves the library's default.
        host: Plugins to choose from; None loads the installed ones.
        options: Core's and the family's options under the names of their `pegainfer serve` flags,
            such as `max_model_len=4096`.

    Raises:
        ConfigError: The checkpoint cannot be served this way.
        UserFault: No family, or more than one, claims it; or an option is unknown, unused or wrong.
        TextError: Tokenizer, chat template or generation_config.json are missing or unusable.
        EngineError: The engine could not start.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        family: str | None = None,
        revision: str | None = None,
        generation_config: str = "auto",
        threads: int | None = None,
        host: PluginHost | None = None,
        **options: OptionValue,
    ) -> None:
        if host is None:
            host = PluginHost.load()
            for warning in host.warnings:
                _log.warning("%s", warning)
        chosen = choose_model(host, model, family=family, revision=revision)
        core, own = split_options(options, chosen.offered.family)
        launch = plan_launch(
            host,
            chosen,
            options=msgspec.structs.replace(CoreOptions(), **core),
            given=core.keys(),
            family_options=own,
            threads=threads,
        )
        for note in launch.plan.notes:
            _log.info("%s", note)
        # Before the weights: a missing tokenizer should not cost their loading time.
        self._text = ModelText.load(
            chosen.model_dir,
            chosen.config,
            generation_config=generation_config,
            template_defaults=launch.family.chat.template_defaults,
        )
        self._session = EngineSession(launch)
        self._finalizer = weakref.finalize(self, self._session.close)

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine, such as `max_model_len`."""
        return self._session.client.info

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._text.tokenizer

    def metrics(self) -> EngineMetrics:
        """The engine's newest counters and gauges."""
        return self._session.client.metrics()

    def load_lora(self, name: str, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Load an adapter, for the `lora` of later calls.

        Args:
            name: What it is called.
            path: Its folder, in PEFT's format.
            replace: Whether it takes the place of one of that name.

        Raises:
            AdapterError: It cannot be loaded.
            EngineError: The engine died, or this object is closed.
        """
        client = self._session.client
        self._session.run(client.load_adapter(name, os.fspath(path), replace=replace))

    def unload_lora(self, name: str) -> None:
        """Take an adapter out.

        Raises:
            AdapterError: There is none of that name, or a call in another thread uses it.
            EngineError: The engine died, or this object is closed.
        """
        self._session.run(self._session.client.unload_adapter(name))

    def default_params(self, **overrides: object) -> SamplingParams:
        """What applies without sampling parameters, with single fields changed.

        Args:
            overrides: Fields of `SamplingParams`.

        Raises:
            TypeError: There is no such field.
        """
        defaults = self._text.generation.sampling()
        if "max_new_tokens" in defaults:
            defaults["max_tokens"] = defaults.pop("max_new_tokens")
        return msgspec.structs.replace(msgspec.convert(defaults, SamplingParams), **overrides)

    def generate(
        self,
        prompts: Prompts,
        sampling_params: ParamsArgument = None,
        *,
        n: int = 1,
        stop: str | Sequence[str] | None = None,
        include_stop_str_in_output: bool = False,
        skip_special_tokens: bool = True,
        use_tqdm: bool = True,
        lora: str | None = None,
    ) -> list[RequestOutput]:
        """Continue prompts.

        Everything that can be checked beforehand is, before anything runs. A prompt that the engine
        refuses later does not stop the others.

        Args:
            prompts: A text, a list of token ids, or a list of such. Texts get the special tokens
                that the tokenizer adds, such as a BOS.
            sampling_params: One for all, one a prompt, or None for the model's defaults.
            n: Samples of each prompt; those of a seeded one differ, and are the same every time.
            stop: Strings that end an answer; they are not part of its text.
            include_stop_str_in_output: Show the stop string, or the client's stop token, after all.
            skip_special_tokens: Leave special tokens out of the text.
            use_tqdm: Show a progress bar on stderr.
            lora: Name of a loaded adapter to answer with.

        Returns:
            `n` answers a prompt, those of the first prompt first.

        Raises:
            PromptError: A prompt or its parameters are at fault; the message names the index, and
                `outputs` holds the others' answers.
            TypeError: A prompt is neither a text nor a list of ids.
            ValueError: The lists differ in length, a stop string is empty, or `n` is less than 1.
            EngineError: The engine died, or this object is closed.
        """
        settings = TextSettings.of(stop, include_stop_str_in_output, skip_special_tokens)
        read = read_prompts(prompts, self._text.tokenizer)
        return self._answer(read, sampling_params, settings, n, use_tqdm, lora)

    def chat(
        self,
        messages: Conversations,
        sampling_params: ParamsArgument = None,
        *,
        chat_template_kwargs: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        n: int = 1,
        stop: str | Sequence[str] | None = None,
        include_stop_str_in_output: bool = False,
        skip_special_tokens: bool = True,
        use_tqdm: bool = True,
        lora: str | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several.

        Args:
            messages: A list of messages, or a list of such lists.
            sampling_params: As for `generate`, as are the settings not named here.
            chat_template_kwargs: Further variables of the template, such as `enable_thinking`.
            tools: Function declarations for the template.
            add_generation_prompt: Open the assistant's turn; None does unless the final message is
                continued.
            continue_final_message: Go on inside the last message.
            n: As for `generate`.
            stop: As for `generate`.
            include_stop_str_in_output: As for `generate`.
            skip_special_tokens: As for `generate`.
            use_tqdm: As for `generate`.
            lora: As for `generate`.

        Returns:
            `n` answers a conversation, in their order; `prompt` is the rendered conversation.

        Raises:
            PromptError: As for `generate`; also when the template refuses a conversation.
            ValueError: As for `generate`.
            EngineError: As for `generate`.
        """
        settings = TextSettings.of(stop, include_stop_str_in_output, skip_special_tokens)
        prompts = read_conversations(
            messages,
            self._text,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template_kwargs=chat_template_kwargs,
        )
        return self._answer(prompts, sampling_params, settings, n, use_tqdm, lora)

    def close(self) -> None:
        """Stop the engine and give its memory back. Harmless when called again."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(
        self,
        prompts: list[Prompt],
        params: ParamsArgument,
        settings: TextSettings,
        n: int,
        use_tqdm: bool,
        lora: str | None,
    ) -> list[RequestOutput]:
        jobs = make_jobs(prompts, params, self.default_params(), self._session.launch.plan, n)
        bar = ProgressBar(len(jobs), use_tqdm)

        def on_end(answer: Answer, request_id: int | None) -> None:
            bar.advance(answer.num_tokens)
            self._session.tell_plugins(answer, request_id)

        try:
            answers = self._session.run(
                run_batch(self._session.client, self._text, jobs, settings, on_end, lora)
            )
        finally:
            bar.close()
        return self._results(answers, n)

    def _results(self, answers: list[Answer], n: int) -> list[RequestOutput]:
        outputs = [None if answer.failed else answer.result() for answer in answers]
        good = [output for output in outputs if output is not None]
        if len(good) == len(outputs):
            return good
        index = outputs.index(None)
        if self._session.client.health().state is HealthState.DEAD:
            raise EngineError(f"the engine died: {answers[index].detail}")
        raise PromptError(index // n, answers[index].detail, outputs)
