"""A fuzzer guided by coverage: `python fuzz.py TARGET [SECONDS]`. `make test-long` installs atheris for it.

The targets are those of fuzz_targets.py. Each input gives an answer or a PairtonError of one line; anything
else is a fault, and atheris leaves the bytes that cause it in the current folder.
"""

import sys
from functools import partial

import atheris

with atheris.instrument_imports(include=["pairton", "yaml"]):
    from fuzz_targets import WORK, once, seeds


def main() -> None:
    target, seconds = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "60"
    corpus = WORK / "corpus"
    corpus.mkdir()
    for k, content in enumerate(seeds(target)):
        (corpus / str(k)).write_bytes(content)
    limits = [f"-max_total_time={seconds}", "-max_len=1000000", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *limits, str(corpus)], partial(once, target))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
