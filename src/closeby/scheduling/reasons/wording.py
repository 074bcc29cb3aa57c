"""What facts about a shortfall are in English: one place words them, for all who show them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from closeby.objects.bounds import shown, some
from closeby.objects.quantities import format_amount
from closeby.objects.reasons import Reason, ReasonToken
from closeby.objects.topologies import tier_of
from closeby.objects.words import all_pods, names_text, path_text, plural
from closeby.scheduling.reasons.facts import ResourceLack, Shortfall, ShortOf, UnknownValue, Unlabelled

#: Resources that a message names, and names or values that are proposed for one that no node has.
NAMED: Final = 3


def message(one: Shortfall) -> str:
    """Why it waits."""
    among = f"; the pods constrain each other: {some(one.among)}" if one.among else ""
    return _OF.get(one.what, _of_gang)(one) + among


def remedy(one: Shortfall) -> str:
    """What to do about it; empty where nothing is known."""
    if one.what is ShortOf.CLAIM:
        return "give each member a claim of its own, or one with another access mode"
    if one.what is ShortOf.SEARCH:
        return "ask for fewer subgroups, equal pods or a coarser level"
    # Of a single pod the message says that beside what the nodes lack.
    return "" if one.unlabelled is None or one.what is ShortOf.NODES else labelling(one.unlabelled)


# Resources and labels


def lacks_text(lacks: Sequence[ResourceLack], *, nodes: bool = True) -> str:
    """The first few as one line; empty where nothing lacks. Without ``nodes`` not on how many nodes."""
    return "; ".join(_lack(lack, nodes) for lack in lacks[:NAMED])


def _lack(one: ResourceLack, nodes: bool) -> str:
    """``nvidia.com/gpu: 32 free on 4 nodes, 64 asked``."""

    def text(amount: int) -> str:
        return format_amount(one.resource, amount)

    name = shown(one.resource)
    if not one.offered:
        return f"no node offers {name}" + (f"; known: {', '.join(one.known)}" if one.known else "")
    free, asked = text(one.free), text(one.asked)
    if one.free < one.asked and free == asked:  # Rounded for reading, they would hide what lacks.
        free, asked = str(one.free), str(one.asked)
    where = f" on {plural(one.nodes, 'node')}" if nodes and one.nodes else ""
    if one.pods == 1 and one.nodes > 1:
        said = f"at most {text(one.largest)} free on one node, {asked} asked"
    elif one.free < one.asked:
        said = f"{free} free{where}, {asked} asked"
    elif one.largest < one.each:
        said = f"{free} free{where}, at most {text(one.largest)} on one, {text(one.each)} per pod asked"
    else:
        said = f"{free} free{where}, enough for {one.fits:,} of {one.pods:,} pods with {text(one.each)} each"
    if one.barred:
        there = plural(one.barred_nodes, "node")
        said += f", {text(one.barred)} more free on {there} that may not be used"
    return f"{name}: {said}"


def unlabelled_text(one: Unlabelled) -> str:
    """``8 nodes carry no label example.com/rack``, ``8 nodes are in no HyperNode of tier 1``."""
    tier, single = tier_of(one.label), one.nodes == 1
    if tier is not None:
        if one.every:
            return f"no node is in a HyperNode of tier {tier}"
        return f"{plural(one.nodes, 'node')} {'is' if single else 'are'} in no HyperNode of tier {tier}"
    if one.every:
        return f"no node carries label {shown(one.label)}"
    return f"{plural(one.nodes, 'node')} {'carries' if single else 'carry'} no label {shown(one.label)}"


def labelling(one: Unlabelled) -> str:
    """The command that labels them, or what else makes them a part of such a domain."""
    if tier_of(one.label) is not None:
        them = ", ".join(one.names) if one.nodes == len(one.names) else "them"
        members = "a member" if one.nodes == 1 else "members"
        return f"make {them} {members} of one (kubectl get hypernodes lists those that there are)"
    label = f"{shown(one.label)}={shown(one.value or 'VALUE')}"
    if one.every:
        return f"label them: kubectl label nodes NODE {label}"
    if one.nodes > len(one.names):
        which = f"'!{shown(one.label)}'"
        return f"label them: kubectl label nodes NODE {label} (kubectl get nodes -l {which} lists them)"
    return f"label {'them' if one.nodes > 1 else 'it'}: kubectl label nodes {' '.join(one.names)} {label}"


def _unknown(one: UnknownValue) -> str:
    """``no node has example.com/rack=R1; the nearest is r1``."""
    asked = " or ".join(shown(value) for value in one.asked[:NAMED])
    there = f"nodes have {', '.join(one.known)}"
    if one.nearest is not None:
        there = f"the nearest is {shown(one.nearest)}"
    return f"no node has {shown(one.label)}={asked}; {there}"


def _label(one: Shortfall) -> str:
    """What is wrong with a label; empty if nothing is."""
    if one.unlabelled is not None:
        return unlabelled_text(one.unlabelled)
    return "" if one.unknown is None else _unknown(one.unknown)


# Nodes


def _counts(blocked_by: Mapping[ReasonToken, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in blocked_by.items())


def _no_node(one: Shortfall) -> str:
    """``0 of 4 nodes take it: 4 InsufficientResources (nvidia.com/gpu: 2 free on 1 node, 4 asked)``."""
    if not one.blocked_by:
        return "the cluster has no nodes"
    instances = [each.message for each in one.examples if each.reason == one.reason]
    bare = one.unlabelled
    if one.lacks or one.unknown is not None:
        parts = [lacks_text(one.lacks) if one.unknown is None else _unknown(one.unknown)]
    else:
        parts = [f"for instance {instances[0]}"] if instances and (bare is None or not bare.every) else []
        parts += [] if bare is None else [unlabelled_text(bare), labelling(bare)]
    parts += [f"{each.reason}: {each.message}" for each in one.examples if each.reason != one.reason]
    detail = f" ({'; '.join(parts)})" if parts else ""
    return f"0 of {sum(one.blocked_by.values())} nodes take it: {_counts(one.blocked_by)}{detail}"


def _volumes(one: Shortfall) -> str:
    """What nodes say of volumes; of members, the first that finds no node beside others."""
    (example,) = one.examples[:1]
    said = f"{_counts(one.blocked_by)} (for instance {example.node}: {example.message})"
    if not one.pods:
        return said
    return f"{one.pods[0]} finds no node beside {plural(one.fits, 'other member')}: {said}"


def domain_lack(one: Shortfall | None) -> str:
    """What keeps a gang from being held by a domain: resources that it lacks, else nodes by reason."""
    if one is None:
        return ""
    if one.lacks:
        return lacks_text(one.lacks, nodes=False)
    said = _counts(one.blocked_by) if one.there is None else message(one.there)
    return f"{names_text(one.pods)}: {said}" if said else ""


# Gangs


def _cluster(one: Shortfall) -> str:
    if not one.wanted:
        return "the cluster has no nodes"
    names = f" ({names_text(one.pods)})" if one.pods else ""
    text = f"{one.fits} of {plural(one.wanted, 'pod')}{names} {'fits' if one.wanted == 1 else 'fit'} in the "
    text += "whole cluster" + (f": {lacks_text(one.lacks)}" if one.lacks else "")
    found = {each.reason: f", for instance {each.node}: {each.message}" for each in reversed(one.examples)}
    nodes = (f"{plural(n, 'node')} {reason}{found.get(reason, '')}" for reason, n in one.blocked_by.items())
    text += f" ({'; '.join(nodes)})" if one.blocked_by else ""
    label = _label(one)
    return f"{text}: {label}" if label else text


def _of(one: Shortfall) -> str:
    return f" of subgroup {one.part!r}" if one.part else ""


def _occupied(one: Shortfall) -> str:
    if not one.occupied:
        return ""
    are = "is" if one.occupied == 1 else "are"
    return f", and {plural(one.occupied, 'domain')} {are} not free of others"


def _domain(one: Shortfall) -> str:
    text = f"no {one.level} of topology {one.topology} holds {all_pods(one.wanted)}{_of(one)}"
    bare = "" if one.unlabelled is None else unlabelled_text(one.unlabelled)
    if one.running:
        text += " beside the members that already run"
    elif one.domain is not None:
        each = "takes each kind of them alone, not all together"
        takes = each if one.holds is None or one.holds >= one.wanted else f"takes {one.holds}"
        lack = domain_lack(one.there)
        text += f": the roomiest, {path_text(one.domain)}, {takes}" + (f" ({lack})" if lack else "")
    return text + (f"{': ' if one.domain is None else '; '}{bare}" if bare else "")


def _segment(one: Shortfall) -> str:
    inside = f" in one {one.inside}" if one.inside else ""
    where = f"{one.level} of topology {one.topology}{inside}"
    best = f"holds {plural(one.segments, 'segment')}"
    if not one.segments and one.holds is not None and one.holds < len(one.pods):
        inner = f" in whole segments of {one.inner}" if one.inner else ""
        best = f"holds {one.holds} of its {len(one.pods)} pods{inner}"
    best += _occupied(one)
    if one.wanted == 1:
        pods = f"the {len(one.pods)} pods{_of(one)}"
        return f"{pods} are one segment, and no {where} holds it: the roomiest {best}"
    alone = " for themselves" if one.alone else ""
    return (
        f"{one.fits} of {one.wanted} segments{_of(one)} of {plural(one.size, 'pod')} each find a "
        f"{where}{alone}; segment {one.segment} ({names_text(one.pods)}) finds none: the roomiest "
        f"{one.level} {best}"
    )


def _of_gang(one: Shortfall) -> str:
    """The other kinds: each is one sentence."""
    pods, where = names_text(one.pods), f"{one.level} of topology {one.topology}"
    there = lacks_text(one.lacks) if one.there is None else message(one.there)
    match one.what:
        case ShortOf.HELD:
            theirs = " in domains that others have for themselves:"
            theirs = theirs if one.reason == Reason.DOMAIN_EXCLUSIVE else ""
            return f"it lacks the room on {plural(one.nodes, 'node')}{theirs} {one.holders}"
        case ShortOf.TOGETHER:
            found = f": {there}" if there else ""
            return f"the pods fit one by one, but not all beside each other{found}"
        case ShortOf.MEMBERS:
            apart = " where they require one" if one.reason == Reason.TOPOLOGY_PLACEMENT_FAILED else ""
            return f"{one.fits} of at least {one.wanted} members find a place{apart}"
        case ShortOf.CLAIM:
            why = f"claim {one.claim} is for one pod at a time (ReadWriteOncePod)"
            return f"{pods} would have to share it: {why}"
        case ShortOf.SEARCH:
            said = "no place was found before the search budget was spent; there may be one"
            return said if one.there is None else f"{said}; {there}"
        case ShortOf.LARGEST:
            roomiest = (
                f"the roomiest {one.level} holds {one.holds} of its {len(one.pods)} pods{_occupied(one)}"
            )
            return f"segment {one.segment} of {one.wanted} ({pods}) finds no {where}: {roomiest}"
        case ShortOf.LIMIT:
            used = f"{plural(one.limit, one.level)} of topology {one.topology}"
            segments = f" in whole segments of {one.size}" if one.size > 1 else ""
            hold = f"which hold {plural(one.fits, 'pod')} of {one.wanted}{segments}"
            return f"at most {used} may be used, {hold}"
        case ShortOf.RUNNING:
            others = f"others of segment {one.segment}{_of(one)} run in {path_text(one.domain or ())}"
            takes = f"it takes {one.fits} of {plural(len(one.pods), 'pod')} now"
            return f"{others}, and {pods} must be in that {one.level} too: {takes}"
    what = (
        "subgroups as they require" if one.what is ShortOf.SUBGROUPS else "segments as their layers require"
    )
    but = "there is room in the cluster, but " if one.room else ""
    return f"{but}no choice of domains holds all {what}"


_OF: Final[Mapping[ShortOf, Callable[[Shortfall], str]]] = {
    ShortOf.NODES: _no_node,
    ShortOf.VOLUMES: _volumes,
    ShortOf.CLUSTER: _cluster,
    ShortOf.DOMAIN: _domain,
    ShortOf.SEGMENT: _segment,
}
