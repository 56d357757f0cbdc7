"""Scores of attention: a score is a file of this folder, or a module that an installed package brings.

The file defines one function, of the queries and keys of all heads:

    score(param, q_BTHK, k_BSHK) -> scores_BHTS               in at least float32

param(name, initializer, shape) makes a parameter, which does not decay. A package brings a score by an entry point:

    [project.entry-points."apformer.similarity"]
    distance = "my_package.distance"
"""
