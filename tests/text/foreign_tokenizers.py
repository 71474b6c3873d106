"""Small tokenizers whose decoders do not work on bytes, in the manner of other model families."""

from tokenizers import AddedToken, Tokenizer, decoders, models

_LETTERS = "abcé한"


def _vocabulary() -> list[str]:
    """Unknown, the 256 byte tokens, then words with and without a leading space."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["▁", "▁▁", "\ufffd", ".", "n't", "##a", "##b"]
    return ["<unk>", *bytes_, *words, *_LETTERS, *(f"▁{letter}" for letter in _LETTERS)]


def _tokenizer(decoder: decoders.Decoder | None) -> Tokenizer:
    vocab = {piece: index for index, piece in enumerate(_vocabulary())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken("</s>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """As Llama 2: drops the space at the start of a text."""
    steps = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    return _tokenizer(decoders.Sequence(steps))


def byte_fallback_keeping_space() -> Tokenizer:
    """As Gemma."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return _tokenizer(decoders.Sequence(steps))


def metaspace() -> Tokenizer:
    return _tokenizer(decoders.Metaspace())


def word_piece() -> Tokenizer:
    return _tokenizer(decoders.WordPiece())


def no_decoder() -> Tokenizer:
    return _tokenizer(None)


ALL = [byte_fallback, byte_fallback_keeping_space, metaspace, word_piece, no_decoder]
