"""The tokenizer of a checkpoint: text to ids and back, and what single tokens stand for.

Knows files and the `tokenizers` library; knows no model, request or protocol.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers
from tokenizers.processors import Sequence as ProcessorSequence
from tokenizers.processors import TemplateProcessing

from pegainfer_core.text.errors import TokenizerError
from pegainfer_core.text.pieces import (
    ByteLevelPieces,
    TokenBytes,
    uses_byte_fallback,
    uses_byte_level,
)
from pegainfer_core.text.special_tokens import SpecialTokens
from pegainfer_core.text.tokenizer_loading import TokenizerLoader, load_backend

__all__ = ["Tokenizer"]

# The library holds the GIL while it encodes one text, but not while it encodes a batch, which
# costs a short text more than it gains.
_LONG_CHARS = 4096


class Tokenizer:
    """Encodes and decodes with the files of one checkpoint.

    Ids are those of Hugging Face's fast tokenizers, whose library does the work. A text that
    spells a special token (`<|im_end|>`) is encoded to that token.

    Attributes:
        special_ids: ids that `skip_special_tokens` hides.
        bos_id: the begin-of-text token, or None.
        eos_ids: the end token that the tokenizer files declare, if any; see `end_token_ids` for
            all end tokens of a checkpoint.
        pad_id: the padding token, or None.
        byte_level: a text is its tokens' bytes joined and decoded as UTF-8.
        byte_fallback: tokens such as `<0xE2>` stand for single bytes.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, special_tokens: SpecialTokens | None = None
    ) -> None:
        """Take over a loaded `tokenizers.Tokenizer`.

        Raises:
            TokenizerError: the declared eos token is not in the vocabulary.
        """
        special = special_tokens or SpecialTokens()
        self._backend = backend
        # Settings left over from training would cut or pad prompts without a word.
        backend.no_truncation()
        backend.no_padding()
        _mark_special(backend, special.texts.values())
        self.bos_id = self._named_id(special, "bos_token")
        self.pad_id = self._named_id(special, "pad_token")
        eos_id = self._named_id(special, "eos_token")
        if eos_id is None and "eos_token" in special.texts:
            raise TokenizerError(
                f"eos_token {special.texts['eos_token']!r} is not in the tokenizer's vocabulary; "
                "correct tokenizer_config.json"
            )
        self.eos_ids = () if eos_id is None else (eos_id,)
        _add_edge_tokens(backend, special, self.bos_id, eos_id)
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.byte_level = uses_byte_level(backend)
        self.byte_fallback = uses_byte_fallback(backend)
        self._bytes = TokenBytes(backend)
        self._pieces: dict[frozenset[int], ByteLevelPieces] = {}

    @classmethod
    def from_dir(
        cls, directory: str | Path, loaders: Sequence[TokenizerLoader] = ()
    ) -> "Tokenizer":
        """Load the tokenizer of a model folder.

        Args:
            directory: folder of the checkpoint.
            loaders: tried in order when there is no tokenizer.json; each returns None for a
                folder without its files. Families with other formats bring theirs.

        Raises:
            TokenizerError: no usable files; the message names those looked for.
        """
        folder = Path(directory)
        return cls(load_backend(folder, loaders), SpecialTokens.from_dir(folder))

    def _named_id(self, special: SpecialTokens, name: str) -> int | None:
        text = special.texts.get(name)
        return None if text is None else self._backend.token_to_id(text)

    @cached_property
    def vocab_size(self) -> int:
        """One past the highest id with an entry; a model's own vocabulary may be larger."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Ids of a text.

        Args:
            text: any text; "" gives no ids, or the special tokens alone.
            add_special_tokens: let the tokenizer's post-processor add its tokens (a BOS, in
                models that want one). Rendered chat templates hold theirs already: pass False.

        Raises:
            TokenizerError: the text holds half of a surrogate pair, which no UTF-8 can hold, or is
                more than the tokenizer can split.
        """
        if len(text) >= _LONG_CHARS:
            return self.encode_batch([text], add_special_tokens)[0]
        _check_encodable(text)
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        """Ids of several texts, on all cores; as `encode` otherwise.

        Raises:
            TokenizerError: as of `encode`, or a text is more than the tokenizer can split.
        """
        for text in texts:
            _check_encodable(text)
        # The fast variant leaves out the character offsets, which nothing here reads.
        try:
            encodings = self._backend.encode_batch_fast(
                list(texts), add_special_tokens=add_special_tokens
            )
        except BaseException as exc:
            # Where splitting runs into a limit of its own (10 MB of blanks), the library panics:
            # no Exception, so that servers would not answer.
            if type(exc).__name__ != "PanicException":
                raise
            raise TokenizerError(f"text cannot be split into tokens: {exc}") from exc
        return [encoding.ids for encoding in encodings]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        """Text of ids; invalid UTF-8 shows as U+FFFD and ids without an entry as nothing.

        Raises:
            TokenizerError: an id is negative or does not fit 32 bits.
        """
        try:
            return self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
        except OverflowError as exc:
            raise TokenizerError(f"token ids must lie in 0..{2**32 - 1}: {exc}") from exc

    def token_to_id(self, piece: str) -> int | None:
        """Id of a token spelled as in the vocabulary, or None."""
        return self._backend.token_to_id(piece)

    def id_to_piece(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it (`Ġthe`), or None without an entry."""
        return self._backend.id_to_token(token_id)

    def token_bytes(self, token_id: int) -> bytes | None:
        """Bytes the token stands for in the middle of a text, or None without an entry.

        Special and added tokens give their own text in UTF-8.
        """
        return self._bytes[token_id]

    def token_text(self, token_id: int) -> str:
        r"""Readable text of one token, different for different bytes.

        Tokens that are not valid UTF-8 alone read `bytes:\xe2\x82` (OpenAI's form) and ids without
        an entry `token_id:151700`, so that the keys of a logprobs mapping never collide.
        """
        data = self._bytes[token_id]
        if data is None:
            return f"token_id:{token_id}"
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def pieces(
        self, skip_special_tokens: bool, shown_ids: frozenset[int] = frozenset()
    ) -> ByteLevelPieces:
        """Shared table of what each id shows; for byte-level decoders only.

        Args:
            skip_special_tokens: hide special tokens.
            shown_ids: those shown all the same.

        Raises:
            TokenizerError: the decoder is not byte-level.
        """
        if not self.byte_level:
            raise TokenizerError("this tokenizer's decoder does not work on bytes")
        hidden = self.special_ids - shown_ids if skip_special_tokens else frozenset()
        if hidden not in self._pieces:
            self._pieces[hidden] = ByteLevelPieces(self._backend, hidden)
        return self._pieces[hidden]


def _check_encodable(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise TokenizerError(
            f"text holds half of a surrogate pair ({text[exc.start]!r}) at character {exc.start}"
        ) from exc


def _mark_special(backend: tokenizers.Tokenizer, texts: Iterable[str]) -> None:
    """Make the named tokens special even where tokenizer.json does not flag them."""
    flagged = {
        token.content for token in backend.get_added_tokens_decoder().values() if token.special
    }
    for text in texts:
        if text not in flagged and backend.token_to_id(text) is not None:
            backend.add_special_tokens([text])


def _add_edge_tokens(
    backend: tokenizers.Tokenizer, special: SpecialTokens, bos_id: int | None, eos_id: int | None
) -> None:
    """Obey `add_bos_token` / `add_eos_token: true` where tokenizer.json's own steps do not.

    DeepSeek-V2's files declare the BOS in tokenizer_config.json alone.
    """
    empty = backend.encode("").ids
    template, used = ["$A"], []
    if special.add_bos and bos_id is not None and empty[:1] != [bos_id]:
        template.insert(0, special.texts["bos_token"])
        used.append((special.texts["bos_token"], bos_id))
    if special.add_eos and eos_id is not None and empty[-1:] != [eos_id]:
        template.append(special.texts["eos_token"])
        used.append((special.texts["eos_token"], eos_id))
    if not used:
        return
    edges = TemplateProcessing(single=template, special_tokens=used)
    present = backend.post_processor
    backend.post_processor = edges if present is None else ProcessorSequence([present, edges])
