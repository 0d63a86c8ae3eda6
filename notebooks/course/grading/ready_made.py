"""What of the package does an exercise's work already, and where a learner's code names it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from course.checks import EXERCISES
from course.grading.parts import in_quotes

# For each exercise in code: what `vsecore` has for it. Where nothing is named, the package does not have it.
IN_THE_PACKAGE: dict[str, tuple[str, ...]] = {
    "00.search": ("similarity.cosine", "similarity.Cosine"),
    "01.true": ("scenes.holds", "scenes.relevance"),
    "01.batch": (),
    "02.mean": ("pooling.MeanPool", "data.joining.mean_elements"),
    "02.gru": (),
    "02.attention": (),
    "03.captions": ("evaluation.ranks",),
    "03.ranks": ("evaluation.ranks",),
    "03.precision": ("evaluation.map_at_r",),
    "04.all": ("losses.triplet", "losses.Triplet", "losses.LOSSES"),
    "04.siblings": ("losses.triplet", "losses.Triplet", "losses.LOSSES"),
    "04.step": (),
    "05.block": (
        "encoders.reasoning.transformer.Block",
        "encoders.reasoning.transformer.TransformerReasoner",
    ),
    "05.padding": (),
    "06.pool": ("losses.NodePooling", "losses.NodePoolingLoss", "losses.LOSSES"),
    "06.hinge": ("losses.node_pooling_loss", "losses.NodePoolingLoss", "losses.LOSSES"),
    "06.attend": (
        "losses.node_cross_attention_loss",
        "losses.NodeCrossAttentionLoss",
        "losses.LOSSES",
        "similarity.cross_attention",
    ),
    "07.weights": (
        "similarity.cross_attention",
        "similarity.CrossAttention",
        "similarity.SIMILARITIES",
        "similarity.attended.raw_weights",
    ),
    "07.score": ("similarity.cross_attention", "similarity.CrossAttention", "similarity.SIMILARITIES"),
    "07.focus": ("similarity.focal_attention", "similarity.FocalAttention", "similarity.SIMILARITIES"),
    "07.fast": (
        "similarity.cross_attention",
        "similarity.CrossAttention",
        "similarity.SIMILARITIES",
        "similarity.attended.attended_cosines",
    ),
    "08.chance": (),
    "08.own": ("mining.blocks.TruePairs",),
    "08.merge": ("mining.topk.TopK",),
    "08.mine": ("mining.mine_offline_negatives",),
    "08.break": ("data.offline_negatives.OfflineNegatives",),
    "09.triplet": ("losses.offline_triplet", "losses.OfflineTriplet", "losses.LOSSES"),
    "09.pairs": ("losses.offline_quintuplet", "losses.OfflineQuintuplet", "losses.LOSSES"),
    "09.weights": (
        "losses.adaptive_offline_quintuplet",
        "losses.AdaptiveOfflineQuintuplet",
        "losses.LOSSES",
    ),
    "09.gradient": (),
    "10.kmax": ("pooling.KMaxPool", "pooling.POOLS", "pooling.build_pool"),
    "10.gpo": ("pooling.GPO", "pooling.POOLS", "pooling.build_pool"),
    "10.token": ("pooling.AdPool", "pooling.POOLS", "pooling.build_pool"),
    "10.balance": ("pooling.AdPool", "pooling.POOLS", "pooling.build_pool"),
    "11.loss": ("losses.adopt", "losses.AdOpt", "losses.LOSSES"),
    "11.rule": ("losses.adopt_k", "losses.negatives_kept"),
    "12.one": ("evaluation.ensemble",),
    "12.rerank": (),
    "13.heads": ("sets.PIENet", "sets.look", "sets.attention_heads", "pooling.POOLS", "pooling.build_pool"),
    "13.mil": ("similarity.mil", "similarity.Mil", "similarity.SIMILARITIES"),
    "13.match": (
        "similarity.match_probability",
        "similarity.MatchProbability",
        "similarity.SIMILARITIES",
    ),
    "13.variance": ("sets.circular_variance",),
    "14.shares": ("sets.SlotSetPrediction", "pooling.POOLS", "pooling.build_pool"),
    "14.receive": ("sets.SlotSetPrediction", "pooling.POOLS", "pooling.build_pool"),
    "14.overlap": (),
    "14.smooth": (
        "similarity.smooth_chamfer",
        "similarity.SmoothChamfer",
        "similarity.SIMILARITIES",
    ),
    "14.gradient": (
        "similarity.smooth_chamfer",
        "similarity.SmoothChamfer",
        "similarity.SIMILARITIES",
    ),
    "15.reliance": ("evaluation.ranks", "evaluation.evaluate", "evaluation.recalls"),
    "15.probe": ("experiments.probe.probes",),
    "15.gradient": ("losses.info_nce", "losses.InfoNCE", "losses.LOSSES"),
    "15.places": ("losses.captioning_loss", "losses.Captioning", "losses.LOSSES"),
    "16.decoder": ("losses.LatentTargetDecoder", "losses.LatentTarget", "losses.LOSSES"),
    "16.loss": ("losses.reconstruction_loss", "losses.LatentTarget", "losses.LOSSES"),
    "16.multiplier": ("losses.LagrangeMultiplier", "losses.LatentTarget", "losses.LOSSES"),
    "17.p_values": ("experiments.statistics.doubts", "experiments.statistics.p_above"),
    "17.holm": ("experiments.statistics.holm", "experiments.statistics.corrected"),
    "17.break": (),
    "17.combine": (),
    "18.order": (),
    "18.cache": (),
    "18.gather": ("training.distributed.gather",),
    "19.exact": ("search.reference.flat", "search.reference.top"),
    "19.cells": ("search.reference.quantised",),
    "19.levels": (),
    "19.table": ("search.reference.quantised",),
}


def ready_made_in(
    source: str, exercises: Iterable[str], published: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """The names in a cell that do an exercise's work already, and the exercises whose work it is.

    A name counts wherever it stands in the code, also in a text that is a name or imports something. It does
    not count in prose, as the key of a dictionary, or where the cell gives it a meaning of its own.

    Args:
        source: the cell's code.
        exercises: the keys of those that the notebook holds.
        published: lines that the learner did not write, without their indentation.
    """
    named = _names(source, published)
    found: dict[str, set[str]] = {}
    for key in exercises:
        forbidden = {path.rpartition(".")[2] for path in IN_THE_PACKAGE.get(key, ())}
        forbidden |= set(EXERCISES[key].instead)
        if in_quotes(key, source):  # elsewhere a learner may well call what the notebook defines
            forbidden |= set(EXERCISES[key].defined_above)
        if forbidden & named:
            found[key] = forbidden & named
    return sorted(set().union(*found.values())), list(found)


def _names(source: str, published: Collection[str]) -> set[str]:
    """The names that code uses and does not define itself; all its words if it is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(re.findall(r"\w+", source))
    lines = source.split("\n")
    keys = [key for node in ast.walk(tree) for key in _keys(node)]
    used, own, others = set[str](), set[str](), set[str]()
    for node in ast.walk(tree):
        line = lines[node.lineno - 1].strip() if hasattr(node, "lineno") else ""
        handed_out = line in published and (isinstance(node, ast.alias) or not _BARE.fullmatch(line))
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                own.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case _ if handed_out:
                pass
            case ast.Name(id=name):
                used.add(name)
            case ast.Attribute(attr=name):
                others.add(name)
            case ast.alias(name=path):
                others |= set(path.split("."))
            case ast.Constant(value=str(text)) if node not in keys:
                others |= set(_names_in_text(text))
    return (used - own) | _renamed(tree) | others


# In a list over several lines, a name has a line of its own, which says nothing of what it is there for.
_BARE = re.compile(r"\W*\w*\W*")


def _keys(node: ast.AST) -> Iterator[ast.AST]:
    """What a part of code looks up in a dictionary, or puts there under a name."""
    match node:
        case ast.Subscript(slice=key):
            yield key
        case ast.Dict(keys=keys):
            yield from (key for key in keys if key is not None)


def _renamed(tree: ast.AST) -> set[str]:
    """Names that code gives what they already mean: `triplet = triplet` makes no new one."""
    return {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        for name in ast.walk(node.value)
        if isinstance(name, ast.Name) and name.id == target.id
    }


def _names_in_text(text: str) -> Iterator[str]:
    """The names that a text could bring in: it is one, it is a path of the package, or it imports."""
    if text.isidentifier():
        yield text
    elif re.fullmatch(r"\s*vsecore[.:\w]*\s*", text) or re.search(r"\bimport\b", text):
        yield from re.findall(r"\w+", text)
