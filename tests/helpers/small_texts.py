"""Texts to learn byte pairs from: English, many scripts, code and digits."""

import inspect
import itertools

from hypothesis import strategies as st

from apformer.tasks.progressions import generator

_ENGLISH = """It was a bright morning, and the sea lay still. "You'll never find it," the old man said; "I've looked for
thirty years, and I don't think it's there." The girl wasn't listening: she was counting the stones, one by one, as the
water drew back over them. THEY'D BEEN HERE BEFORE. She'd seen the same three stones, the same white line of foam...

"Look!" she said.   "There -- where the water's darker." He couldn't see anything at all.


"""
_SCRIPTS = """Быстрая лиса прыгает через ленивую собаку. الثعلب البني السريع يقفز فوق الكلب الكسول।
素早い茶色の狐が、のろまな犬を飛び越える。敏捷的棕色狐狸跳过了懒狗。
빠른 갈색 여우가 게으른 개를 뛰어넘는다. तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।
Flinke Füchse über mürrische Möpse: naïve café, cafe\u0301, ＡＢＣ, ½ kg, Ⅷ, x² + y³.
🙂🙃👍\U0001f3fd🇩🇪 👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 It’s «ſo»: ’S, 'ſ, ’ſ, 'S.\u00a0\u2003\u200b\t\r\n\r\n
"""
_DIGITS = "".join(generator.render(first, 37, 12, 4) + "\n" for first in range(0, 3000, 171))
TEXTS = {
    "english": _ENGLISH * 3,
    "scripts": _SCRIPTS * 2,
    "code and digits": inspect.getsource(generator) + _DIGITS + "1234567 0x7fff 3.14159\r\n\r\n\tend",
}
ALL = "".join(TEXTS.values())
# Few letters, so that pairs overlap, repeat and tie.
few_letters = st.text("ab c1\n'", max_size=40)
# Not assigned ones: the library and Python may know different versions of Unicode.
any_text = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=30)
# Neighbours of every kind the patterns tell apart.
_KINDS = ["a", "S", "é", "日", "ſ", "'", "'ll", "’", "1", "22", "²", "Ⅷ", "!", "_", "🙂", "\u0301", "\u200b", "\0"]
_KINDS += [" ", "  ", "\t", "\u00a0", "\n", "\r\n", "\x85", "\u2028", "\x1c"]
kinds = st.lists(st.sampled_from(_KINDS), max_size=12).map("".join)
every_pair_of_kinds = ["".join(pair) for pair in itertools.product(_KINDS, repeat=2)]
