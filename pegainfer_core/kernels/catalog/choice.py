"""Kernels that choose tokens from logits."""

from __future__ import annotations

from typing import Final

from pegainfer_core.kernels.catalog.sizes import count_type
from pegainfer_core.kernels.spec import KernelSpec

CHOICE_WORDS: Final = 32
"""int32 words that describe one row's choice; `sampling.choice_words` knows which is what."""

ARGMAX_PARTS: Final = 32
ARGMAX_BLOCK: Final = 1024

CHOICE_PARTS: Final = 64
"""Most parts of a row."""
CHOICE_LANES: Final = 64
"""Groups of a part whose maxima are kept."""
CHOICE_EDGES: Final = 8
CHOICE_FINE_EDGES: Final = 16
CHOICE_LIST: Final = 8192
"""Most listed tokens of a row; the cuts of longer ones are searched for in the whole row."""
REPORT_TOP: Final = 32
"""Most reported tokens beside the chosen one."""
REPORT_WORDS: Final = 4 + 2 * REPORT_TOP
COUNT_BLOCK: Final = 1024

_PART_UNIT: Final = 4096
_BLOCK: Final = 1024
_WARPS: Final = 4
_SUMS_BLOCK: Final = 512
_RULES_BLOCK: Final = 1024
_LISTING_BLOCK: Final = 2048
_FEW_GROUPS: Final = 256
_DRAW_BLOCK: Final = 2048
_SHORT_LIST: Final = 1024
_ENTRIES: Final = 128
_DEPTH: Final = 64


def argmax_parts() -> KernelSpec:
    """Best of parts of rows of logits."""
    return KernelSpec(
        module="argmax",
        function="argmax_parts",
        arguments=(*("*fp32",) * 3, "i32", "i32"),
        constants=(("BLOCK", ARGMAX_BLOCK),),
    )


def argmax_rows() -> KernelSpec:
    """Best of the parts of each row."""
    return KernelSpec(
        module="argmax",
        function="argmax_rows",
        arguments=(*("*fp32",) * 3, "i32"),
        constants=(("BLOCK", ARGMAX_PARTS),),
        num_warps=1,
    )


