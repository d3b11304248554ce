"""What a checkpoint notes of ids: containers of pods, named by uid."""

from dpgateway.node.holders import Container, Note, Noted


def noted_of(uid: str) -> Noted:
    return Noted(containers=frozenset([Container(uid, "c")]))


def note_of(**pods: str) -> Note:
    """By id, the uid of the pod that has it."""
    return {id_: noted_of(uid) for id_, uid in pods.items()}
