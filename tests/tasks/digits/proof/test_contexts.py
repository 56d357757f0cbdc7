"""The strings that check.py asks are those of every progression with the least significant digit first."""

from functools import partial
from itertools import product

import jax
import numpy as np

from apformer import model as transformer
from apformer.analysis import certificate
from apformer.decoding.bind import bind
from apformer.model import apply
from apformer.proof import check, network, rounding, witness
from apformer.tasks.digits import natural_order
from apformer.tasks.digits.certificate import contexts as enumerated
from apformer.tasks.digits.proof import contexts
from apformer.tasks.digits.recipes import digits

CFG, DATA = {"n_layers": 2, "window": None, "position": "periodic"}, {"order": "lsb"}


def strings_of(tokens, P, places):
    """(string, the token after it) of each of these places of a text, of which the model sees P."""
    for at in places:
        back = (0, P, P - 1, 2 * P, 2 * P - 1, 2 * P - 2)
        yield (*(tokens[at - 1 - o] if at - 1 - o >= 0 else contexts.START for o in back), tokens[at])


def every_string(most, terms):
    """What every character after the second term depends on, of all progressions with so many digits and terms."""
    found = set()
    for D in range(1, most + 1):
        for y, x in product(range(10**D), repeat=2):
            row = [y + n * (x - y) for n in range(terms)]
            row = row[: next((n for n, term in enumerate(row) if not 0 <= term < 10**D), terms)]
            text = [[term // 10**place % 10 for place in range(D)] + [contexts.SPACE] for term in row]
            tokens = [token for term in text for token in term]
            if len(row) > 2:
                found |= {*strings_of(tokens, D + 1, range(2 * (D + 1) - 1, len(tokens)))}
    return found


def ours():
    (columns,) = contexts.slices(DATA, CFG)
    return {tuple(column) for column in columns.T.tolist()}


def test_every_string_of_a_progression_is_asked():
    """Of terms of one and of two digits. That is all of them but those with digits of three or more places."""
    of_rows, asked = every_string(2, 4), ours()
    assert len(of_rows) > 3000 and of_rows <= asked


def test_no_string_has_two_answers():
    assert len({string[:-1] for string in ours()}) == len(ours())


def test_the_strings_are_those_of_the_texts_that_the_certificate_asks():
    """It writes out texts, and this file places in a term: two derivations of the same contexts."""
    theirs = set()
    for tokens_BT, target_B in enumerated().values():
        P = int(np.argmax(tokens_BT[0] == contexts.SPACE)) + 1
        for tokens, target in zip(tokens_BT.tolist(), target_B.tolist(), strict=True):
            theirs |= {*strings_of([*tokens, target], P, [len(tokens)])}
    assert theirs == ours()


def test_a_text_of_a_string_leads_to_its_logits(random_params):
    """What numpy computes of a string, `model.apply` computes of the text that has it; float32 rounds."""
    cfg = digits(3, "lsb").model
    params = random_params(cfg)
    weights = witness.stored(params)
    config = vars(cfg) | {"position_options": vars(cfg.position_options)}
    assert network.beyond(config) is None
    assert {name: array.shape for name, array in weights.items()} == network.shapes(config)
    (columns,) = contexts.slices(DATA, config)
    codes = np.unique(contexts.strings(columns, DATA, config)[0])
    codes = np.random.default_rng(0).permutation(codes)[:500]
    codes = np.unique(np.append(codes, [code for code in contexts.strings(columns[:, -4000:], DATA, config)[0][:, 0]]))
    ours_NV, seen = network.logits(codes, weights, config), 0
    for which, tokens_BT in contexts.rows(codes, config):
        theirs_BTV = jax.jit(lambda params, tokens_BT: apply(params, tokens_BT, cfg))(params, tokens_BT)
        np.testing.assert_allclose(ours_NV[which], theirs_BTV[:, -1], rtol=2e-4, atol=2e-3)
        seen += len(which)
    assert seen == len(codes)


def test_natural_order_has_the_contexts_of_the_certificate_and_the_logits_of_the_model(random_params):
    """Two programs that share no line, one in whole arrays and one in loops: as many contexts, and as many wrong."""
    cfg = digits(3, "msb").model
    params = random_params(cfg)
    weights = witness.stored(params)
    config = vars(cfg) | {"position_options": vars(cfg.position_options)}
    assert network.beyond(config) is None
    assert {name: array.shape for name, array in weights.items()} == network.shapes(config)
    model, bits_of = bind(transformer, params, cfg), partial(network.bits, weights=weights, cfg=config)
    parts, _ = natural_order.judge(
        {where: natural_order.ask(model, texts) for where, texts in natural_order.texts().items()}
    )
    (columns,) = contexts.slices({"order": "msb"}, config, bits_of)
    codes, truth = contexts.strings(columns, {"order": "msb"}, config)
    strings, right, ours_NV, margin = check.ask(codes, truth, weights, config)
    tally = certificate.together(parts.values())
    assert (columns.shape[1], (margin <= 0).sum()) == (tally["contexts"], tally["errors"])
    assert abs(margin.min() - tally["smallest_margin"]) < 1e-3 and 0 < tally["errors"] < tally["contexts"]
    rows = contexts.rows(strings, config, bits_of)
    assert [len(which) > 0 for which, _ in rows] == 4 * [True]
    for which, tokens_BT in rows:
        theirs_BTV = jax.jit(lambda params, tokens_BT: apply(params, tokens_BT, cfg))(params, tokens_BT[:500])
        np.testing.assert_allclose(ours_NV[which[:500]], theirs_BTV[:, -1], rtol=2e-4, atol=2e-3)
    ratio = rounding.ratios(strings, right, weights, config)
    assert (ratio[margin <= 0] <= 0).all() and (ratio > 0).any() and (ratio < margin.clip(1e-9) * 1e6).all()
