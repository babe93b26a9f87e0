"""The families that this version can run, by the name that scenarios and levels use."""

from ordercast.kernel.family import Family
from ordercast.protocol import cluster, fifo, newtop

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        fifo.FAMILY,
        cluster.GOSSIP,
        cluster.CAUSAL,
        newtop.FAMILY,
        newtop.SEQUENCED,
        newtop.ATOMIC,
    )
}
