"""Every progression that a generator draws, by the words of the task."""


def draws(cfg):
    """{(first, difference, terms): probability}"""
    top = 10**cfg.digits - 1
    table = {}
    differences = range(cfg.min_difference, cfg.max_difference + 1)
    for difference in differences:
        most = cfg.max_terms if difference == 0 else min(cfg.max_terms, 1 + top // abs(difference))
        for terms in range(cfg.min_terms, most + 1):
            firsts = [first for first in range(top + 1) if 0 <= first + (terms - 1) * difference <= top]
            for first in firsts:
                table[first, difference, terms] = 1 / (len(differences) * (most - cfg.min_terms + 1) * len(firsts))
    return table
