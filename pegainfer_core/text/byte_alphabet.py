"""The printable alphabet in which byte-level BPE vocabularies spell raw bytes.

Knows the 256-entry map alone; which tokens are spelled in it is the tokenizer's business.
"""

from types import MappingProxyType
from typing import Final

__all__ = ["BYTE_TO_CHAR", "CHAR_TO_BYTE", "token_text_to_bytes"]


def _printable(byte: int) -> bool:
    # Latin-1's visible characters, without the soft hyphen (173).
    return 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255


def _byte_to_char() -> dict[int, str]:
    """Visible bytes stand for themselves; the others take 256, 257, ... in order (GPT-2)."""
    hidden = [byte for byte in range(256) if not _printable(byte)]
    moved = {byte: chr(256 + index) for index, byte in enumerate(hidden)}
    return {byte: moved.get(byte, chr(byte)) for byte in range(256)}


BYTE_TO_CHAR: Final = MappingProxyType(_byte_to_char())
CHAR_TO_BYTE: Final = MappingProxyType({char: byte for byte, char in BYTE_TO_CHAR.items()})

# `str.translate` with this table and one Latin-1 encode is several times faster than a lookup a
# character; characters that are visible Latin-1 but spell no byte must not slip through.
_TRANSLATION: Final = {ord(char): byte for char, byte in CHAR_TO_BYTE.items()} | {
    byte: 0x10FFFF for byte, char in BYTE_TO_CHAR.items() if ord(char) != byte
}


def token_text_to_bytes(text: str) -> bytes:
    """Bytes of a token as a byte-level decoder sees it.

    A text with any character outside the alphabet is not spelled in it and stands for its own
    UTF-8 bytes (added tokens such as `<｜User｜>`); this is the rule of the `tokenizers` library's
    ByteLevel decoder, so that both give the same text.
    """
    try:
        return text.translate(_TRANSLATION).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8")