def part_width(vocab_size: int) -> int:
    """Columns of a part of a row."""
    return -(-vocab_size // (CHOICE_PARTS * _PART_UNIT)) * _PART_UNIT


def choice_peaks(vocab_size: int, num_ids: int) -> KernelSpec:
    """Best, lowest and group maxima of parts of rows."""
    return _exact(
        "choice_peaks",
        "peaks",
        ("*fp32", "*i32", "*fp32", "*i32", *("*fp32",) * 2, *_sizes(vocab_size, num_ids)),
        BLOCK=_BLOCK,
        LANES=CHOICE_LANES,
        ALIGNED=_aligned(vocab_size),
    )


def choice_best() -> KernelSpec:
    """The choice of rows that take their best logit."""
    return _exact(
        "choice_peaks",
        "best",
        ("*i32", "*fp32", *("*i32",) * 3, "i32"),
        num_warps=1,
        PARTS=CHOICE_PARTS,
    )


def choice_bounds(vocab_size: int, num_ids: int) -> KernelSpec:
    """What is known of whole rows after their peaks, and short lists for top_k."""
    parts = ("*fp32", "*i32", *("*fp32",) * 2)
    rows = ("*fp32", "*i32", *("*fp32",) * 2, "*i32")
    lists = ("*i64", "*i32", "*fp32")
    return _exact(
        "choice_peaks",
        "bounds",
        ("*fp32", "*i32", *parts, *rows, *lists, *_sizes(vocab_size, num_ids), "i32"),
        num_warps=8,
        PARTS=CHOICE_PARTS,
        LANES=CHOICE_LANES,
        BLOCK=_LISTING_BLOCK,
        FEW=_FEW_GROUPS,
        LIST=CHOICE_LIST,
        ALIGNED=_aligned(vocab_size),
    )


def choice_sums(vocab_size: int, num_ids: int, *, fine: bool) -> KernelSpec:
    """Masses of parts of rows, whole and above edges."""
    pointers = ("*fp32", "*i32", *("*fp32",) * 2, *("*i64",) * 2, *("*fp32",) * 2)
    return _exact(
        "choice_sums",
        "sums",
        (*pointers, *_sizes(vocab_size, num_ids), "i32"),
        PARTS=CHOICE_PARTS,
        EDGES=CHOICE_EDGES,
        FINE_EDGES=CHOICE_FINE_EDGES,
        BLOCK=_SUMS_BLOCK,
        FINE=int(fine),
        ALIGNED=_aligned(vocab_size),
    )


def choice_collect(vocab_size: int, num_ids: int) -> KernelSpec:
    """Lists of the tokens that matter to the cuts."""
    states = (*("*fp32",) * 3, "*i32", "*fp32", *("*i64",) * 2, *("*fp32",) * 2, "*i32", "*fp32")
    return _exact(
        "choice_sums",
        "collect",
        ("*fp32", "*i32", *states, *_sizes(vocab_size, num_ids), "i32"),
        PARTS=CHOICE_PARTS,
        EDGES=CHOICE_EDGES,
        FINE_EDGES=CHOICE_FINE_EDGES,
        LANES=CHOICE_LANES,
        BLOCK=_BLOCK,
        LIST=CHOICE_LIST,
        ALIGNED=_aligned(vocab_size),
    )


def choice_draw(vocab_size: int, num_ids: int) -> KernelSpec:
    """Exact cuts and the draw."""
    states = ("*fp32", "*i32", "*fp32", "*i32", *("*i64",) * 3, *("*fp32",) * 2)
    return _exact(
        "choice_draw",
        "draw",
        (
            "*fp32",
            "*i32",
            *states,
            "*i32",
            "*fp32",
            *("*i32",) * 2,
            *_sizes(vocab_size, num_ids),
            "i32",
        ),
        num_warps=16,
        PARTS=CHOICE_PARTS,
        EDGES=CHOICE_EDGES,
        FINE_EDGES=CHOICE_FINE_EDGES,
        BLOCK=_DRAW_BLOCK,
        SHORT=_SHORT_LIST,
        LIST=CHOICE_LIST,
        ALIGNED=_aligned(vocab_size),
    )


def apply_rules() -> KernelSpec:
    """Masks, bias and penalties of the rows that have them."""
    return KernelSpec(
        module="choice_rules",
        function="apply_rules",
        arguments=("*fp32", "*i32", "*i32", "i32", "i32:16"),
        constants=(("BLOCK", _RULES_BLOCK), ("ENTRIES", _ENTRIES), ("WORDS", CHOICE_WORDS)),
        contracts=False,
    )


def count_tokens() -> KernelSpec:
    """The tokens of a sequence, into its history."""
    return KernelSpec(
        module="choice_rules",
        function="count_tokens",
        arguments=("*i32", "*i32", "i32", "i32"),
        constants=(("BLOCK", COUNT_BLOCK),),
    )


def score_parts() -> KernelSpec:
    """Log-probabilities of parts of rows."""
    return KernelSpec(
        module="choice_logprobs",
        function="score_parts",
        arguments=(
            "*fp32",
            "*i32",
            "*i32",
            "*fp32",
            "*fp32",
            "*i32",
            "*i64",
            "i32",
            "i32:16",
        ),
        constants=(("BLOCK", _BLOCK), ("LANES", CHOICE_LANES), ("WORDS", CHOICE_WORDS)),
        num_warps=_WARPS,
    )


def report_logprobs() -> KernelSpec:
    """Log-probabilities of rows, and their most likely tokens."""
    return KernelSpec(
        module="choice_logprobs",
        function="report",
        arguments=(
            "*fp32",
            "*i32",
            "*i32",
            "*fp32",
            "*fp32",
            "*i32",
            "*i64",
            "*i32",
            "i32",
            "i32:16",
            "i32",
        ),
        constants=(
            ("PARTS", CHOICE_PARTS),
            ("LANES", CHOICE_LANES),
            ("DEPTH", _DEPTH),
            ("WORDS", CHOICE_WORDS),
            ("REPORT", REPORT_WORDS),
        ),
        num_warps=8,
    )


def choice_specs(vocab_size: int, num_ids: int) -> list[KernelSpec]:
    """Every kernel that chooses among the first `num_ids` of a vocabulary."""
    return [
        choice_peaks(vocab_size, num_ids),
        choice_best(),
        choice_bounds(vocab_size, num_ids),
        choice_sums(vocab_size, num_ids, fine=False),
        choice_sums(vocab_size, num_ids, fine=True),
        choice_collect(vocab_size, num_ids),
        choice_draw(vocab_size, num_ids),
        apply_rules(),
        count_tokens(),
        score_parts(),
        report_logprobs(),
    ]


def _exact(
    module: str,
    function: str,
    arguments: tuple[str, ...],
    *,
    num_warps: int | None = None,
    **constants: int,
) -> KernelSpec:
    """A kernel whose arithmetic is the host's."""
    return KernelSpec(
        module=module,
        function=function,
        arguments=arguments,
        constants=(*constants.items(), ("WORDS", CHOICE_WORDS)),
        num_warps=_WARPS if num_warps is None else num_warps,
        contracts=False,
    )


def _sizes(vocab_size: int, num_ids: int) -> tuple[str, ...]:
    """Types of the vocabulary's size, the number of ids to choose from and the part's width."""
    return (count_type(vocab_size), count_type(num_ids), "i32:16")


def _aligned(vocab_size: int) -> int:
    return int(vocab_size % 4 == 0)
