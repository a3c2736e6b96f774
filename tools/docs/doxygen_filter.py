"""Shows Doxygen the comments of a header: it reads those with three slashes, and this project writes two.

Doxygen calls it as `doxygen_filter.py HEADER` and reads its output. The opening comment becomes that of the file. A
comment above a declaration becomes that declaration's; one that an empty line follows belongs to none, and stays as it
is. A comment behind a field becomes that field's.
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"\s*//(?!/)")
BEHIND = re.compile(r"([;,{}]) +// (?!NOLINT)")


def shown(text: str) -> list[str]:
    lines = text.splitlines()
    result: list[str] = []
    block: list[str] = []
    for number, line in enumerate(lines):
        if COMMENT.match(line):
            block.append(line)
            continue
        if block:
            opening = number == len(block)
            if opening:
                result.append("/// \\file")
            follows = opening or line.strip()
            result += [each.replace("//", "///", 1) if follows else each for each in block]
            block = []
        result.append(BEHIND.sub(r"\1  ///< ", line, count=1))
    return result + block


if __name__ == "__main__":
    print("\n".join(shown(pathlib.Path(sys.argv[1]).read_text())))
