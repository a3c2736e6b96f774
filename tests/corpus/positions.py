"""Programs that read both their replica's id and their partition's id, in every split of the devices into replicas and
partitions. JAX writes programs that read one of the two, so these are StableHLO text. The ids are results by
themselves, and operands of collectives.
"""

import numpy as np

from corpus.by_hand import COLUMNS, ROWS, Program
from corpus.collectives import ORDERS, same

SHAPES = ((2, 4), (4, 2), (8, 1), (1, 8))  # replicas x partitions


def full(value: int) -> np.ndarray:
    return np.full((ROWS, COLUMNS), value, np.int32)


def check_ids_without_a_collective():
    unused = np.zeros((8, ROWS, COLUMNS), np.int32)
    for replicas, partitions in SHAPES:
        program = Program("int32", replicas, partitions, "flattened", [])
        program.identity("replica_id")
        program.identity("partition_id")
        for order in ORDERS:
            of_replica, of_partition = program.run(unused, order)
            for position in range(8):
                replica, partition = divmod(position, partitions)
                same(of_replica[position], full(replica))
                same(of_partition[position], full(partition))


def check_ids_that_a_collective_sums():
    """Over replicas, over all positions of a replica, and over positions in groups that cross both."""
    unused = np.zeros((8, ROWS, COLUMNS), np.int32)
    pairs = [[0, 5], [4, 1], [2, 7], [6, 3]]
    pair_of = {position: pair for pair in pairs for position in pair}
    for replicas, partitions in SHAPES:
        positions = np.arange(8).reshape(replicas, partitions)
        replica, partition = np.divmod(positions.ravel(), partitions)
        # What each position meets.
        for mode, groups, met in (
            ("replicas", [], [positions[:, each] for each in partition]),
            ("mixed", [[i] for i in range(replicas)], [positions[each] for each in replica]),
            ("flattened", pairs, [pair_of[each] for each in range(8)]),
        ):
            program = Program("int32", replicas, partitions, mode, groups)
            names = [program.identity("replica_id"), program.identity("partition_id")]
            for name in names:
                program.all_reduce("add", name)
            for order in ORDERS:
                *ids, of_replicas, of_partitions = program.run(unused, order)
                for position, others in enumerate(met):
                    same(ids[0][position], full(replica[position]))
                    same(ids[1][position], full(partition[position]))
                    same(of_replicas[position], full(replica[others].sum()))
                    same(of_partitions[position], full(partition[others].sum()))
