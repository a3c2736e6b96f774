"""Token patterns that find places in C++ sources, for tools/mutants; tools/mutants.toml describes their form.

A pattern is matched on tokens: comments, white space and preprocessor lines do not count, and adjacent string literals
are one token. Pure functions of texts: no files, no builds. A pattern that cannot be read raises ValueError.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

TOKEN = re.compile(
    r"""
    (?P<space>^[ \t]*\#(?:\\\n|[^\n])*|[^\S\n]+|\n+|\\\n|//(?:\\\n|[^\n])*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]*)\(.*?\)(?P=delimiter)")
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<literal>(?:u8|[uUL])"(?:\\.|[^"\\\n])*"|(?:u8|[uUL])?'(?:\\.|[^'\\\n])*')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?\w|\.)*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<variable>\$[A-Za-z_]\w*)
  | (?P<operator><=>|\.\.\.|->\*?|::|\+\+|--|<<=?|&&|\|\||[-+*/%&|^=!<>]=|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
KEYWORD = re.compile(
    r"""
    auto | bool | break | case | catch | char | class | const | constexpr | continue | decltype |
    default | delete | do | double | else | enum | explicit | extern | false | float | for | friend
    | if | inline | int | long | mutable | namespace | new | noexcept | nullptr | operator | private
    | protected | public | return | short | signed | sizeof | static | static_cast | struct | switch
    | template | this | throw | true | try | typedef | typename | union | unsigned | using | virtual
    | void | volatile | while
    """,
    re.VERBOSE,
)
OPENING, CLOSING = frozenset("([{"), frozenset(")]}")


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str
    text: str
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Match:
    """Token positions: the first, and the one past the last; what $names are bound to; the runs that `...` took."""

    begin: int
    end: int
    names: dict[str, str]
    runs: list[tuple[int, int]]


def tokens_of(text: str) -> list[Token]:
    tokens: list[Token] = []
    for found in TOKEN.finditer(text):
        kind = str(found.lastgroup)
        if kind == "space":
            continue
        token = Token(kind, found[0], found.start(), found.end())
        if kind == "string" and tokens and tokens[-1].kind == "string":
            before = tokens.pop()
            token = Token(kind, before.text[:-1] + token.text[1:], before.begin, token.end)
        tokens.append(token)
    return tokens


def run_ends(tokens: list[Token], at: int) -> Iterator[int]:
    """Where a run that begins at `at` may end, the shortest first."""
    depth = 0
    while True:
        if depth == 0:
            yield at
        if at == len(tokens) or (depth == 0 and tokens[at].text in CLOSING | {";"}):
            return
        depth += (tokens[at].text in OPENING) - (tokens[at].text in CLOSING)
        at += 1


class Pattern:
    def __init__(self, find: str, replace: str = "") -> None:
        self.parts = tokens_of(find)
        self.replace = replace
        self.inserted = [
            part for part in tokens_of(replace) if part.kind == "variable" or part.text == "..."
        ]
        if not self.parts or "..." in (self.parts[0].text, self.parts[-1].text):
            raise ValueError("a pattern begins and ends with a token other than `...`")
        known = {part.text for part in self.parts if part.kind == "variable"}
        for part in self.inserted:
            if part.kind == "variable" and part.text not in known:
                raise ValueError(f"`find` binds no {part.text}")
        if self._count(self.inserted) > self._count(self.parts):
            raise ValueError("`replace` has more `...` than `find`")

    @staticmethod
    def _count(parts: list[Token]) -> int:
        return sum(part.text == "..." for part in parts)

    def matches(self, tokens: list[Token]) -> list[Match]:
        """One for each token at which the pattern begins to match."""
        return [
            match
            for at in range(len(tokens))
            if self._fits(self.parts[0], tokens[at], {}) and (match := self._match(tokens, at))
        ]

    def _match(
        self, tokens: list[Token], begin: int, first: int = 0, bound: dict[str, str] | None = None
    ) -> Match | None:
        names, at = dict(bound or {}), begin
        for number, part in enumerate(self.parts[first:], first):
            if part.text == "...":
                for end in run_ends(tokens, at):
                    if rest := self._match(tokens, end, number + 1, names):
                        return Match(begin, rest.end, rest.names, [(at, end), *rest.runs])
                return None
            if at == len(tokens) or not self._fits(part, tokens[at], names):
                return None
            at += 1
        return Match(begin, at, names, [])

    @staticmethod
    def _fits(part: Token, token: Token, names: dict[str, str]) -> bool:
        """Also binds the name of a variable, if it fits."""
        if part.kind != "variable":
            return part.text == token.text
        is_name = token.kind == "name" and not KEYWORD.fullmatch(token.text)
        return is_name and names.setdefault(part.text, token.text) == token.text

    def apply(self, text: str, tokens: list[Token], match: Match) -> str:
        """The text with the replacement in place of the match, and otherwise as it was."""
        runs = iter(match.runs)
        made, at = "", 0
        for part in self.inserted:
            if part.kind == "variable":
                value = match.names[part.text]
            else:
                begin, end = next(runs)
                value = text[tokens[begin].begin : tokens[end - 1].end] if begin < end else ""
            made += self.replace[at : part.begin] + value
            at = part.end
        made += self.replace[at:]
        return text[: tokens[match.begin].begin] + made + text[tokens[match.end - 1].end :]


def bodies_of(function: str, tokens: list[Token]) -> list[tuple[int, int]]:
    """Of functions with this name, "Name" or "Class::Name": the positions of the brace before and after each body."""
    return [
        (begin, end)
        for name, begin, end in functions_of(tokens)
        if f"::{name}".endswith(f"::{function}")
    ]


def functions_of(tokens: list[Token]) -> list[tuple[str, int, int]]:
    """The functions defined outside of other functions: name with classes, and the positions of the body's braces."""
    found: list[tuple[str, int, int]] = []
    scopes: list[str] = []
    at = head = 0
    while at < len(tokens):
        text = tokens[at].text
        if text == "{":
            words = [token.text for token in tokens[head:at]]
            scope = _scope(words)
            if scope is not None:
                scopes.append(scope)
            else:
                begin, at = at, _closing(tokens, at)
                if _is_in_initializers(words):
                    at += 1
                    continue
                if name := _function_name(words):
                    found.append(("::".join([*filter(None, scopes), name]), begin, at))
        elif text == "}" and scopes:
            scopes.pop()
        is_access = text == ":" and tokens[at - 1].text in ("public", "private", "protected")
        at += 1
        if text in (";", "{", "}") or is_access:
            head = at
    return found


def _closing(tokens: list[Token], at: int) -> int:
    """The position of the bracket that closes the one at `at`."""
    depth = 0
    for position in range(at, len(tokens)):
        depth += (tokens[position].text in OPENING) - (tokens[position].text in CLOSING)
        if depth == 0:
            return position
    return len(tokens) - 1


def _top_level(words: list[str], opening: str, closing: str) -> Iterator[tuple[int, str]]:
    """Words outside of these brackets, with their positions; an opening bracket counts as outside."""
    depth = 0
    for number, word in enumerate(words):
        depth -= word in closing
        if depth == 0:
            yield number, word
        depth += word in opening


def _scope(words: list[str]) -> str | None:
    """The name of the class that a brace after these words opens; empty for a namespace; None if it opens neither."""
    if "namespace" in words or (words[:1] == ["extern"] and len(words) == 2):
        return ""
    outer = [word for _, word in _top_level(words, "<", ">")]
    if outer[:2] == ["template", "<"]:
        outer = outer[3:]
    if outer[:1] not in (["class"], ["struct"], ["union"]):
        return None
    names = [word for word in (*outer, ":")[1 : (*outer, ":").index(":")] if word.isidentifier()]
    return next((name for name in reversed(names) if name != "final"), "")


def _is_in_initializers(words: list[str]) -> bool:
    """Whether a brace after these words begins the initializer of a member, in a constructor's list."""
    outer = [word for _, word in _top_level(words, "(", ")")]
    return "(" in outer and ":" in outer[outer.index("(") :] and words[-1] not in (")", "}")


def _function_name(words: list[str]) -> str:
    """Of the function whose body a brace after these words begins; empty if it begins none."""
    if "operator" in words:
        first = words.index("operator")
        return "".join(words[first : first + 1 + words[first + 1 :].index("(", 1)])
    for number, word in _top_level(words, "<", ">"):
        if word == "=":
            return ""
        if word == "(":
            begin = number
            while begin > 0 and (
                words[begin - 1] in ("::", "~")
                or (words[begin - 1].isidentifier() and (begin == number or words[begin] == "::"))
            ):
                begin -= 1
            return "".join(words[begin:number])
    return ""
